// SPDX-License-Identifier: GPL-2.0
/*
 * Golden bytes. A file has a line for every 16 bytes that are not all zero: offset, colon, hexadecimal bytes; the last
 * line is the length alone.
 */
#include "golden.h"

#define ROW 16

static char *render(const u8 *p, u32 len)
{
	static const u8 zero[ROW];
	char *text = malloc((size_t)(len / ROW + 2) * (12 + 3 * ROW)), *t = text;
	u32 at, i;

	if (!text)
		abort();
	for (at = 0; at + ROW <= len; at += ROW) {
		if (!memcmp(p + at, zero, ROW))
			continue;
		t += sprintf(t, "%06x:", at);
		for (i = 0; i < ROW; i++)
			t += sprintf(t, " %02x", p[at + i]);
		*t++ = '\n';
	}
	sprintf(t, "%06x\n", len);
	return text;
}

static FILE *open_golden(const char *name, const char *mode)
{
	char path[256];

	snprintf(path, sizeof(path), "selftests/core/golden/%s.hex", name);
	return fopen(path, mode);
}

static bool same_text(FILE *f, const char *text)
{
	size_t n = strlen(text), got;
	char *old = malloc(n + 2);
	bool same;

	if (!old)
		abort();
	got = fread(old, 1, n + 1, f);
	same = got == n && !memcmp(old, text, n);
	free(old);
	return same;
}

bool golden_same(const char *name, const void *bytes, u32 len)
{
	bool write = getenv("KVC_GOLDEN_WRITE") != NULL, same = false;
	FILE *f = open_golden(name, write ? "w" : "r");
	char *text = render(bytes, len);

	if (f && write)
		same = fputs(text, f) >= 0;
	else if (f)
		same = same_text(f, text);
	if (f)
		fclose(f);
	free(text);
	return same;
}
