// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that calls are given: 4 MiB of data with a page behind it that is not there, a page that can only be read, what
 * sessions have mapped, and addresses that are nobody's.
 *
 * Structures that the program fills lie in a room of their own, which begins anew with each input. Mappings of sessions are
 * never touched here: they may have ended, or be longer than what is behind them.
 */
#include <string.h>
#include <sys/mman.h>

#include "fuzz.h"

#define MEMORY_DATA	(4UL << 20)
#define MEMORY_ROOM	(1UL << 20)
#define MEMORY_ALSO	4

static uint8_t *memory_data, *memory_readable, *memory_room;
static void *memory_others[MEMORY_ALSO];
static size_t memory_used;

static uint8_t *memory_map(size_t bytes, int prot)
{
	void *at = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (at == MAP_FAILED)
		fuzz_die("no memory");
	return at;
}

void fuzz_memory_init(void)
{
	memory_data = memory_map(MEMORY_DATA + 4096, PROT_READ | PROT_WRITE);
	munmap(memory_data + MEMORY_DATA, 4096);
	memory_readable = memory_map(4096, PROT_READ);
	memory_room = memory_map(MEMORY_ROOM, PROT_READ | PROT_WRITE);
}

void fuzz_memory_begin(void)
{
	memory_used = 0;
}

void fuzz_memory_also(int which, void *at)
{
	memory_others[which % MEMORY_ALSO] = at;
}

static uint64_t memory_rare(struct fuzz_in *in, size_t bytes)
{
	uint8_t *end = memory_data + MEMORY_DATA;

	switch (fuzz_below(in, 8)) {
	case 0:
		return 0;
	case 1:
		return (uintptr_t)(end - bytes / 2);		/* the second half is not there */
	case 2:
		return (uintptr_t)(end - 1);
	case 3:
		return (uintptr_t)memory_readable;
	case 4:
		return fuzz_number(in);
	case 5:
		return 0xffff888000000000ULL + fuzz_raw(in, 4);	/* the kernel's */
	default:
		return (uintptr_t)memory_others[fuzz_below(in, MEMORY_ALSO)] + fuzz_raw(in, 2);
	}
}

uint64_t fuzz_address(struct fuzz_in *in, size_t bytes)
{
	uint64_t at = (uint64_t)fuzz_byte(in) * 4096;

	if (fuzz_rarely(in))
		return memory_rare(in, bytes);
	if (fuzz_rarely(in))
		at += fuzz_byte(in);
	return (uintptr_t)memory_data + at % MEMORY_DATA;
}

void *fuzz_room(size_t bytes)
{
	void *at;

	bytes = (bytes + 15) & ~15UL;
	if (bytes > MEMORY_ROOM)
		fuzz_die("a structure of %zu bytes", bytes);
	if (bytes > MEMORY_ROOM - memory_used)
		memory_used = 0;
	at = memory_room + memory_used;
	memory_used += bytes;
	memset(at, 0, bytes);
	return at;
}
