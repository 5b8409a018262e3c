// SPDX-License-Identifier: GPL-2.0
/*
 * The victim of the crash tests, in a guest or beside a file, or the client of a daemon that is the victim: verifies the
 * pool after a power cut, then loads it until the next.
 *
 *	crash begun ACCOUNT LIFE		exit status 0: the pool of this life has been made
 *	crash run ACCOUNT LIFE KIND ROOM	verify, then load for ever
 *	crash verify ACCOUNT LIFE KIND ROOM	verify only
 *
 * The pool's tenants are $CRASH_TENANTS, two paths (/dev/kvctx/t/default /dev/kvctx/t/b). ACCOUNT is a disk or file that
 * loses nothing, see crash_account.h. LIFE is a number, the seed of all keys and bytes. KIND is
 * "roomy": the pool never gets full, so every flushed page has to be there, and "tight": pages are evicted, so any may
 * be missing; but never is one wrong, and never is one back whose delete was flushed. In a roomy pool ROOM bytes are
 * stored, then the load stops.
 *
 * $CRASH_COMES: the directory of a pool in this process and the path of a device, which comes to that pool and goes again
 * all the time.
 *
 * Four workers, two tenants with two keyspaces each: batches of stores, deletes, replacements and loads, with a flush
 * now and then. A page's length and bytes follow from worker, key and version; the versions of a key only grow.
 *
 * Prints "verified ...", then "loading"; or what is wrong, as "FAILED ...", and ends with status 1. Where the tenants are
 * sockets the daemon's end is its own: it prints "gone" when calls or operations say so (-ENODEV), and ends with status 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "crash_account.h"
#include "kvctx.h"

#define BATCH		16U
#define SLOT		(512U << 10)	/* of the arena: longest page */
#define PAGE_OVERHEAD	512U		/* of a page on media, beside its blocks */
#define WIPE		(1U << 20)	/* of a device at both ends: superblocks are there */

struct op {
	struct crash_key after;		/* what it leads to */
	enum { LOAD, DELETE, STORE, REPLACE } what;
	int64_t deleted, res;		/* results: of the DELETE, of the others */
	uint32_t flags;
};

struct worker {
	unsigned int id;
	pthread_t thread;
	struct kvctx *ctx;
	uint8_t *arena;
	struct crash_key *keys;
	bool present[CRASH_KEYS];	/* as far as this boot knows */
	bool promise[CRASH_KEYS];	/* has changed since the last PROMISE */
	unsigned int to_promise;
	uint64_t random;
	unsigned int flush_every;	/* batches, on average */
	unsigned int pause;		/* milliseconds behind a batch, at most; 0: none */
	unsigned long pages, missing, unsure;
};

static struct crash_state state;
static struct worker workers[CRASH_WORKERS];
static uint64_t life, room;
static bool roomy, served;	/* served: by a daemon, which may end */
static uint64_t stored;		/* atomic */

static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list args;

	/* the first ends the program: nobody unlocks */
	pthread_mutex_lock(&failing);
	va_start(args, format);
	printf("FAILED ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	exit(1);
}

/* @ret: of a call or an operation */
static void end_if_gone(int64_t ret)
{
	if (!served || ret != -ENODEV)
		return;
	pthread_mutex_lock(&failing);
	puts("gone");
	exit(0);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint64_t chance(struct worker *w, uint64_t below)
{
	return mix(w->random += 0x9e3779b97f4a7c15ULL) % below;
}

/* Pages */

static uint64_t page_seed(const struct worker *w, uint32_t key, uint32_t version)
{
	return mix(life + mix(((uint64_t)w->id << 48) + ((uint64_t)key << 32) + version));
}

static struct kvctx_key page_key(const struct worker *w, uint32_t key)
{
	return kvctx_key_from_u64(mix(life + key), w->id);
}

static uint32_t page_len(const struct worker *w, uint32_t key, uint32_t version)
{
	uint64_t r = page_seed(w, key, version);
	uint32_t any = (uint32_t)(r >> 32);

	switch (r % 20) {
	case 0: case 1:
		return 1 + any % 4096;
	case 2: case 3: case 4:
		return 1 + any % SLOT;
	case 5: case 6: case 7: case 8:
		return 1 + any % (128U << 10);
	default:
		return 4096 * (1 + any % 16);
	}
}

static void page_fill(const struct worker *w, uint32_t key, uint32_t version, uint8_t *p, uint32_t len)
{
	uint64_t seed = page_seed(w, key, version), word;
	uint32_t i;

	for (i = 0; i < len; i += 8) {
		word = mix(seed += 0x9e3779b97f4a7c15ULL);
		memcpy(p + i, &word, len - i < 8 ? len - i : 8);
	}
}

static bool page_is(const struct worker *w, uint32_t key, uint32_t version, const uint8_t *p, uint32_t len)
{
	uint64_t seed = page_seed(w, key, version), word;
	uint32_t i;

	if (!version || page_len(w, key, version) != len)
		return false;
	for (i = 0; i < len; i += 8) {
		word = mix(seed += 0x9e3779b97f4a7c15ULL);
		if (memcmp(p + i, &word, len - i < 8 ? len - i : 8))
			return false;
	}
	return true;
}

/* After the power cut */

/* Nothing is here: could the key be deleted, or its page evicted? */
static void verify_missing(struct worker *w, struct crash_key *k)
{
	w->missing++;
	if (!roomy)
		return;
	if (k->least % 2 && k->most == k->least)
		fail("worker %u key %u: version %u was flushed and is missing", w->id, k->key, (k->least + 1) / 2);
	/* what recovery did not find may never come back */
	k->least = k->most - k->most % 2;
	k->most = k->least;
	k->deleted = k->least;
}

static void verify_bytes(struct worker *w, struct crash_key *k, uint32_t len)
{
	uint32_t v;

	for (v = k->version; v && !page_is(w, k->key, v, w->arena, len); v--)
		;
	if (!v)
		fail("worker %u key %u: %u wrong bytes, none of versions 1 to %u", w->id, k->key, len, k->version);
	if (2 * v - 1 < k->deleted)
		fail("worker %u key %u: version %u is back, its delete was flushed (step %u)", w->id, k->key, v,
		     k->deleted);
	if (roomy && 2 * v - 1 < k->least)
		fail("worker %u key %u: version %u is here, step %u was flushed", w->id, k->key, v, k->least);
	if (2 * v - 1 > k->most)
		fail("worker %u key %u: version %u is here, nothing after step %u was meant", w->id, k->key, v, k->most);
	if (2 * v - 1 > k->least)
		w->unsure++;
	w->pages++;
	w->present[k->key] = true;
	k->least = 2 * v - 1;
	if (roomy)
		k->most = k->least;
}

static void verify_key(struct worker *w, struct crash_key *k)
{
	struct kvctx_key key = page_key(w, k->key);
	int64_t len = kvctx_query(w->ctx, &key), got;
	uint32_t flags = 0;

	end_if_gone(len);
	if (len == -ENOENT) {
		verify_missing(w, k);
		return;
	}
	if (len < 1 || len > SLOT)
		fail("worker %u key %u: query says %lld", w->id, k->key, (long long)len);
	memset(w->arena, 0xa5, len);
	got = kvctx_load(w->ctx, &key, w->arena, len, &flags);
	end_if_gone(got);
	if (got == -ENOENT && !roomy) {
		/* evicted between the two, since an attach makes room again */
		verify_missing(w, k);
		return;
	}
	if (got != len || !(flags & KVCTX_CQE_VERIFIED))
		fail("worker %u key %u: load of %lld bytes (step %u to %u): %s", w->id, k->key, (long long)len, k->least,
		     k->most, got == len ? "not verified" : kvctx_strerror((int)got));
	verify_bytes(w, k, (uint32_t)len);
}

static void *verify(void *arg)
{
	struct worker *w = arg;
	uint32_t i;

	for (i = 0; i < CRASH_KEYS; i++)
		verify_key(w, &w->keys[i]);
	return NULL;
}

/* Under load */

static void plan(struct worker *w, uint32_t key, struct op *op)
{
	const struct crash_key *now = &w->keys[key];
	uint64_t r = chance(w, 100);

	memset(op, 0, sizeof(*op));
	op->after = *now;
	if (!w->present[key])
		op->what = STORE;
	else
		op->what = r < 35 ? LOAD : r < 65 ? DELETE : REPLACE;
	if (op->what == DELETE || op->what == REPLACE) {
		op->after.least += op->after.least % 2;
		op->after.deleted = op->after.least;
	}
	if (op->what == STORE || op->what == REPLACE) {
		op->after.version++;
		op->after.least = 2 * op->after.version - 1;
	}
	if (op->after.most < op->after.least)
		op->after.most = op->after.least;
}

/* Which keys, each once, and what with them; returns how many */
static unsigned int plan_batch(struct worker *w, struct op *ops)
{
	unsigned int nr = 1 + (unsigned int)chance(w, BATCH), i;
	uint32_t key = (uint32_t)chance(w, CRASH_KEYS);

	for (i = 0; i < nr; i++) {
		plan(w, key, &ops[i]);
		key = (key + 1 + (uint32_t)chance(w, CRASH_KEYS / BATCH)) % CRASH_KEYS;
	}
	return nr;
}

static void submit_op(struct worker *w, struct op *op, unsigned int i)
{
	struct kvctx_key key = page_key(w, op->after.key);
	uint32_t version = op->after.version, len = page_len(w, op->after.key, version);
	uint8_t *slot = w->arena + i * SLOT;
	struct kvctx_sqe *sqe;

	if (op->what == DELETE || op->what == REPLACE) {
		sqe = kvctx_get_sqe(w->ctx);
		kvctx_prep_delete(sqe, &key);
		kvctx_sqe_set_data(sqe, 2 * i);
	}
	if (op->what == DELETE)
		return;
	sqe = kvctx_get_sqe(w->ctx);
	if (op->what == LOAD) {
		len = page_len(w, op->after.key, (op->after.least + 1) / 2);
		memset(slot, 0xa5, len);
		kvctx_prep_load_at(sqe, &key, KVCTX_MEM_ARENA, i * SLOT, 0, len);
	} else {
		page_fill(w, op->after.key, version, slot, len);
		kvctx_prep_store_at(sqe, &key, KVCTX_MEM_ARENA, i * SLOT, len, 0);
	}
	kvctx_sqe_set_data(sqe, 2 * i + 1);
}

static void complete_all(struct worker *w, struct op *ops, unsigned int nr)
{
	struct kvctx_cqe cqes[2 * BATCH];
	unsigned int got, i;

	while (nr) {
		if (kvctx_wait(w->ctx, 1, KVCTX_TIMEOUT_NONE) < 0)
			fail("worker %u: wait", w->id);
		got = kvctx_take(w->ctx, cqes, 2 * BATCH);
		for (i = 0; i < got; i++) {
			struct op *op = &ops[cqes[i].user_data / 2];

			end_if_gone(cqes[i].res);
			if (cqes[i].user_data % 2) {
				op->res = cqes[i].res;
				op->flags = cqes[i].flags;
			} else {
				op->deleted = cqes[i].res;
			}
		}
		nr -= got;
	}
}

static void check_load(struct worker *w, const struct op *op, const uint8_t *slot)
{
	uint32_t key = op->after.key, version = (op->after.least + 1) / 2;

	if (!roomy && op->res == -ENOENT) {
		w->present[key] = false;
		return;
	}
	if (op->res < 0)
		fail("worker %u key %u: load of version %u: %s", w->id, key, version, kvctx_strerror((int)op->res));
	if (!(op->flags & KVCTX_CQE_VERIFIED) || !page_is(w, key, version, slot, (uint32_t)op->res))
		fail("worker %u key %u: load of version %u: wrong bytes", w->id, key, version);
}

/* What the operation led to, given its results */
static void settle(struct worker *w, const struct op *op, const uint8_t *slot)
{
	struct crash_key *k = &w->keys[op->after.key];
	bool deletes = op->what == DELETE || op->what == REPLACE, stores = op->what == STORE || op->what == REPLACE;
	bool evicted = !roomy && deletes && op->deleted == -ENOENT;
	uint32_t was = k->deleted;

	if (op->what == LOAD) {
		check_load(w, op, slot);
		return;
	}
	if (deletes && op->deleted && !evicted)
		fail("worker %u key %u: delete: %s", w->id, k->key, kvctx_strerror((int)op->deleted));
	if (stores && (op->res != page_len(w, k->key, op->after.version) || op->flags & KVCTX_CQE_DEDUP))
		fail("worker %u key %u: store: %s", w->id, k->key,
		     op->res < 0 ? kvctx_strerror((int)op->res) : "took it for a duplicate");
	w->present[k->key] = stores;
	if (evicted && !stores)
		return;
	*k = op->after;
	if (evicted)
		k->deleted = was;
	if (!w->promise[k->key]) {
		w->promise[k->key] = true;
		w->to_promise++;
	}
}

static uint64_t media_bytes(const struct worker *w, const struct op *ops, unsigned int nr)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (ops[i].what == STORE || ops[i].what == REPLACE)
			sum += ((page_len(w, ops[i].after.key, ops[i].after.version) + 4095) & ~4095U);
		sum += PAGE_OVERHEAD;
	}
	return sum;
}

/* Flush, and say what that promises. False: the account is full */
static bool flush(struct worker *w)
{
	struct crash_key keys[CRASH_KEYS];
	unsigned int i, nr = 0;
	int ret = kvctx_flush(w->ctx);

	end_if_gone(ret);
	if (ret)
		fail("worker %u: flush: %s", w->id, kvctx_strerror(ret));
	for (i = 0; i < CRASH_KEYS; i++) {
		if (w->promise[i])
			keys[nr++] = w->keys[i];
		w->promise[i] = false;
	}
	w->to_promise = 0;
	return account_append(CRASH_PROMISE, w->id, keys, nr, 0);
}

/* One batch; false: there is no room for more */
static bool batch(struct worker *w)
{
	struct crash_key keys[BATCH];
	struct op ops[BATCH];
	unsigned int nr = plan_batch(w, ops), nr_cqes = 0, i;
	uint64_t bytes = media_bytes(w, ops, nr);
	int ret;

	if (roomy && __atomic_add_fetch(&stored, bytes, __ATOMIC_RELAXED) > room)
		return false;
	for (i = 0; i < nr; i++)
		keys[i] = ops[i].after;
	if (!account_append(CRASH_INTENT, w->id, keys, nr, bytes))
		return false;
	for (i = 0; i < nr; i++) {
		submit_op(w, &ops[i], i);
		nr_cqes += ops[i].what == REPLACE ? 2 : 1;
	}
	ret = kvctx_submit(w->ctx);
	end_if_gone(ret);
	if (ret != (int)nr_cqes)
		fail("worker %u: submit", w->id);
	complete_all(w, ops, nr_cqes);
	for (i = 0; i < nr; i++)
		settle(w, &ops[i], w->arena + i * SLOT);
	if (!chance(w, w->flush_every) || w->to_promise > CRASH_KEYS / 2)
		if (!flush(w))
			return false;
	if (w->pause)
		usleep((unsigned int)chance(w, w->pause * 1000));
	return true;
}

static void *load(void *arg)
{
	struct worker *w = arg;

	while (batch(w))
		;
	return NULL;
}

/* A member that comes and goes */

/* What it has of a superblock, as it was about to come when the power went: an operator would say --force */
static void wipe(const char *path)
{
	uint8_t *zeros = calloc(1, WIPE);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	off_t end = lseek(fd, 0, SEEK_END);

	if (pwrite(fd, zeros, WIPE, 0) != WIPE || pwrite(fd, zeros, WIPE, end - WIPE) != WIPE || fsync(fd))
		fail("%s: wipe", path);
	close(fd);
	free(zeros);
}

static void *come_and_go(void *arg)
{
	char dir[256], path[256];
	unsigned int pause = 1;
	int ret;

	if (sscanf(arg, "%255s %255s", dir, path) != 2)
		fail("CRASH_COMES");
	for (;;) {
		ret = kvctx_pool_remove(dir, path, 0);
		if (ret && ret != -ENOENT)
			fail("remove: %s", kvctx_strerror(ret));
		usleep(pause * 1000);
		ret = kvctx_pool_add(dir, path, 0);
		if (ret == -EEXIST || ret == -EUCLEAN) {
			wipe(path);
			ret = kvctx_pool_add(dir, path, 0);
		}
		if (ret)
			fail("add: %s", kvctx_strerror(ret));
		usleep(pause * 1000);
		pause = pause * 7 % 101;
	}
	return NULL;
}

static void begin_coming_and_going(void)
{
	char *env = getenv("CRASH_COMES");
	pthread_t thread;

	if (env && pthread_create(&thread, NULL, come_and_go, env))
		fail("thread");
}

/* The whole */

/* Tenant 0 or 1 */
static const char *tenant(unsigned int i)
{
	static char paths[2][256];
	const char *env = getenv("CRASH_TENANTS");

	if (!*paths[0] && sscanf(env ? env : "/dev/kvctx/t/default /dev/kvctx/t/b", "%255s %255s", paths[0], paths[1]) != 2)
		fail("CRASH_TENANTS");
	return paths[i];
}

static void open_worker(struct worker *w, unsigned int id)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = BATCH * SLOT, .cq_entries = 4 * BATCH };
	const char *node = tenant(id % 2);
	struct timespec now;
	int ret;

	w->id = id;
	w->keys = state.keys[id];
	memset(p.keyspace, (int)(1 + id / 2), sizeof(p.keyspace));
	ret = kvctx_open(node, O_RDWR, &p, &w->ctx);
	end_if_gone(ret);
	if (ret)
		fail("%s: %s", node, kvctx_strerror(ret));
	w->arena = kvctx_arena(w->ctx, NULL);
	clock_gettime(CLOCK_REALTIME, &now);
	w->random = mix(life + (uint64_t)now.tv_nsec + id);
	w->flush_every = (unsigned int[]){ 1, 2, 5, 20 }[chance(w, 4)];
	w->pause = (unsigned int[]){ 0, 0, 20, 100 }[chance(w, 4)];
}

static bool is_socket(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISSOCK(st.st_mode);
}

/* There is nothing to do but to be killed, or to see the daemon's end */
static void rest(void)
{
	struct kvctx_key key = page_key(&workers[0], 0);

	while (served) {
		end_if_gone(kvctx_query(workers[0].ctx, &key));
		usleep(10000);
	}
	pause();
}

static void in_all(void *(*run)(void *))
{
	unsigned int i;

	for (i = 0; i < CRASH_WORKERS; i++)
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			fail("thread");
	for (i = 0; i < CRASH_WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
}

static void say_verified(void)
{
	unsigned long pages = 0, missing = 0, unsure = 0;
	unsigned int i;

	for (i = 0; i < CRASH_WORKERS; i++) {
		pages += workers[i].pages;
		missing += workers[i].missing;
		unsure += workers[i].unsure;
	}
	printf("verified %lu pages, %lu of them newer than promised, %lu absent\n", pages, unsure, missing);
}

int main(int argc, char **argv)
{
	bool begun;
	unsigned int i, k;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc < 4) {
		fprintf(stderr, "usage: crash begun|run|verify ACCOUNT LIFE [roomy|tight ROOM]\n");
		return 2;
	}
	life = strtoull(argv[3], NULL, 0);
	account_open(argv[2], life);
	begun = account_read(&state);
	if (!strcmp(argv[1], "begun") || argc < 6)
		return !begun;
	roomy = !strcmp(argv[4], "roomy");
	room = strtoull(argv[5], NULL, 0);
	served = is_socket(tenant(0));
	for (i = 0; i < CRASH_WORKERS; i++) {
		for (k = 0; k < CRASH_KEYS; k++)
			state.keys[i][k].key = k;
		open_worker(&workers[i], i);
	}
	in_all(verify);
	say_verified();
	if (!strcmp(argv[1], "verify"))
		return 0;
	stored = state.stored;
	account_begin(&state);
	begin_coming_and_going();
	puts("loading");
	in_all(load);
	puts("full");
	rest();
	return 0;
}
