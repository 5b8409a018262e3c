// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzing of what reads media: superblock decoder, extent reader, recovery of a whole pool.
 *
 *	core-fuzz [--seconds S] [--seed N] [--only super|extent|pool] [--corpus DIR]
 *
 * Mutations are drawn from a seed, so a crash repeats. Most of them put the checksums right afterwards, else nothing
 * would come past the first check. A field is set to what is likely to hurt: bounds, their neighbours, powers of two.
 * Whatever is accepted has to be usable: sizes in range, records inside their segment, and a pool recovered from a
 * hostile image is worked with afterwards. The sanitizers see the rest.
 *
 * Images that once crashed are kept in corpus/ as NAME.super or NAME.extent and tried first.
 */
#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "format_media.h"
#include "media.h"
#include "rig.h"

static u64 seed;
static const char *what = "super";

static void say_seed(int sig)
{
	fprintf(stderr, "fuzz: repeat with: --only %s --seed %llu --seconds 0\n", what, (unsigned long long)seed);
	signal(sig, SIG_DFL);
	raise(sig);
}

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "abort_on_error=1";
}

const char *__ubsan_default_options(void)
{
	return "abort_on_error=1";
}

static void on_fail(const char *text)
{
	fprintf(stderr, "fuzz: %s\n", text);
	abort();
}

static u64 hurtful(struct rng *rng)
{
	static const u64 list[] = {
		0, 1, 2, 3, 4, 63, 64, 65, 239, 240, 241, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 0x7fffffff,
		0x80000000, 0xffffffff, 0x100000000, 0xfffff000, (1ULL << 62) - 1, 1ULL << 62, 1ULL << 63, ~0ULL,
		KVC_PAGE_MAX, KVC_PAGE_MAX + 1, KVC_SEGMENT_MIN, KVC_SEGMENT_MAX, KVC_EXTENT_MAX, KVC_SEGMENTS_END,
	};
	u32 n = rng_below(rng, 10);

	if (n < 6)
		return list[rng_below(rng, ARRAY_SIZE(list))] + rng_below(rng, 3) - 1;
	if (n < 8)
		return 1ULL << rng_below(rng, 64);
	return rng_u64(rng);
}

/* Change some bytes of [@buf, @buf + @len): flips, hurtful numbers, copies of other parts */
static void mutate(struct rng *rng, u8 *buf, u32 len)
{
	u32 n = rng_range(rng, 1, 4), at, size, from;
	u64 v;

	while (n--) {
		at = rng_below(rng, len);
		switch (rng_below(rng, 4)) {
		case 0:
			buf[at] ^= (u8)(1U << rng_below(rng, 8));
			break;
		case 1:
		case 2:
			size = 1U << rng_below(rng, 4);
			at &= ~(size - 1);
			v = htole64(hurtful(rng));
			memcpy(buf + at, &v, min(size, len - at));
			break;
		default:
			size = rng_range(rng, 1, 64);
			from = rng_below(rng, len);
			size = min(size, len - max(at, from));
			memmove(buf + at, buf + from, size);
		}
	}
}

/* Superblock */

static void use_super(const void *slot)
{
	struct kvc_super *s = malloc(sizeof(*s)), *again = malloc(sizeof(*s));
	u8 *buf = malloc(KVC_SUPER_BYTES);
	u32 i;

	if (!s || !again || !buf)
		abort();
	if (kvc_super_decode(slot, s) == KVC_OK) {
		if (kvc_super_check(s) != KVC_OK)
			on_fail("a decoded superblock fails its own check");
		for (i = 0; i < s->nr_members; i++)
			if (kvc_device_bytes(s->members[i].nr_segments, s->segment_size) < s->segment_size)
				on_fail("an accepted size overflows");
		kvc_super_encode(s, s->member_index, buf);
		if (kvc_super_decode(buf, again) != KVC_OK || memcmp(s, again, sizeof(*s)))
			on_fail("an accepted superblock does not survive a round trip");
	}
	free(s);
	free(again);
	free(buf);
}

static void fuzz_super(struct rng *rng)
{
	/* Exactly the slot, so that reading beyond it is seen */
	u8 *slot = malloc(KVC_SUPER_BYTES);
	struct kvc_super *s = malloc(sizeof(*s));

	if (!slot || !s)
		abort();
	media_sample_super(s);
	kvc_super_encode(s, rng_below(rng, 2), slot);
	mutate(rng, slot, rng_chance(rng, 5000) ? 256 : sizeof(struct kvc_media_super));
	if (!rng_chance(rng, 500))
		media_fix_super(slot);
	use_super(slot);
	free(slot);
	free(s);
}

/* Extent */

static void check_record(const struct kvc_rec *rec, u32 seg_blocks, u32 chunk, const u8 *buf, u32 bytes)
{
	volatile u32 sum = 0;
	u32 i;

	if (rec->type == KVC_REC_PAGE) {
		if (!rec->length || rec->block == 0 || (u64)rec->block + kvc_blocks(rec->length) > seg_blocks ||
		    rec->nr_crcs != (rec->length - 1) / chunk + 1)
			on_fail("an accepted page does not fit its segment");
	} else if (rec->nr_crcs != 0) {
		on_fail("an accepted tombstone has CRCs");
	}
	if (rec->nr_crcs && ((const u8 *)rec->crcs < buf ||
			     (const u8 *)rec->crcs + (size_t)rec->nr_crcs * 4 > buf + bytes))
		on_fail("CRCs lie outside of the extent");
	for (i = 0; i < rec->nr_crcs; i++)
		sum += kvc_rec_crc(rec, i);
	if (rec->tenant >= KVC_TENANTS_MAX)
		on_fail("an accepted record names no tenant slot");
}

static void use_extent(const u8 *buf, u32 bytes, u32 first, u32 seg_blocks, u32 chunk)
{
	struct kvc_extent_reader r;
	struct kvc_seg_id id;
	struct kvc_rec rec;
	u32 peeked, n = 0;

	media_sample_id(&id);
	if (bytes < KVC_BLOCK || kvc_extent_peek(buf, &peeked) != KVC_OK || peeked != bytes)
		return;
	if (kvc_extent_open(&r, buf, bytes, &id, first, seg_blocks, chunk) != KVC_OK)
		return;
	while (kvc_extent_next(&r, &rec) == KVC_OK) {
		check_record(&rec, seg_blocks, chunk, buf, bytes);
		if (++n > bytes / KVC_REC_FIXED)
			on_fail("more records than fit");
	}
}

static void fuzz_extent(struct rng *rng)
{
	struct kvc_seg_id id;
	u8 *buf = malloc(4 * KVC_BLOCK);
	u32 bytes, peeked, first = 5;

	if (!buf)
		abort();
	media_sample_id(&id);
	bytes = media_sample_extent(&id, buf, 4 * KVC_BLOCK);
	memset(buf + bytes, 0x77, 4 * KVC_BLOCK - bytes);
	mutate(rng, buf, rng_chance(rng, 6000) ? 600 : bytes);
	if (rng_chance(rng, 500)) {
		((struct kvc_media_extent *)buf)->first_block = 0;
		first = 0;
	}
	if (!rng_chance(rng, 500))
		media_fix_extent(buf, 4 * KVC_BLOCK);
	if (kvc_extent_peek(buf, &peeked) == KVC_OK && peeked <= 4 * KVC_BLOCK)
		bytes = peeked;
	buf = realloc(buf, bytes);
	if (!buf)
		abort();
	use_extent(buf, bytes, first, rng_chance(rng, 2000) ? rng_range(rng, 1, 300) : 256, 64U << 10);
	free(buf);
}

/* A pool whose summaries were changed, checksums right */

static void mutate_log(struct rng *rng, struct rig *r, u32 member, u32 segment)
{
	u64 at = KVC_DATA_OFFSET + segment * r->super->segment_size;
	u32 block = 0, bytes, blocks = (u32)(r->super->segment_size / KVC_BLOCK);
	u8 *buf = malloc(r->super->segment_size);

	if (!buf)
		abort();
	dev_pread(r->devs[member], at, buf, (u32)r->super->segment_size);
	while (block < blocks && kvc_extent_peek(buf + block * KVC_BLOCK, &bytes) == KVC_OK &&
	       bytes / KVC_BLOCK <= blocks - block) {
		if (rng_chance(rng, 3000)) {
			mutate(rng, buf + block * KVC_BLOCK, rng_chance(rng, 5000) ? KVC_BLOCK : 700);
			media_fix_extent(buf + block * KVC_BLOCK, (blocks - block) * KVC_BLOCK);
		}
		block += bytes / KVC_BLOCK;
	}
	dev_pwrite(r->devs[member], at, buf, (u32)r->super->segment_size);
	free(buf);
}

/* What a hostile summary names may be any bytes of the segment; reading them has to be possible, no more. */
static void use_pool(struct rig *r, struct rng *rng)
{
	u32 i;

	for (i = 0; i < 60; i++) {
		struct kvc_load ld;
		u8 *buf;

		if (rig_hold(r, r->d, i, &ld))
			continue;
		if (ld.length == 0 || ld.length > kvc_page_max(r->pool) || ld.member >= r->nr_members)
			on_fail("a recovered page has no place");
		buf = malloc(ld.length);
		if (!buf)
			abort();
		dev_pread(r->devs[ld.member], ld.offset, buf, ld.length);
		free(buf);
		kvc_load_end(r->pool, &ld, rng_chance(rng, 3000) ? -EBADMSG : 0);
	}
	rig_work(r);
	for (i = 0; i < 120; i++) {
		if (rig_store(r, r->d, 1000 + i, i, rng_range(rng, 1, 20000)) == -EAGAIN)
			rig_work(r);
		if (rng_chance(rng, 2000))
			rig_delete(r, r->d, rng_below(rng, 60));
	}
	rig_work(r);
	rig_flush(r);
}

static struct rig *sample_pool(struct rng *rng)
{
	struct rig *r = rig_new(2, 5, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	u32 i, n = rng_range(rng, 10, 60);

	for (i = 0; i < n; i++) {
		if (rig_store(r, r->d, i, i, rng_range(rng, 1, 12000)) == -EAGAIN)
			rig_work(r);
		if (rng_chance(rng, 2000))
			rig_flush(r);
		if (rng_chance(rng, 1500))
			rig_delete(r, r->d, rng_below(rng, n));
	}
	rig_flush(r);
	rig_work(r);
	return r;
}

static void fuzz_pool(struct rng *rng)
{
	struct rig *r = sample_pool(rng);
	u32 m, s, round;

	for (round = 0; round < 3; round++) {
		rig_detach(r);
		for (m = 0; m < 2; m++)
			for (s = 0; s < 5; s++)
				mutate_log(rng, r, m, s);
		rig_recover(r);
		use_pool(r, rng);
	}
	rig_free(r);
}

/* Corpus */

static void try_file(const char *dir, const char *name)
{
	const char *suffix = strrchr(name, '.');
	u8 *buf = calloc(1, KVC_EXTENT_MAX);
	char path[512];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!buf || !f)
		abort();
	n = fread(buf, 1, KVC_EXTENT_MAX, f);
	fclose(f);
	if (!strcmp(suffix, ".super"))
		use_super(buf);
	else if (n >= KVC_BLOCK)
		use_extent(buf, (u32)n, 5, 256, 64U << 10);
	free(buf);
}

static u32 try_corpus(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	u32 n = 0;

	while (d && (e = readdir(d))) {
		const char *suffix = strrchr(e->d_name, '.');

		if (!suffix || (strcmp(suffix, ".super") && strcmp(suffix, ".extent")))
			continue;
		try_file(dir, e->d_name);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static const struct {
	const char *name;
	void	(*one)(struct rng *rng);
	u32	batch;		/* so that each kind gets about the same time */
} kinds[] = {
	{ "super", fuzz_super, 20 },
	{ "extent", fuzz_extent, 400 },
	{ "pool", fuzz_pool, 1 },
};

static u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec;
}

static void run(u32 kind, u64 *count)
{
	u64 base = seed;
	u32 i;

	what = kinds[kind].name;
	for (i = 0; i < kinds[kind].batch; i++) {
		struct rng rng = { .state = rng_mix(base * 1000 + i + 1) };

		kinds[kind].one(&rng);
		++*count;
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 't' }, { "seed", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' },    { "corpus", required_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	const char *only = NULL, *corpus = "selftests/core/corpus";
	u64 seconds = 10, end, count[ARRAY_SIZE(kinds)] = { 0 };
	u32 i, files;
	int c;

	seed = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'o')
			only = optarg;
		else if (c == 'c')
			corpus = optarg;
		else
			return 2;
	}
	harness_fail = on_fail;
	signal(SIGABRT, say_seed);
	files = try_corpus(corpus);
	end = now() + seconds;
	do {
		for (i = 0; i < ARRAY_SIZE(kinds); i++)
			if (!only || !strcmp(only, kinds[i].name))
				run(i, &count[i]);
		seed++;
	} while (now() < end);
	printf("fuzz: %llu superblocks, %llu extents, %llu pools, %u files of the corpus; up to seed %llu\n",
	       (unsigned long long)count[0], (unsigned long long)count[1], (unsigned long long)count[2], files,
	       (unsigned long long)seed);
	return 0;
}
