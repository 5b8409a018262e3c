// SPDX-License-Identifier: GPL-2.0
/*
 * How fast pages are stored and loaded: a figure to hold beside fio on the same device, in the same guest.
 *
 *	throughput PAGE-BYTES DEPTH SECONDS [noverify] [threads=N]
 *
 * Stores a working set of 256 MiB (at least DEPTH pages) once, then loads random pages of it with DEPTH operations in
 * flight on each of N sessions. Prints "store MB/s: N" and "load MB/s: N ops/s: N us: N"; exits 1 if any load was wrong.
 */
#include <pthread.h>

#include "ktest.h"

#define WORKING_SET (256 * KT_MIB)

static struct {
	uint32_t page, depth, seconds, threads, pages;
	uint32_t flags;
} cfg;

struct worker {
	pthread_t thread;
	struct kt k;
	uint64_t loads, ns, seed;
	int err;
};

static struct kvctx_key page_key(uint64_t n)
{
	struct kvctx_key key = { .digest = "throughput", .qualifier = n };

	memcpy(key.digest + 16, &cfg.page, sizeof(cfg.page));
	return key;
}

static uint64_t slot_at(uint32_t slot)
{
	return (uint64_t)slot * ((cfg.page + 4095) & ~4095U);
}

static int queue(struct kt *k, int op, const uint64_t *page, const uint32_t *slot, uint32_t nr)
{
	static __thread struct kvctx_sqe sqes[256];
	static __thread struct kvctx_seg segs[256];

	for (uint32_t i = 0; i < nr; i++) {
		segs[i] = kt_seg(KVCTX_MEM_ARENA, slot_at(slot[i]), cfg.page);
		sqes[i] = kt_io(op, page_key(page[i]), &segs[i], 1);
		sqes[i].flags = op == KVCTX_OP_LOAD ? cfg.flags : 0;
		sqes[i].user_data = page[i] << 32 | slot[i];
	}
	return kt_submit(k, sqes, nr, 0) == (int)nr ? 0 : -EPROTO;
}

/* Wait for one at least; gives back its slots. Returns how many, or an error. */
static int reap(struct kt *k, uint32_t *slot, uint64_t *page)
{
	struct kvctx_cqe cqe;
	int n = 0;

	if (kt_wait(k, 1, KT_LIMIT) < 1)
		return -ETIME;
	for (; kt_reap(k, &cqe); n++) {
		if (cqe.res != (int)cfg.page)
			return cqe.res < 0 ? cqe.res : -EPROTO;
		slot[n] = cqe.user_data & 0xffffffff;
		page[n] = cqe.user_data >> 32;
	}
	return n;
}

static int store_all(struct kt *k)
{
	uint32_t slot[256], nr = cfg.depth, inflight = 0;
	uint64_t page[256], next = 0;
	int ret = 0;

	for (uint32_t i = 0; i < nr; i++)
		slot[i] = i;
	while (next < cfg.pages || inflight) {
		uint32_t n = nr < cfg.pages - next ? nr : cfg.pages - next;

		for (uint32_t i = 0; i < n; i++) {
			page[i] = next++;
			kt_fill(k->arena + slot_at(slot[i]), 64, page[i]);
		}
		if (n)
			ret = queue(k, KVCTX_OP_STORE, page, slot, n);
		inflight += n;
		ret = ret ? ret : reap(k, slot, page);
		if (ret < 0)
			return ret;
		nr = ret;
		inflight -= nr;
		ret = 0;
	}
	return 0;
}

static void *load_some(void *arg)
{
	struct worker *w = arg;
	uint32_t slot[256], nr = cfg.depth;
	uint64_t page[256], start = kt_now(), end = start + cfg.seconds * KT_SEC;

	for (uint32_t i = 0; i < nr; i++)
		slot[i] = i;
	while (kt_now() < end) {
		for (uint32_t i = 0; i < nr; i++) {
			w->seed = w->seed * 6364136223846793005ULL + 1442695040888963407ULL;
			page[i] = (w->seed >> 33) % cfg.pages;
		}
		w->err = queue(&w->k, KVCTX_OP_LOAD, page, slot, nr);
		if (w->err)
			break;
		w->err = reap(&w->k, slot, page);
		if (w->err < 0)
			break;
		nr = w->err;
		w->err = 0;
		w->loads += nr;
		for (uint32_t i = 0; i < nr; i++)
			if (kt_check(w->k.arena + slot_at(slot[i]), cfg.page < 64 ? cfg.page : 64, page[i]) != -1)
				w->err = -EBADMSG;
		if (w->err)
			break;
	}
	w->ns = kt_now() - start;
	return NULL;
}

static int parse(int argc, char **argv)
{
	if (argc < 4)
		return -EINVAL;
	cfg.page = strtoul(argv[1], NULL, 0);
	cfg.depth = strtoul(argv[2], NULL, 0);
	cfg.seconds = strtoul(argv[3], NULL, 0);
	cfg.threads = 1;
	for (int i = 4; i < argc; i++) {
		if (!strcmp(argv[i], "noverify"))
			cfg.flags = KVCTX_OP_NO_VERIFY;
		else if (sscanf(argv[i], "threads=%u", &cfg.threads) != 1)
			return -EINVAL;
	}
	if (!cfg.page || !cfg.depth || cfg.depth > 256 || !cfg.seconds || !cfg.threads || cfg.threads > 16)
		return -EINVAL;
	cfg.pages = WORKING_SET / cfg.page > cfg.depth ? WORKING_SET / cfg.page : cfg.depth;
	return 0;
}

int main(int argc, char **argv)
{
	static struct worker w[16];
	double mb, s = 0;
	uint64_t loads = 0, t;
	int err;

	if (parse(argc, argv)) {
		fprintf(stderr, "usage: throughput PAGE-BYTES DEPTH(1..256) SECONDS [noverify] [threads=N]\n");
		return 2;
	}
	for (uint32_t i = 0; i < cfg.threads; i++) {
		w[i].seed = i + 1;
		err = kt_open(&w[i].k, O_RDWR, 0x55, slot_at(cfg.depth), 512);
		if (err) {
			fprintf(stderr, "throughput: %s: %s\n", kt_node(), strerror(-err));
			return 1;
		}
	}
	t = kt_now();
	err = store_all(&w[0].k);
	if (err) {
		fprintf(stderr, "throughput: store: %s\n", strerror(-err));
		return 1;
	}
	mb = (double)cfg.page * cfg.pages / 1e6;
	printf("store MB/s: %.0f\n", mb / ((kt_now() - t) / 1e9));
	for (uint32_t i = 0; i < cfg.threads; i++)
		pthread_create(&w[i].thread, NULL, load_some, &w[i]);
	for (uint32_t i = 0; i < cfg.threads; i++) {
		pthread_join(w[i].thread, NULL);
		loads += w[i].loads;
		s = w[i].ns / 1e9 > s ? w[i].ns / 1e9 : s;
		if (w[i].err) {
			fprintf(stderr, "throughput: load: %s\n", strerror(-w[i].err));
			err = 1;
		}
	}
	printf("load MB/s: %.0f ops/s: %.0f us: %.0f\n", loads * (double)cfg.page / 1e6 / s, loads / s,
	       s * 1e6 * cfg.depth * cfg.threads / (loads ? loads : 1));
	return !!err;
}
