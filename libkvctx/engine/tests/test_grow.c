// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Members that come and go while the pool is in use: what is refused, where pages go, and that the power may go at any
 * moment.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvctx.h"
#include "rig.h"

int __real_symlink(const char *to, const char *path);
int __wrap_symlink(const char *to, const char *path);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_kve_thread_start(pthread_t *t, void *(*fn)(void *arg), void *arg, const char *name);
int __wrap_kve_thread_start(pthread_t *t, void *(*fn)(void *arg), void *arg, const char *name);
int __real_linkat(int from, const char *a, int to, const char *b, int flags);
int __wrap_linkat(int from, const char *a, int to, const char *b, int flags);

int __wrap_symlink(const char *to, const char *path)
{
	return rig_dark() ? 0 : __real_symlink(to, path);
}

static bool no_unlink;

int __wrap_unlink(const char *path)
{
	if (no_unlink) {
		errno = EROFS;
		return -1;
	}
	return rig_dark() ? 0 : __real_unlink(path);
}

int __wrap_linkat(int from, const char *a, int to, const char *b, int flags)
{
	return rig_dark() ? 0 : __real_linkat(from, a, to, b, flags);
}

static bool no_threads;

int __wrap_kve_thread_start(pthread_t *t, void *(*fn)(void *arg), void *arg, const char *name)
{
	return no_threads ? -EAGAIN : __real_kve_thread_start(t, fn, arg, name);
}

/* A file that is nobody's, outside of what an attach looks at */
static const char *elsewhere(const char *name, u64 bytes)
{
	const char *path = rig_path(name);

	mkdir(rig_path(".out"), 0700);
	rig_file(path, "", 0, bytes);
	return path;
}

static bool exists(const char *name)
{
	struct stat st;

	return !lstat(rig_path(name), &st);
}

static void add(struct kve_pool *p, const char *path, u64 bytes)
{
	int err = kve_pool_add(p, path, bytes, false, rig_why);

	if (err)
		fail_msg("add: %s (%s)", rig_why, strerror(-err));
}

static void remove_begun(struct kve_pool *p, u32 member, bool move)
{
	int err = kve_pool_remove(p, member, move, rig_why);

	if (err)
		fail_msg("remove: %s (%s)", rig_why, strerror(-err));
}

/* A hang is a failure of the rig's */
static void remove_now(struct kve_pool *p, u32 member, bool move)
{
	remove_begun(p, member, move);
	while (!(rig_state(p, member) & KVE_MEMBER_REMOVED))
		usleep(1000);
}

static void refused(struct kve_pool *p, const char *path, u64 bytes, int err, const char *why)
{
	int got = kve_pool_add(p, path, bytes, false, rig_why);

	if (got != err || !strstr(rig_why, why))
		fail_msg("add of %s: %d '%s', not %d '%s'", path, got, rig_why, err, why);
}

/* How many members the pool has that are there */
static u32 members_of(struct kve_pool *p)
{
	u32 i, n = 0;

	for (i = 0; i < kve_nr_members(p); i++)
		n += !rig_state(p, i);
	return n;
}

/* Add */

static void what_lies_elsewhere_gets_a_link(void **state)
{
	int before = rig_descriptors();
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	rig_stored(p, 0, 10);
	add(p, elsewhere(".out/a", RIG_BYTES), 0);
	assert_int_equal(members_of(p), 2);
	assert_true(exists("member1"));
	rig_store_on(p, 1, 10, 10);
	assert_int_equal(rig_found(p, 0, 20), 20);
	p = rig_again(p);
	assert_int_equal(members_of(p), 2);
	assert_int_equal(rig_found(p, 0, 20), 20);
	/* a name that is taken */
	rig_file(rig_path("member2"), "", 0, 0);
	add(p, elsewhere(".out/b", RIG_BYTES), 0);
	assert_true(exists("member2-1"));
	assert_int_equal(unlink(rig_path("member2")), 0);
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	kve_pool_put(p);
	assert_int_equal(rig_descriptors(), before);
}

static void a_file_is_made(void **state)
{
	struct kve_pool *p;
	struct stat st;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	add(p, rig_path("more"), RIG_BYTES + 77);
	mkdir(rig_path(".out"), 0700);
	add(p, rig_path(".out/there"), RIG_BYTES);
	assert_int_equal(stat(rig_path("more"), &st), 0);
	assert_int_equal(st.st_size, RIG_BYTES);
	assert_true(st.st_blocks * 512 >= st.st_size);
	assert_true(exists("member2"));
	rig_store_on(p, 1, 0, 10);
	rig_store_on(p, 2, 10, 10);
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	assert_int_equal(rig_found(p, 0, 20), 20);
	kve_pool_put(p);
}

static void what_cannot_be_a_member(void **state)
{
	struct kve_pool *p;
	char path[300];

	(void)state;
	rig_make(rig_dir, 2);
	mkdir(rig_path(".out"), 0700);
	rig_make(rig_path(".out"), 1);
	p = rig_attach();
	refused(p, rig_path("nowhere"), 0, -ENOENT, "nowhere");
	refused(p, rig_path(".out"), 0, -EMEDIUMTYPE, "neither a file nor a block device");
	refused(p, rig_path("m0"), 0, -EBUSY, "in use by this process");
	refused(p, rig_path(".out/m0"), 0, -EEXIST, "holds a member of pool test");
	refused(p, elsewhere(".out/small", KVC_DEVICE_MIN), 0, -ENOSPC, "too small, a member needs");
	refused(p, rig_path(".out/tiny"), 4096, -ENOSPC, "too small");
	refused(p, rig_path(".out/huge"), 1ULL << 55, -EFBIG, "cannot be made");
	refused(p, rig_path(".out/m0"), RIG_BYTES, -EEXIST, "is there already");
	refused(p, rig_path(".none/m0"), RIG_BYTES, -ENOENT, "cannot be made");
	/* could it be? */
	snprintf(path, sizeof(path), "%s", elsewhere(".out/blank", RIG_BYTES));
	assert_int_equal(kve_pool_add(p, path, 0, true, rig_why), 0);
	assert_int_equal(kve_pool_add(p, rig_path(".out/m0"), 0, true, rig_why), 0);
	assert_int_equal(kve_pool_add(p, rig_path(".out/made"), RIG_BYTES, true, rig_why), 0);
	assert_int_equal(kve_pool_add(p, rig_path("m1"), 0, true, rig_why), -EBUSY);
	assert_false(exists(".out/tiny") || exists(".out/huge") || exists(".out/made") || exists("member2"));
	assert_int_equal(kve_nr_members(p), 2);
	p = rig_again(p);
	assert_int_equal(members_of(p), 2);
	kve_pool_put(p);
}

static void a_pool_that_is_full(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, KVC_MEMBERS_MAX);
	p = rig_attach();
	refused(p, elsewhere(".out/a", RIG_BYTES), 0, -ENOSPC, "no place for another member");
	kve_pool_put(p);
}

/* It fails at @what while it is added */
static void add_fails(int what)
{
	struct kve_pool *p = rig_attach();
	char out[300];

	snprintf(out, sizeof(out), "%s", elsewhere(".out/a", RIG_BYTES));
	rig_stored(p, 0, 20);
	assert_int_equal(rig_flush(p, NULL), 0);
	rig_fail(out, what);
	refused(p, out, 0, -EIO, "a");
	rig_fail(NULL, 0);
	assert_false(exists("member2"));
	assert_int_equal(members_of(p), 2);
	assert_int_equal(rig_found(p, 0, 20), 20);
	rig_stored(p, 100, 10);
	/* it can be tried again */
	add(p, out, 0);
	assert_int_equal(members_of(p), 3);
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_int_equal(rig_found(p, 100, 10), 10);
	kve_pool_put(p);
}

static void a_device_that_fails_is_not_added(void **state)
{
	(void)state;
	rig_make(rig_dir, 2);
	add_fails(RIG_WRITES);
}

static void a_device_that_cannot_be_read_is_not_added(void **state)
{
	(void)state;
	rig_make(rig_dir, 2);
	add_fails(RIG_READS);
}

static void without_a_thread(void **state)
{
	struct kve_pool *p;
	char out[300];

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	snprintf(out, sizeof(out), "%s", elsewhere(".out/a", RIG_BYTES));
	no_threads = true;
	refused(p, out, 0, -EAGAIN, "no thread can be had");
	no_threads = false;
	assert_false(exists("member1"));
	/* its number is taken until the next attach */
	add(p, out, 0);
	assert_int_equal(rig_state(p, 2), 0);
	rig_store_on(p, 2, 0, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	no_threads = true;
	assert_int_equal(kve_pool_remove(p, 0, true, rig_why), -EAGAIN);
	no_threads = false;
	remove_now(p, 0, true);
	p = rig_again(p);
	assert_int_equal(members_of(p), 1);
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
}

/* Remove */

static void pages_move(void **state)
{
	struct kve_pool *p;
	u32 i;

	(void)state;
	rig_make(rig_dir, 3);
	p = rig_attach();
	for (i = 0; i < 3; i++)
		rig_store_on(p, i, 10 * i, 10);
	remove_now(p, 1, true);
	assert_int_equal(members_of(p), 2);
	assert_false(exists("m1"));
	assert_int_equal(rig_found(p, 0, 30), 30);
	rig_stored(p, 30, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 40), 40);
	/* a hole is a place for another one */
	add(p, rig_path("new"), RIG_BYTES);
	assert_int_equal(rig_state(p, 1), 0);
	rig_store_on(p, 1, 40, 10);
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	assert_int_equal(rig_found(p, 0, 50), 50);
	kve_pool_put(p);
}

static void pages_are_dropped(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	rig_store_on(p, 1, 10, 10);
	remove_now(p, 1, false);
	assert_int_equal(rig_found(p, 0, 20), 10);
	assert_int_equal(rig_load(p, 15, 10000), -ENOENT);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 20), 10);
	kve_pool_put(p);
}

/* What it has of this pool from before is nothing any more */
static void a_device_comes_again(void **state)
{
	struct kve_pool *p;
	char out[300];

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	snprintf(out, sizeof(out), "%s", elsewhere(".out/a", RIG_BYTES));
	add(p, out, 0);
	rig_store_on(p, 1, 0, 200);	/* in several segments */
	assert_int_equal(rig_flush(p, NULL), 0);
	remove_now(p, 1, false);
	assert_false(exists("member1"));
	assert_true(exists(".out/a"));
	/* from another attach on its number is free too, and what stands there could be its own */
	p = rig_again(p);
	add(p, out, 0);
	assert_int_equal(rig_state(p, 1), 0);
	assert_int_equal(rig_found(p, 0, 200), 0);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 200), 0);
	rig_store_on(p, 1, 300, 10);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 200), 0);
	assert_int_equal(rig_found(p, 300, 10), 10);
	kve_pool_put(p);
}

static void what_cannot_be_removed(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	assert_int_equal(kve_pool_remove(p, 0, true, rig_why), -EBUSY);
	assert_non_null(strstr(rig_why, "no member but "));
	assert_int_equal(kve_pool_remove(p, 1, true, rig_why), -ENOENT);
	assert_int_equal(kve_pool_remove(p, KVC_MEMBERS_MAX, true, rig_why), -ENOENT);
	assert_int_equal(kve_pool_remove(p, U32_MAX, true, rig_why), -ENOENT);
	kve_pool_put(p);
}

/* A device that is gone with its name, and a directory that cannot be changed */
static void entries_that_stay(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	add(p, elsewhere(".out/a", RIG_BYTES), 0);
	assert_int_equal(unlink(rig_path(".out/a")), 0);
	remove_now(p, 1, true);
	assert_false(exists("member1"));
	add(p, elsewhere(".out/b", RIG_BYTES), 0);
	rig_store_on(p, 2, 0, 10);
	no_unlink = true;
	remove_now(p, 2, true);
	no_unlink = false;
	assert_true(exists("member2"));
	assert_true(rig_logged("member2: cannot be taken out of the directory"));
	p = rig_again(p);
	assert_true(rig_logged("member2: was removed from the pool"));
	assert_false(exists("member2"));
	assert_true(exists(".out/b"));
	assert_int_equal(members_of(p), 1);
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
}

/* One device has one entry */
static void a_name_that_is_there(void **state)
{
	struct kve_pool *p;
	char out[300];

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	snprintf(out, sizeof(out), "%s", elsewhere(".out/a", RIG_BYTES));
	assert_int_equal(__real_symlink(".out/a", rig_path("mine")), 0);
	add(p, out, 0);
	assert_false(exists("member1"));
	rig_store_on(p, 1, 0, 10);
	rig_file(rig_path("file"), "", 0, RIG_BYTES);
	add(p, rig_path("file"), 0);
	assert_false(exists("member2"));
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	assert_int_equal(rig_found(p, 0, 10), 10);
	remove_now(p, 1, true);
	assert_false(exists("mine"));
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
}

/* Somebody has a page of the member's in his hands */
struct held {
	struct kvc_domain *domain;
	struct kvc_load load;
};

static struct kvc_domain *domain_of(struct kve_pool *p)
{
	static const u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;
	u32 slot, flags;

	assert_int_equal(kve_pool_tenant(p, "default", &slot, &flags), 0);
	assert_int_equal(kvc_domain_open(p->core, slot, keyspace, &d), 0);
	return d;
}

static void hold(struct kve_pool *p, struct held *h, u32 id)
{
	u8 key[KVC_KEY_LEN] = { 0 };

	memcpy(key, &id, sizeof(id));
	h->domain = domain_of(p);
	assert_int_equal(kvc_load_begin(p->core, h->domain, key, &h->load), 0);
}

static void let_go(struct kve_pool *p, struct held *h)
{
	kvc_load_end(p->core, &h->load, 0);
	kvc_domain_put(p->core, h->domain);
}

static void it_waits_for_who_reads(void **state)
{
	struct kve_pool *p;
	struct held h;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	hold(p, &h, 3);
	remove_begun(p, 0, true);
	assert_int_equal(kve_pool_remove(p, 0, true, rig_why), -EALREADY);
	assert_int_equal(kve_pool_remove(p, 1, true, rig_why), -EBUSY);
	usleep(200000);
	assert_int_equal(rig_state(p, 0), KVE_MEMBER_LEAVING);
	assert_int_equal(rig_found(p, 0, 10), 10);
	rig_stored(p, 20, 5);
	let_go(p, &h);
	while (!(rig_state(p, 0) & KVE_MEMBER_REMOVED))
		usleep(1000);
	assert_int_equal(rig_found(p, 0, 10), 10);
	assert_int_equal(rig_found(p, 20, 5), 5);
	kve_pool_put(p);
}

static void a_detach_before_the_end_keeps_it(void **state)
{
	struct kve_pool *p;
	struct held h;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	hold(p, &h, 3);
	remove_begun(p, 0, false);
	usleep(50000);
	assert_int_equal(rig_state(p, 0), KVE_MEMBER_LEAVING);
	let_go(p, &h);
	p = rig_again(p);
	/* unless it was quicker */
	assert_in_range(members_of(p), 1, 2);
	kve_pool_put(p);
}

static void lease_of(struct kve_pool *p, u32 id, struct kvc_domain **d, struct kvc_lease *l)
{
	u8 key[KVC_KEY_LEN] = { 0 };

	memcpy(key, &id, sizeof(id));
	*d = domain_of(p);
	assert_int_equal(kvc_lease_get(p->core, *d, key, l), 0);
}

static void another_one_is_lost_meanwhile(void **state)
{
	struct kve_pool *p;
	struct kvc_lease lease;
	struct kvc_domain *d;

	(void)state;
	rig_make(rig_dir, 3);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	rig_store_on(p, 1, 10, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	/* until it is over no page moves, to the one that is lost neither */
	lease_of(p, 3, &d, &lease);
	remove_begun(p, 0, true);
	kve_member_failed(&p->members[1]);
	while (!(rig_state(p, 1) & KVE_MEMBER_LOST))
		usleep(1000);
	kvc_lease_put(p->core, &lease);
	kvc_domain_put(p->core, d);
	/* the worker of the lost one serves it when the loss is complete */
	rig_flush(p, NULL);
	usleep(100000);
	assert_int_equal(rig_state(p, 0), KVE_MEMBER_LEAVING);
	assert_false(kvc_member_leaves(p->core, 0));
	assert_true(rig_logged("member 0 stays until the next attach, another one was lost"));
	assert_int_equal(rig_found(p, 0, 10), 10);
	p = rig_again(p);
	assert_int_equal(members_of(p), 3);
	assert_int_equal(rig_found(p, 0, 20), 20);
	remove_now(p, 0, true);
	assert_int_equal(rig_found(p, 0, 20), 20);
	kve_pool_put(p);
}

static void one_that_is_missing_or_lost_is_removed(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 3);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	rig_store_on(p, 1, 10, 10);
	kve_pool_put(p);
	rename(rig_path("m1"), rig_path(".m1"));
	rig_file(rig_path(".degraded"), "", 0, 0);
	p = rig_attach();
	assert_int_equal(rig_load(p, 10, 10000), -ENODEV);
	remove_now(p, 1, true);
	assert_int_equal(rig_load(p, 10, 10000), -ENOENT);
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_member_failed(&p->members[2]);
	while (!(rig_state(p, 2) & KVE_MEMBER_LOST))
		usleep(1000);
	remove_now(p, 2, true);
	assert_int_equal(unlink(rig_path(".degraded")), 0);
	p = rig_again(p);
	assert_int_equal(members_of(p), 1);
	assert_int_equal(rig_found(p, 0, 10), 10);
	/* it comes back, and is left alone, but for its name */
	rename(rig_path(".m1"), rig_path("m1"));
	p = rig_again(p);
	assert_true(rig_logged("m1: was removed from the pool"));
	assert_false(exists("m1"));
	assert_true(exists(".m1.removed"));
	assert_int_equal(members_of(p), 1);
	assert_int_equal(rig_found(p, 0, 20), 10);
	kve_pool_put(p);
}

/* The power goes */

struct moment {
	const char *what;
	u32 seen[4];			/* how often the next attach found so many members */
	bool former;			/* and one that was none any more */
};

/* What is found after it went, and the lights are on again */
static void after_the_power_went(struct moment *m, struct kve_pool *p, int events)
{
	u32 members, found;

	kve_pool_put(p);
	rig_power(-1);
	p = rig_attach();
	members = members_of(p);
	found = rig_found(p, 0, 30);
	if (found != 30 || members < 2 || members > 3)
		fail_msg("%s, the power went after %d: %u of 30 pages, %u members", m->what, events, found, members);
	m->seen[members]++;
	m->former |= rig_logged("was removed from the pool");
	/* and it is one to work with */
	rig_stored(p, 100, 10);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 30), 30);
	assert_int_equal(rig_found(p, 100, 10), 10);
	kve_pool_put(p);
}

/* Two members with pages that are durable, and maybe one more, by a link */
static struct kve_pool *power_pool(u32 members)
{
	struct kve_pool *p;
	u32 i;

	rig_teardown(NULL);
	rig_setup(NULL);
	rig_make(rig_dir, 2);
	mkdir(rig_path(".out"), 0700);
	p = rig_attach();
	if (members == 3)
		add(p, elsewhere(".out/a", RIG_BYTES), 0);
	for (i = 0; i < 30; i++)
		rig_store_on(p, i % members, i, 1);
	assert_int_equal(rig_flush(p, NULL), 0);
	return p;
}

static void the_power_goes_in_an_add(u64 bytes, const char *name)
{
	struct moment m = { .what = "add" };
	bool went = true;
	char path[300];
	int n;

	for (n = 0; went; n++) {
		struct kve_pool *p = power_pool(2);

		snprintf(path, sizeof(path), "%s", bytes ? rig_path(name) : elsewhere(name, RIG_BYTES));
		rig_power(n);
		add(p, path, bytes);
		went = rig_power_went();
		after_the_power_went(&m, p, n);
		/* a file that was made has its name as a member, or is not there */
		assert_true(!bytes || exists(name) == (m.seen[3] > 0));
	}
	assert_true(n > 5 && m.seen[2] > 1 && m.seen[3] > 1);
}

static void the_power_goes_while_a_device_is_added(void **state)
{
	(void)state;
	the_power_goes_in_an_add(0, ".out/b");
}

static void the_power_goes_while_a_file_is_made(void **state)
{
	(void)state;
	the_power_goes_in_an_add(RIG_BYTES, "made");
}

static void the_power_goes_in_a_removal(u32 member)
{
	struct moment m = { .what = "remove" };
	bool went = true;
	int n;

	for (n = 0; went; n++) {
		struct kve_pool *p = power_pool(3);

		rig_power(n);
		remove_now(p, member, true);
		went = rig_power_went();
		after_the_power_went(&m, p, n);
	}
	assert_true(n > 10 && m.seen[3] > 5 && m.seen[2] > 2 && m.former);
}

static void the_power_goes_while_a_file_is_removed(void **state)
{
	(void)state;
	the_power_goes_in_a_removal(1);
}

static void the_power_goes_while_a_link_is_removed(void **state)
{
	(void)state;
	the_power_goes_in_a_removal(2);
}

/* Others work meanwhile */

struct worker {
	pthread_t thread;
	struct kve_pool *p;
	u32 n, stored, wrong;
	bool stop;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	u32 i = 0, id;
	int err;

	while (!__atomic_load_n(&w->stop, __ATOMIC_SEQ_CST)) {
		id = w->n << 16 | i++ % 500;
		while ((err = rig_store(w->p, id, 30000)) == -EAGAIN)
			usleep(100);
		__atomic_add_fetch(&w->stored, !err, __ATOMIC_RELAXED);
		w->wrong += err && err != -EEXIST;
		err = rig_load(w->p, w->n << 16 | i / 2 % 500, 30000);
		w->wrong += err && err != -ENOENT;
		if (i % 32 == 0)
			w->wrong += rig_flush(w->p, NULL) != 0;
	}
	return NULL;
}

static void while_others_work(void **state)
{
	struct worker w[2] = { { .n = 1 }, { .n = 2 } };
	struct kve_pool *p;
	char path[300];
	u32 i, round;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	snprintf(path, sizeof(path), "%s", elsewhere(".out/a", RIG_BYTES));
	for (i = 0; i < 2; i++) {
		w[i].p = p;
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (round = 0; round < 4; round++) {
		add(p, path, 0);
		usleep(50000);
		remove_now(p, 2 + round, round % 2);
	}
	remove_now(p, 0, true);
	for (i = 0; i < 2; i++)
		while (__atomic_load_n(&w[i].stored, __ATOMIC_RELAXED) <= 50)
			usleep(1000);
	for (i = 0; i < 2; i++) {
		__atomic_store_n(&w[i].stop, true, __ATOMIC_SEQ_CST);
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].wrong, 0);
	}
	p = rig_again(p);
	assert_int_equal(members_of(p), 1);
	kve_pool_put(p);
}

/* For programs */

static void by_the_directory(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	assert_int_equal(kvctx_pool_add(rig_dir, rig_path("more"), RIG_BYTES), 0);
	assert_int_equal(kvctx_pool_add(rig_dir, elsewhere(".out/a", RIG_BYTES), 0), 0);
	assert_int_equal(kvctx_pool_add(rig_dir, rig_path("more"), RIG_BYTES), -EEXIST);
	assert_true(rig_logged("more: is there already"));
	assert_int_equal(kvctx_pool_add(rig_path("none"), rig_path("more"), RIG_BYTES), -ENOENT);
	assert_int_equal(kvctx_pool_remove(rig_path("none"), "0", 0), -ENOENT);
	assert_int_equal(kvctx_pool_remove(rig_dir, "0", 2), -EINVAL);
	assert_int_equal(kvctx_pool_remove(rig_dir, "7", 0), -ENOENT);
	assert_int_equal(kvctx_pool_remove(rig_dir, "0x", 0), -ENOENT);
	assert_int_equal(kvctx_pool_remove(rig_dir, "-1", 0), -ENOENT);
	assert_int_equal(kvctx_pool_remove(rig_dir, rig_path(".out"), 0), -ENOENT);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	rig_store_on(p, 2, 10, 10);
	assert_int_equal(kvctx_pool_remove(rig_dir, rig_path(".out/a"), 0), 0);
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_int_equal(kvctx_pool_remove(rig_dir, "0", KVCTX_POOL_DROP), 0);
	assert_int_equal(kvctx_pool_remove(rig_dir, rig_path("more"), 0), -EBUSY);
	assert_false(exists("m0") || exists("member2"));
	kve_pool_put(p);
	assert_int_equal(kvctx_pool_remove(rig_dir, "1", 0), -EBUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_lies_elsewhere_gets_a_link),
		TEST(a_file_is_made),
		TEST(what_cannot_be_a_member),
		TEST(a_pool_that_is_full),
		TEST(a_device_that_fails_is_not_added),
		TEST(a_device_that_cannot_be_read_is_not_added),
		TEST(without_a_thread),
		TEST(pages_move),
		TEST(pages_are_dropped),
		TEST(a_device_comes_again),
		TEST(what_cannot_be_removed),
		TEST(entries_that_stay),
		TEST(a_name_that_is_there),
		TEST(it_waits_for_who_reads),
		TEST(a_detach_before_the_end_keeps_it),
		TEST(another_one_is_lost_meanwhile),
		TEST(one_that_is_missing_or_lost_is_removed),
		TEST(the_power_goes_while_a_device_is_added),
		TEST(the_power_goes_while_a_file_is_made),
		TEST(the_power_goes_while_a_file_is_removed),
		TEST(the_power_goes_while_a_link_is_removed),
		TEST(while_others_work),
		TEST(by_the_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
