// SPDX-License-Identifier: GPL-2.0
/* See peer.h. */
#include "peer.h"

static uint32_t crc32c(const void *p, size_t n)
{
	static uint32_t table[256];
	const uint8_t *b = p;
	uint32_t crc = ~0U;

	for (uint32_t i = 0; !table[255] && i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78 : 0);
	}
	while (n--)
		crc = crc >> 8 ^ table[(crc ^ *b++) & 255];
	return ~crc;
}

uint32_t page_crcs(const uint8_t *p, size_t n, uint32_t chunk, uint32_t *crcs)
{
	uint32_t i = 0;

	for (size_t at = 0; at < n; at += chunk, i++)
		crcs[i] = crc32c(p + at, n - at < chunk ? n - at : chunk);
	return i;
}

void *map_peer(size_t bytes)
{
	const char *file = getenv("KVCTX_PEER");
	int fd = open(file ? file : "", O_RDWR | O_CLOEXEC);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

int reg(struct kt *k, const void *p, size_t bytes, uint32_t *id)
{
	struct kvctx_mem_register r = { .size = sizeof(r), .addr = (uintptr_t)p, .length = bytes };
	int ret = kt_ioctl(k->file, KVCTX_IOC_MEM_REGISTER, &r);

	*id = r.id;
	return ret;
}

int unreg(struct kt *k, uint32_t id)
{
	struct kvctx_mem_unregister u = { .size = sizeof(u), .id = id };

	return kt_ioctl(k->file, KVCTX_IOC_MEM_UNREGISTER, &u);
}

int paths(struct kt *k, uint32_t mem, struct kvctx_path *rows, uint32_t nr, uint32_t *members)
{
	struct kvctx_paths p = { .size = sizeof(p), .mem = mem, .nr = nr, .paths = (uintptr_t)rows };
	int ret = kt_ioctl(k->file, KVCTX_IOC_PATHS, &p);

	*members = p.nr;
	return ret;
}

void info(struct kt *k, struct kvctx_info *i)
{
	*i = (struct kvctx_info){ .size = sizeof(*i) };
	kt_ioctl(k->file, KVCTX_IOC_INFO, i);
}
