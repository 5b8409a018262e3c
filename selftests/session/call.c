// SPDX-License-Identifier: GPL-2.0
/*
 * Which calls are valid, where selftests/kvctx/abi.c does not look; and what part of a page a LOAD reads: every range
 * of small pages, against what such a part has to be.
 */
#include <stdio.h>

#include "session.h"

int test_calls(int *failed);

static int passed, bad;

static void expect(bool good, const char *what, u32 a, u32 b, u32 c)
{
	if (good)
		return;
	if (bad++ < 20)
		printf("not ok %s: %u %u %u\n", what, a, b, c);
}

/* As little as has whole chunks or blocks in it, all of the range, and nothing behind the page but padding */
static void test_frame(u32 from, u32 length, u32 page, u32 chunk, u32 unit)
{
	struct kvctx_frame f = kvctx_frame_of(from, length, page, chunk, unit);
	u32 step = chunk ? chunk : unit, stop = f.start + f.span;

	expect(f.start % step == 0 && f.head < step && f.start + f.head == from, "head", from, length, page);
	expect(f.span == f.head + length + f.tail, "span", from, length, page);
	expect(f.bytes % unit == 0 && f.bytes >= f.span && f.bytes - f.span < unit, "padding", from, length, page);
	if (chunk)
		expect((stop % chunk == 0 || stop == page) && f.tail < chunk && stop <= page, "tail", from, length, page);
	else
		expect(!f.tail, "no tail", from, length, page);
}

static void test_frames(void)
{
	static const u32 units[] = { 512, 4096 }, chunks[] = { 0, 4096, 8192 };
	u32 page, from, length, u, c;

	for (page = 1; page < 30000; page += 2 * page / 3 + 1, passed++)
		for (from = 0; from < page; from += 1 + from % 997)
			for (length = 1; length <= page - from; length += 1 + length % 1013)
				for (u = 0; u < 2; u++)
					for (c = 0; c < 3; c++)
						test_frame(from, length, page, chunks[c], units[u]);
}

static void test_setup(u64 arena, u32 slots, u32 bytes, int want)
{
	struct kvctx_setup s = { .cq_entries = 1, .arena_bytes = arena, .nr_slots = slots, .slot_bytes = bytes };

	expect(kvctx_setup_check(&s, 1 << 20, 16384, 4096) == want, "setup", (u32)arena, slots, bytes);
	passed++;
}

int test_calls(int *failed)
{
	test_frames();
	test_setup(1 << 20, 0, 0, 0);
	test_setup((1 << 20) + 1, 0, 0, -EINVAL);
	test_setup(0, 0, 1, -EINVAL);
	test_setup(0, 1, 0, -EINVAL);
	test_setup(0, 64, 16384, 0);
	test_setup(0, 65, 16384, -EINVAL);
	test_setup(0, 1, 16385, -EINVAL);
	/* each is whole pages of memory */
	test_setup(0, 256, 1, 0);
	test_setup(0, 257, 1, -EINVAL);
	test_setup(0, KVCTX_SLOTS_MAX + 1, 1, -EINVAL);
	*failed = bad;
	return bad ? 0 : passed;
}
