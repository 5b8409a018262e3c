// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the image of a pool with many pages, to see what its attach costs:
 *
 *	core-image FILE PAGES LENGTH [SEGMENT_MIB [MEMBERS]]
 *
 * Members but the first are FILE.1, FILE.2 and so on, all of the same size.
 *
 * The engine places the pages and writes the summaries, as in the kernel. The pages themselves are holes of the file:
 * they read as zeros, and have the checksums of zeros. Page n has the key that key_make() makes of n, in keyspace 0 of
 * the tenant "default".
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core.h"
#include "page.h"

static u32 nr_members = 1;
static int fds[KVC_MEMBERS_MAX];
static u64 size;			/* of each */
static struct kvc_pool *pool;

static void fail(const char *what)
{
	fprintf(stderr, "core-image: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(u32 member, const void *buf, u32 len, u64 offset)
{
	if (pwrite(fds[member], buf, len, (off_t)offset) != (ssize_t)len)
		fail("write");
}

static void ignore_kick(void *owner, u32 member)
{
	(void)owner;
	(void)member;
}

static void ignore_space(void *owner)
{
	(void)owner;
}

static const struct kvc_ops ops = { ignore_kick, ignore_space };

static void execute(struct kvc_work *w)
{
	if (w->type == KVC_WORK_WRITE)
		put(w->member, w->buf, w->len, w->offset);
	else if (w->type == KVC_WORK_MOVE)
		fail("the pool is full");
	kvc_work_done(pool, w, 0);
}

static void work(int (*next)(struct kvc_pool *p, u32 member, struct kvc_work *w))
{
	struct kvc_work w;
	u32 i;
	int r;

	for (i = 0; i < nr_members; i++) {
		while ((r = next(pool, i, &w)) == 1)
			execute(&w);
		if (r)
			fail("no memory");
	}
}

static void format(struct kvc_super *s, u64 segment, u32 segments)
{
	u8 *buf = malloc(KVC_SUPER_BYTES);
	u32 copy, i;

	if (!buf)
		fail("no memory");
	page_bytes(s->pool_uuid, segments, 0, KVC_UUID_LEN);
	strcpy(s->pool_name, "image");
	s->segment_size = segment;
	s->chunk_size = KVC_CHUNK_DEFAULT;
	s->nr_members = nr_members;
	for (i = 0; i < nr_members; i++) {
		page_bytes(s->members[i].uuid, segments, (i + 1) * KVC_UUID_LEN, KVC_UUID_LEN);
		s->members[i].nr_segments = segments;
	}
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	s->tenants[0].mode = 0600;
	for (s->seq = 1; s->seq <= 2; s->seq++) {
		for (i = 0; i < nr_members * KVC_SUPER_COPIES; i++) {
			copy = i % KVC_SUPER_COPIES;
			kvc_super_encode(s, i / KVC_SUPER_COPIES, buf);
			put(i / KVC_SUPER_COPIES, buf, KVC_SUPER_BYTES,
			    kvc_super_offset(kvc_super_slot(s->seq, copy), size));
		}
	}
	s->seq = 2;
	free(buf);
}

/* Nothing has to be read: the files are new. */
static void recover_nothing(void)
{
	static const u8 zeros[KVC_RECOVER_STEP];
	struct kvc_recover r;
	u32 i;

	for (i = 0; i < nr_members * kvc_nr_segments(pool, 0); i++) {
		kvc_recover_start(pool, i % nr_members, i / nr_members, &r);
		if (kvc_recover_feed(pool, &r, zeros, 0))
			fail("recovery");
	}
	kvc_recover_finish(pool);
}

static void store(struct kvc_domain *d, u32 nr, u32 length, u32 crc, u32 last_crc)
{
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	u32 i;
	int r;

	key_make(key, nr);
	while ((r = kvc_store_begin(pool, d, key, length, 0, KVC_ANY_MEMBER, &st)) == -EAGAIN)
		work(kvc_work_next);
	if (r)
		fail("store");
	for (i = 0; i < st.nr_chunks; i++)
		kvc_store_crc(pool, &st, i, i + 1 < st.nr_chunks ? crc : last_crc);
	kvc_store_commit(pool, &st);
}

static void open_members(const char *path)
{
	char name[4096];
	u32 i;

	for (i = 0; i < nr_members; i++) {
		snprintf(name, sizeof(name), i ? "%s.%u" : "%s%.0u", path, i);
		fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
		if (fds[i] < 0 || ftruncate(fds[i], (off_t)size))
			fail(name);
	}
}

int main(int argc, char **argv)
{
	u32 pages = argc > 3 ? (u32)strtoul(argv[2], NULL, 0) : 0, length = argc > 3 ? (u32)strtoul(argv[3], NULL, 0) : 0;
	u64 segment = (argc > 4 ? strtoull(argv[4], NULL, 0) : 64) << 20, need;
	struct kvc_super *s = calloc(1, sizeof(*s));
	static const u8 zeros[KVC_CHUNK_DEFAULT];
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;
	u32 segments, i;

	nr_members = argc > 5 ? (u32)strtoul(argv[5], NULL, 0) : 1;
	if (!pages || !length || !s || !nr_members || nr_members > KVC_MEMBERS_MAX) {
		fprintf(stderr, "usage: core-image FILE PAGES LENGTH [SEGMENT_MIB [MEMBERS]]\n");
		return 2;
	}
	/* pages, their records, a tenth more, and what reclaim keeps */
	need = (u64)pages * (((u64)kvc_blocks(length) << KVC_BLOCK_SHIFT) + 256) / nr_members;
	segments = (u32)(need / segment * 11 / 10) + 16;
	size = kvc_device_bytes(segments, segment);
	open_members(argv[1]);
	format(s, segment, segments);
	if (kvc_pool_create(s, 1, &ops, NULL, &pool))
		fail("pool");
	recover_nothing();
	keyspace_make(keyspace, 0);
	if (kvc_domain_open(pool, 0, keyspace, &d))
		fail("no memory");
	for (i = 0; i < pages; i++)
		store(d, i, length, page_crc(zeros, KVC_CHUNK_DEFAULT),
		      page_crc(zeros, (length - 1) % KVC_CHUNK_DEFAULT + 1));
	work(kvc_flush_next);
	kvc_domain_put(pool, d);
	kvc_pool_destroy(pool);
	free(s);
	for (i = 0; i < nr_members; i++)
		if (fsync(fds[i]) || close(fds[i]))
			fail(argv[1]);
	return 0;
}
