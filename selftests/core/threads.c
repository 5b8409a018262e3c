// SPDX-License-Identifier: GPL-2.0
/*
 * Threads: users store, load, match, lease, delete, flush and listen at once, a worker for each member does its work, another
 * thread adds and removes tenants, another one members, and late in the run a member fails. Made for ThreadSanitizer;
 * finds its own wrong bytes and hangs too.
 *
 *	core-threads [--seconds S] [--users N]
 *
 * Members are plain memory, so that two threads in the same bytes are a data race that the sanitizer sees. The bytes
 * of a page follow from its key and tenant, since who stored it last cannot be known.
 */
#include <getopt.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "page.h"
#include "rng.h"
#include "threads.h"

#define MEMBERS		2U		/* in the beginning */
#define PLACES		16U
#define SEGMENTS	24U
#define KEYS		600U
#define PATIENCE	20		/* seconds without space are a hang */
#define MATCHED		16U
#define DISCARD_MAX	(96U << 10)

struct member {
	u8	*media;
	pthread_mutex_t work;		/* who executes work of this member */
	pthread_mutex_t lock;
	pthread_cond_t kicked_cond;
	bool	kicked;
};

static struct member members[PLACES];
static struct kvc_pool *pool;
static bool stop_users, stop_workers;		/* atomic */
static u64 stores, loads, matches, deletes, flushes, waits, removed, events, wakes, watched, watch_wakes;	/* atomic */

static pthread_mutex_t space_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t space_cond = PTHREAD_COND_INITIALIZER;
static u64 spaces;

static void fail(const char *what, u64 n)
{
	fprintf(stderr, "threads: %s (%llu)\n", what, (unsigned long long)n);
	abort();
}

static void count(u64 *n)
{
	__atomic_add_fetch(n, 1, __ATOMIC_RELAXED);
}

static bool is_set(const bool *b)
{
	return __atomic_load_n(b, __ATOMIC_ACQUIRE);
}

static void on_kick(void *owner, u32 member)
{
	struct member *m = &members[member];

	(void)owner;
	pthread_mutex_lock(&m->lock);
	m->kicked = true;
	pthread_cond_signal(&m->kicked_cond);
	pthread_mutex_unlock(&m->lock);
}

static void on_space(void *owner)
{
	(void)owner;
	pthread_mutex_lock(&space_lock);
	spaces++;
	pthread_cond_broadcast(&space_cond);
	pthread_mutex_unlock(&space_lock);
}

static const struct kvc_ops ops = { on_kick, on_space };

static u64 space_count(void)
{
	u64 n;

	pthread_mutex_lock(&space_lock);
	n = spaces;
	pthread_mutex_unlock(&space_lock);
	return n;
}

static void wait_for_space(u64 seen)
{
	struct timespec until;
	int r = 0;

	count(&waits);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	pthread_mutex_lock(&space_lock);
	while (spaces == seen && !r && !is_set(&stop_users))
		r = pthread_cond_timedwait(&space_cond, &space_lock, &until);
	pthread_mutex_unlock(&space_lock);
	if (r)
		fail("nobody told of space", seen);
}

/* Workers */

static int do_move(const struct kvc_work *w)
{
	u32 chunk = kvc_chunk_size(pool), i;
	u8 *copy = malloc(w->len);
	int err = 0;

	if (!copy)
		abort();
	memcpy(copy, members[w->src_member].media + w->src_offset, w->len);
	for (i = 0; i < w->nr_chunks; i++)
		if (page_crc(copy + i * chunk, min(chunk, w->len - i * chunk)) != kvc_work_crc(pool, w, i))
			fail("a page to be moved is damaged", w->src_offset);
	memcpy(members[w->member].media + w->offset, copy, w->len);
	free(copy);
	return err;
}

static int execute(const struct kvc_work *w)
{
	struct member *m = &members[w->member];

	switch (w->type) {
	case KVC_WORK_WRITE:
		memcpy(m->media + w->offset, w->buf, w->len);
		return 0;
	case KVC_WORK_DISCARD:
		memset(m->media + w->offset, 0, w->discard_len);
		return 0;
	case KVC_WORK_MOVE:
		return do_move(w);
	}
	return -EINVAL;
}

static bool work_once(u32 member, bool flush)
{
	struct kvc_work w;
	int r;

	r = flush ? kvc_flush_next(pool, member, &w) : kvc_work_next(pool, member, &w);
	if (r == 0 && !flush)
		r = kvc_discard_next(pool, member, DISCARD_MAX, &w);
	if (r < 0)
		fail("next work", (u64)-r);
	if (r == 1)
		kvc_work_done(pool, &w, execute(&w));
	return r == 1;
}

static bool await_kick(struct member *m)
{
	bool stop;

	pthread_mutex_lock(&m->lock);
	while (!m->kicked && !is_set(&stop_workers))
		pthread_cond_wait(&m->kicked_cond, &m->lock);
	m->kicked = false;
	stop = is_set(&stop_workers);
	pthread_mutex_unlock(&m->lock);
	return !stop;
}

static void *worker(void *arg)
{
	u32 member = (u32)(uintptr_t)arg;
	bool more;

	while (await_kick(&members[member])) {
		do {
			pthread_mutex_lock(&members[member].work);
			more = work_once(member, false);
			pthread_mutex_unlock(&members[member].work);
		} while (more);
	}
	return NULL;
}

static void flush(void)
{
	u32 nr = kvc_nr_members(pool), i;
	u64 marks[PLACES];

	for (i = 0; i < nr; i++)
		marks[i] = kvc_flush_mark(pool, i);
	for (i = 0; i < nr; i++) {
		while (!kvc_flushed(pool, i, marks[i])) {
			pthread_mutex_lock(&members[i].work);
			work_once(i, true);
			pthread_mutex_unlock(&members[i].work);
		}
	}
	count(&flushes);
}

/* Users */

struct user {
	pthread_t thread;
	struct rng rng;
	u32	slot;
	bool	strict;		/* its tenant stays */
};

static u64 version_of(const struct user *u, u32 id)
{
	return (u64)u->slot << 32 | id;
}

static u32 length_of(u32 id)
{
	return 1 + id * 37 % 30000;
}

static void store_page(struct user *u, const struct kvc_store *st, u32 id)
{
	u32 chunk = kvc_chunk_size(pool), i, len;
	u8 *at = members[st->member].media + st->offset;

	page_bytes(at, version_of(u, id), 0, st->length);
	for (i = 0; i < st->nr_chunks; i++) {
		len = min(chunk, st->length - i * chunk);
		kvc_store_crc(pool, st, i, page_crc(at + i * chunk, len));
	}
}

static void user_store(struct user *u, struct kvc_domain *d, u32 id)
{
	u8 key[KVC_KEY_LEN];
	struct kvc_store st;
	u64 seen;
	int r;

	key_make(key, id);
	do {
		seen = space_count();
		r = kvc_store_begin(pool, d, key, length_of(id), id, KVC_ANY_MEMBER, &st);
		if (r == -EAGAIN)
			wait_for_space(seen);
	} while (r == -EAGAIN && !is_set(&stop_users));
	if (r == 0) {
		store_page(u, &st, id);
		if (rng_chance(&u->rng, 300))
			kvc_store_abort(pool, &st);
		else
			kvc_store_commit(pool, &st);
		count(&stores);
	} else if (r != -EEXIST && r != -EINPROGRESS && r != -EAGAIN && r != -ENODEV && r != -ENOSPC) {
		fail("store", (u64)-r);
	}
}

static void user_load(struct user *u, struct kvc_domain *d, u32 id)
{
	u32 chunk = kvc_chunk_size(pool), i, len;
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	const u8 *at;
	int r;

	key_make(key, id);
	r = kvc_load_begin(pool, d, key, &ld);
	if (r == -ENOENT || r == -ENODEV)
		return;
	if (r || ld.length != length_of(id))
		fail("load", (u64)-r);
	at = members[ld.member].media + ld.offset;
	for (i = 0; i < ld.nr_chunks; i++) {
		len = min(chunk, ld.length - i * chunk);
		if (page_crc(at + i * chunk, len) != kvc_load_crc(pool, &ld, i))
			fail("damaged page", id);
	}
	if (page_compare(at, version_of(u, id), 0, ld.length) != ld.length)
		fail("wrong bytes", id);
	kvc_load_end(pool, &ld, 0);
	count(&loads);
}

static void user_match(struct user *u, struct kvc_domain *d, u32 id)
{
	u8 keys[MATCHED][KVC_KEY_LEN];
	struct kvc_lease leases[MATCHED];
	bool lease = rng_chance(&u->rng, 5000);
	u32 lens[MATCHED], i, n;

	for (i = 0; i < MATCHED; i++)
		key_make(keys[i], (id + i) % KEYS);
	n = kvc_match(pool, d, (const u8 (*)[KVC_KEY_LEN])keys, MATCHED, NULL, lens, lease ? leases : NULL);
	for (i = 0; i < n; i++)
		if (lens[i] != length_of((id + i) % KEYS))
			fail("match: length", lens[i]);
	/* Leased pages stay, unless somebody deletes them: read them all. */
	for (i = 0; i < n && lease; i++)
		user_load(u, d, (id + i) % KEYS);
	for (i = 0; i < n && lease; i++)
		kvc_lease_put(pool, &leases[i]);
	count(&matches);
}

static void user_step(struct user *u, struct kvc_domain *d)
{
	u32 n = rng_below(&u->rng, 100), id = rng_below(&u->rng, KEYS);
	u8 key[KVC_KEY_LEN];
	int r;

	if (n < 40) {
		user_store(u, d, id);
	} else if (n < 70) {
		user_load(u, d, id);
	} else if (n < 75) {
		key_make(key, id);
		r = kvc_query(pool, d, key);
		if (r != (int)length_of(id) && r != -ENOENT && r != -ENODEV)
			fail("query", (u64)r);
	} else if (n < 85) {
		user_match(u, d, id);
	} else if (n < 99) {
		key_make(key, id);
		r = kvc_delete(pool, d, key);
		if (r && r != -ENOENT && r != -EAGAIN && r != -ENOSPC && r != -ENODEV)
			fail("delete", (u64)-r);
		count(&deletes);
	} else {
		flush();
	}
}

static void on_event(struct kvc_listener *l)
{
	(void)l;
	count(&wakes);
}

/* No lock is held, so it may do as it likes. */
static bool hear(void *arg, const struct kvc_event *told, u32 nr)
{
	u32 i;

	(void)arg;
	for (i = 0; i < nr; i++) {
		bool lost = told[i].kind == KVC_EVENT_MEMBER_LOST;

		if (told[i].kind < KVC_EVENT_STORED || told[i].kind > KVC_EVENT_MEMBER_LOST || !told[i].length != lost)
			fail("event", told[i].kind);
		count(&events);
	}
	return true;
}

static void on_watched(struct kvc_watcher *w)
{
	(void)w;
	count(&watch_wakes);
}

/* From time to time nobody watches. */
static void *watch(void *arg)
{
	static struct kvc_watcher w = { .wake = on_watched };
	struct kvc_watched some[16];
	u64 lost = 0;
	u32 i, n, round;

	(void)arg;
	while (!is_set(&stop_users)) {
		kvc_watch(pool, &w);
		for (round = 0; round < 10 && !is_set(&stop_users); round++) {
			n = kvc_watched_take(pool, &w, some, ARRAY_SIZE(some), &lost);
			for (i = 0; i < n; i++) {
				if (!some[i].event.length || some[i].event.kind >= KVC_EVENT_MEMBER_LOST)
					fail("watched", some[i].event.kind);
				count(&watched);
			}
			usleep(1000);
		}
		kvc_unwatch(pool);
		memset(&w.ring, 0, sizeof(w.ring));
	}
	return NULL;
}

/* Keyspaces of no pages, which their sessions make and unmake */
static void visit(struct user *u)
{
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;
	int ret;

	keyspace_make(keyspace, 1 + rng_below(&u->rng, 3));
	ret = kvc_domain_open(pool, u->slot, keyspace, &d);
	if (!ret)
		kvc_domain_put(pool, d);
	else if (u->strict || ret != -ENODEV)
		fail("no keyspace", u->slot);
}

static void *user(void *arg)
{
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_listener l = { .wake = on_event };
	u64 lost;
	struct user *u = arg;
	struct kvc_domain *d;

	keyspace_make(keyspace, 0);
	while (!is_set(&stop_users)) {
		if (kvc_domain_open(pool, u->slot, keyspace, &d)) {
			if (u->strict)
				fail("no domain", u->slot);
			continue;
		}
		if (kvc_listen(pool, d, &l))
			abort();
		/* A session of some operations, then another */
		for (u32 i = 0; i < 50 && !is_set(&stop_users); i++) {
			user_step(u, d);
			visit(u);
			if (i % 8 == 7)
				kvc_events_take(&l, 100, &lost, hear, NULL);
		}
		kvc_unlisten(pool, &l);
		kvc_domain_put(pool, d);
	}
	return NULL;
}

/* What changes or looks at the superblock: one at a time, as its functions want it */
static pthread_mutex_t super_lock = PTHREAD_MUTEX_INITIALIZER;

static u32 add_member(u8 uuid)
{
	u8 whole[KVC_UUID_LEN] = { 1, uuid };
	int n;

	pthread_mutex_lock(&super_lock);
	n = kvc_member_add(pool, whole, SEGMENTS);
	pthread_mutex_unlock(&super_lock);
	if (n < 0 || n >= (int)PLACES)
		fail("member add", (u64)-n);
	members[n].media = calloc(1, kvc_device_bytes(SEGMENTS, KVC_SEGMENT_MIN));
	if (!members[n].media)
		abort();
	pthread_mutex_lock(&super_lock);
	kvc_member_join(pool, (u32)n);
	pthread_mutex_unlock(&super_lock);
	return (u32)n;
}

/* False when it cannot leave any more: another one is lost. */
static bool remove_member(u32 n, bool move)
{
	pthread_mutex_lock(&super_lock);
	if (kvc_member_leave(pool, n, move))
		fail("member leave", n);
	pthread_mutex_unlock(&super_lock);
	while (!kvc_member_left(pool, n)) {
		if (!kvc_member_leaves(pool, n) || is_set(&stop_users))
			return false;
		usleep(1000);
	}
	flush();
	if (!kvc_member_left(pool, n))
		return false;
	pthread_mutex_lock(&super_lock);
	kvc_member_remove(pool, n);
	kvc_member_forget(pool, n);
	pthread_mutex_unlock(&super_lock);
	count(&removed);
	return true;
}

static void *grow(void *arg)
{
	bool more = true;
	u32 i, n;

	(void)arg;
	for (i = MEMBERS; i < PLACES && more && !is_set(&stop_users); i++) {
		n = add_member((u8)i);
		usleep(100000);
		more = remove_member(n, i % 3);
	}
	return NULL;
}

static void *control(void *arg)
{
	struct kvc_stats st;
	u32 total, free, round = 0;
	int slot;

	(void)arg;
	while (!is_set(&stop_users)) {
		/* a little less than there is, now and then */
		kvc_index_limit(pool, round++ % 3 ? 0 : kvc_index_bytes(pool) / 100 * 97);
		pthread_mutex_lock(&super_lock);
		slot = kvc_tenant_add(pool, "guest", 0, 0, 0600, 0);
		pthread_mutex_unlock(&super_lock);
		if (slot != 1)
			fail("tenant add", (u64)slot);
		usleep(20000);
		kvc_stats_get(pool, &st);
		if (st.pages > KEYS * 2)
			fail("pages", st.pages);
		kvc_member_segments(pool, 0, &total, &free);
		pthread_mutex_lock(&super_lock);
		if (kvc_tenant_remove(pool, "guest"))
			fail("tenant remove", 0);
		kvc_tenants_gone(pool);
		pthread_mutex_unlock(&super_lock);
		usleep(5000);
	}
	kvc_index_limit(pool, 0);
	return NULL;
}

static void make_pool(void)
{
	struct kvc_super *s = calloc(1, sizeof(*s));
	struct kvc_recover rec;
	u32 i;

	if (!s)
		abort();
	s->seq = 1;
	strcpy(s->pool_name, "threads");
	s->segment_size = KVC_SEGMENT_MIN;
	s->chunk_size = KVC_CHUNK_MIN;
	s->nr_members = MEMBERS;
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	for (i = 0; i < MEMBERS; i++) {
		s->members[i].uuid[0] = (u8)i;
		s->members[i].nr_segments = SEGMENTS;
		members[i].media = calloc(1, kvc_device_bytes(SEGMENTS, s->segment_size));
		if (!members[i].media)
			abort();
	}
	for (i = 0; i < PLACES; i++) {
		pthread_mutex_init(&members[i].work, NULL);
		pthread_mutex_init(&members[i].lock, NULL);
		pthread_cond_init(&members[i].kicked_cond, NULL);
	}
	if (kvc_pool_create(s, 7, &ops, NULL, &pool))
		fail("pool create", 0);
	for (i = 0; i < MEMBERS * kvc_nr_segments(pool, 0); i++) {
		kvc_recover_start(pool, i % MEMBERS, i / MEMBERS, &rec);
		if (kvc_recover_feed(pool, &rec, members[rec.member].media + rec.offset, 0))
			fail("recovery", i);
	}
	kvc_recover_finish(pool);
	free(s);
}

static void set(bool *b)
{
	__atomic_store_n(b, true, __ATOMIC_RELEASE);
}

static void run(u32 nr_users, u32 seconds)
{
	struct user *users = calloc(nr_users, sizeof(*users));
	pthread_t workers[PLACES], controller, grower, watcher;
	u32 i;

	if (!users)
		abort();
	for (i = 0; i < PLACES; i++)
		pthread_create(&workers[i], NULL, worker, (void *)(uintptr_t)i);
	pthread_create(&controller, NULL, control, NULL);
	pthread_create(&grower, NULL, grow, NULL);
	pthread_create(&watcher, NULL, watch, NULL);
	for (i = 0; i < nr_users; i++) {
		users[i].rng.state = i + 1;
		users[i].slot = i % 4 == 3;
		users[i].strict = users[i].slot == 0;
		pthread_create(&users[i].thread, NULL, user, &users[i]);
	}
	usleep(seconds * 800000U);
	kvc_member_fail(pool, 1);
	usleep(seconds * 200000U);
	set(&stop_users);
	on_space(NULL);
	for (i = 0; i < nr_users; i++)
		pthread_join(users[i].thread, NULL);
	pthread_join(controller, NULL);
	pthread_join(grower, NULL);
	pthread_join(watcher, NULL);
	set(&stop_workers);
	for (i = 0; i < PLACES; i++) {
		on_kick(NULL, i);
		pthread_join(workers[i], NULL);
	}
	free(users);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 't' }, { "users", required_argument, NULL, 'u' },
		{ NULL, 0, NULL, 0 },
	};
	u32 seconds = 5, users = 6, i;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 't')
			seconds = (u32)atoi(optarg);
		else if (c == 'u')
			users = (u32)atoi(optarg);
		else
			return 2;
	}
	threads_index();
	make_pool();
	run(users, seconds);
	kvc_pool_destroy(pool);
	for (i = 0; i < PLACES; i++)
		free(members[i].media);
	printf("threads: %llu stores, %llu loads, %llu matches, %llu deletes, %llu flushes, %llu waits,"
	       " %llu members removed, %llu events, %llu wakes, %llu watched, %llu wakes\n",
	       (unsigned long long)stores, (unsigned long long)loads, (unsigned long long)matches,
	       (unsigned long long)deletes, (unsigned long long)flushes, (unsigned long long)waits,
	       (unsigned long long)removed, (unsigned long long)events, (unsigned long long)wakes,
	       (unsigned long long)watched, (unsigned long long)watch_wakes);
	if (!stores || !loads || !matches || !deletes || !flushes || !events || !wakes || !watched || !watch_wakes)
		fail("something never happened", 0);
	return 0;
}
