// SPDX-License-Identifier: GPL-2.0
/* See crash_account.h. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_account.h"
#include "kvctx.h"

#define MAGIC		0x746e756f6363616bULL
#define READ_BYTES	(1U << 20)

struct block {
	uint64_t	magic;
	uint64_t	life;
	uint32_t	boot;
	uint32_t	crc;		/* of the block with this field 0 */
	uint16_t	type;
	uint16_t	worker;
	uint32_t	nr;
	uint64_t	stored;
	uint64_t	reserved;
	struct crash_key keys[(CRASH_BLOCK - 48) / sizeof(struct crash_key)];
	uint8_t		pad[CRASH_BLOCK - 48 - (CRASH_BLOCK - 48) / sizeof(struct crash_key) * sizeof(struct crash_key)];
};

_Static_assert(sizeof(struct block) == CRASH_BLOCK, "a block");
_Static_assert((CRASH_BLOCK - 48) / sizeof(struct crash_key) >= CRASH_KEYS, "a worker's keys fit one block");

static int fd;
static uint64_t life;
static uint32_t boot;
static uint64_t half_blocks;
static uint64_t next;		/* block of this half; atomic */

static void die(const char *what)
{
	perror(what);
	exit(2);
}

void account_open(const char *path, uint64_t of_life)
{
	struct stat st;
	uint64_t size;

	life = of_life;
	fd = open(path, O_RDWR | O_DIRECT | O_SYNC | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die(path);
	size = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, &size))
		die(path);
	half_blocks = size / 2 / READ_BYTES * READ_BYTES / CRASH_BLOCK;
}

static uint32_t checksum(struct block *b)
{
	uint32_t was = b->crc, crc;

	b->crc = 0;
	crc = kvctx_crc32c(0, b, sizeof(*b));
	b->crc = was;
	return crc;
}

static bool sound(struct block *b)
{
	return b->magic == MAGIC && b->life == life && b->worker < CRASH_WORKERS &&
	       b->nr <= sizeof(b->keys) / sizeof(b->keys[0]) && b->crc == checksum(b);
}

static uint64_t offset_of(uint32_t of_boot, uint64_t block)
{
	return ((of_boot & 1) * half_blocks + block) * CRASH_BLOCK;
}

static void *aligned(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, 4096, bytes))
		die("memory");
	return p;
}

/* The boot whose STATE a half has, 0: none that is whole */
static uint32_t boot_of_half(uint32_t half)
{
	struct block *b = aligned(CRASH_WORKERS * CRASH_BLOCK);
	uint32_t of_boot, i;

	if (pread(fd, b, CRASH_WORKERS * CRASH_BLOCK, (off_t)offset_of(half, 0)) != CRASH_WORKERS * CRASH_BLOCK)
		die("account");
	of_boot = b[0].boot;
	for (i = 0; i < CRASH_WORKERS; i++)
		if (!sound(&b[i]) || b[i].type != CRASH_STATE || b[i].worker != i || b[i].boot != of_boot)
			of_boot = 0;
	free(b);
	return of_boot;
}

static void apply(struct crash_state *s, const struct block *b)
{
	uint32_t i;

	s->stored += b->stored;
	for (i = 0; i < b->nr; i++) {
		const struct crash_key *from = &b->keys[i];
		struct crash_key *to;

		if (from->key >= CRASH_KEYS)
			continue;
		to = &s->keys[b->worker][from->key];
		if (b->type == CRASH_STATE) {
			*to = *from;
			continue;
		}
		if (b->type == CRASH_PROMISE) {
			to->least = from->least;
			to->deleted = from->deleted;
		}
		if (from->most > to->most)
			to->most = from->most;
		if (from->version > to->version)
			to->version = from->version;
	}
}

bool account_read(struct crash_state *s)
{
	uint32_t boots[2] = { boot_of_half(0), boot_of_half(1) };
	uint64_t at;
	uint8_t *buf;

	boot = boots[0] > boots[1] ? boots[0] : boots[1];
	if (!boot)
		return false;
	memset(s, 0, sizeof(*s));
	buf = aligned(READ_BYTES);
	for (at = 0; at < half_blocks; at += READ_BYTES / CRASH_BLOCK) {
		if (pread(fd, buf, READ_BYTES, (off_t)offset_of(boot, at)) != READ_BYTES)
			die("account");
		for (uint32_t i = 0; i < READ_BYTES / CRASH_BLOCK; i++) {
			struct block *b = (struct block *)(buf + i * CRASH_BLOCK);

			if (b->magic == MAGIC && b->boot == boot && sound(b))
				apply(s, b);
		}
	}
	free(buf);
	return true;
}

static void put(uint64_t at, enum crash_record type, unsigned int worker, const struct crash_key *keys, unsigned int nr,
		uint64_t stored)
{
	struct block *b = aligned(sizeof(*b));

	memset(b, 0, sizeof(*b));
	b->magic = MAGIC;
	b->life = life;
	b->boot = boot;
	b->type = (uint16_t)type;
	b->worker = (uint16_t)worker;
	b->nr = nr;
	b->stored = stored;
	memcpy(b->keys, keys, nr * sizeof(*keys));
	b->crc = checksum(b);
	if (pwrite(fd, b, sizeof(*b), (off_t)offset_of(boot, at)) != sizeof(*b))
		die("account");
	free(b);
}

void account_begin(const struct crash_state *s)
{
	unsigned int i;

	boot++;
	for (i = 0; i < CRASH_WORKERS; i++)
		put(i, CRASH_STATE, i, s->keys[i], CRASH_KEYS, i ? 0 : s->stored);
	next = CRASH_WORKERS;
}

bool account_append(enum crash_record type, unsigned int worker, const struct crash_key *keys, unsigned int nr,
		    uint64_t stored)
{
	uint64_t at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);

	if (at >= half_blocks)
		return false;
	put(at, type, worker, keys, nr, stored);
	return true;
}
