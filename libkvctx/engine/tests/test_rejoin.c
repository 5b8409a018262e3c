// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Members that were lost and return to a pool that is in use.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sess.h"

/* Pages 0 to 9 are on the first, 10 to 19 on the second */
static struct kve_pool *two_members(void)
{
	struct kve_pool *p;

	rig_make(rig_dir, 2);
	p = rig_attach();
	rig_store_on(p, 0, 0, 10);
	rig_store_on(p, 1, 10, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	return p;
}

static const u32 lost = KVE_MEMBER_FAILED | KVE_MEMBER_LOST;

static bool noted(struct kve_pool *p, u32 member)
{
	bool yes;

	pthread_mutex_lock(&p->super_lock);
	yes = rig_state(p, member) == lost && kvc_super_of(p->core)->members[member].flags & KVC_MEMBER_ABSENT;
	pthread_mutex_unlock(&p->super_lock);
	return yes;
}

/* By a transfer that fails; the others know of it */
static void lose(struct kve_pool *p, u32 member)
{
	kve_member_failed(&p->members[member]);
	while (!noted(p, member))
		usleep(1000);
}

/* By a summary that cannot be written */
static void fail_to_write(struct kve_pool *p, u32 member, const char *name)
{
	u32 losses = (u32)os_atomic_read(&p->losses);

	rig_fail(rig_path(name), RIG_WRITES | RIG_SYNCS);
	rig_flush(p, &losses);
	while (!noted(p, member))
		usleep(1000);
	rig_fail(NULL, 0);
}

static void back(struct kve_pool *p, u32 member, const char *name)
{
	assert_int_equal(kve_pool_rejoin(p, rig_path(name), rig_why), 0);
	assert_int_equal(rig_state(p, member), 0);
	assert_true(kvc_member_online(p->core, member));
}

static void refused(struct kve_pool *p, const char *path, int err, const char *why)
{
	assert_int_equal(kve_pool_rejoin(p, path, rig_why), err);
	if (!strstr(rig_why, why))
		fail_msg("\"%s\", and not: %s", rig_why, why);
}

/* The file that it has open still */
static void it_was_there_all_the_time(void **state)
{
	struct kve_pool *p;
	int open_ones;

	(void)state;
	p = two_members();
	open_ones = rig_descriptors();
	rig_store_on(p, 1, 20, 10);
	fail_to_write(p, 1, "m1");
	assert_int_equal(rig_load(p, 10, 10000), -ENODEV);
	rig_store_on(p, 0, 30, 10);
	back(p, 1, "m1");
	assert_true(rig_logged("member 1") && rig_logged("is back"));
	/* but for what was in the summary that failed, which not all have to be: one may have been written unasked */
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_true(rig_found(p, 20, 10) < 10);
	assert_int_equal(rig_found(p, 30, 10), 10);
	rig_store_on(p, 1, 40, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	assert_int_equal(rig_descriptors(), open_ones);
	/* more than once, and after that an attach finds the same */
	lose(p, 1);
	back(p, 1, "m1");
	assert_int_equal(rig_found(p, 40, 10), 10);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_int_equal(rig_found(p, 30, 20), 20);
	kve_pool_put(p);
}

/* Member 1: another one has its name and its content, the old one is .m1 */
static void becomes_another_file(void)
{
	assert_int_equal(rename(rig_path("m1"), rig_path(".m1")), 0);
	rig_copy(rig_path(".m1"), rig_path("m1"));
}

/* Another file with the same content, as another node of a device would be */
static void another_has_its_content(void **state)
{
	struct kve_pool *p;
	int open_ones;

	(void)state;
	p = two_members();
	open_ones = rig_descriptors();
	lose(p, 1);
	becomes_another_file();
	back(p, 1, "m1");
	assert_int_equal(rig_found(p, 0, 20), 20);
	rig_store_on(p, 1, 20, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	assert_int_equal(rig_descriptors(), open_ones);
	/* which is what is written to from now on */
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 30), 30);
	kve_pool_put(p);
}

static void what_is_refused(void **state)
{
	struct kve_pool *p;
	u8 header[KVC_BLOCK], zeros[KVC_BLOCK] = { 0 };
	int fd;

	(void)state;
	rig_make(rig_dir, 3);
	mkdir(rig_path(".other"), 0700);
	rig_make(rig_path(".other"), 1);
	p = rig_attach();
	rig_store_on(p, 1, 0, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	refused(p, rig_path("m1"), -EEXIST, "member 1, which is online");
	refused(p, rig_path("m9"), -ENOENT, "No such file");
	refused(p, rig_path(".other/m0"), -EXDEV, "of another pool");
	lose(p, 1);
	/* a header that is not the one that it was left with */
	fd = open(rig_path("m1"), O_RDWR);
	assert_int_equal(pread(fd, header, KVC_BLOCK, KVC_DATA_OFFSET), KVC_BLOCK);
	assert_int_equal(pwrite(fd, zeros, KVC_BLOCK, KVC_DATA_OFFSET), KVC_BLOCK);
	refused(p, rig_path("m1"), -ESTALE, "segment 0 not as it was left: attach again");
	assert_int_equal(rig_state(p, 1), lost);
	assert_int_equal(pwrite(fd, header, KVC_BLOCK, KVC_DATA_OFFSET), KVC_BLOCK);
	close(fd);
	/* nor may it be written */
	rig_fail(rig_path("m1"), RIG_WRITES | RIG_SYNCS);
	refused(p, rig_path("m1"), -EIO, "no superblock could be written");
	assert_int_equal(rig_state(p, 1), lost);
	rig_fail(NULL, 0);
	back(p, 1, "m1");
	assert_int_equal(rig_found(p, 0, 10), 10);
	/* what was missing from the beginning was never read */
	assert_true(kve_pool_put(p));
	rename(rig_path("m2"), rig_path(".m2"));
	rig_file(rig_path(".degraded"), "", 0, 0);
	p = rig_attach();
	refused(p, rig_path(".m2"), -EINVAL, "missing at the attach: attach again");
	kve_pool_put(p);
}

static void all_were_lost(void **state)
{
	struct kve_pool *p;

	(void)state;
	p = two_members();
	lose(p, 0);
	lose(p, 1);
	refused(p, rig_path("m0"), -ESTALE, "others were lost later");
	back(p, 1, "m1");
	back(p, 0, "m0");
	assert_int_equal(rig_found(p, 0, 20), 20);
	p = rig_again(p);
	assert_int_equal(rig_found(p, 0, 20), 20);
	kve_pool_put(p);
}

/* Loads pages over and over, whatever becomes of their member */
struct loader {
	struct sess k;
	bool lost, stop;		/* these atomically */
	u32 loaded, gone;
	s32 odd;			/* another result: a transfer may fail only while its member goes */
};

enum { LOADED = 16 };

static void *load_on(void *arg)
{
	struct loader *l = arg;
	u32 n;
	s32 res;

	for (n = 0; !__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE); n++) {
		res = load(&l->k, n % LOADED, PAGE);
		if (res == (s32)PAGE)
			__atomic_fetch_add(&l->loaded, 1, __ATOMIC_RELEASE);
		else if (res == -ENODEV || (res == -EIO && __atomic_load_n(&l->lost, __ATOMIC_ACQUIRE)))
			__atomic_fetch_add(&l->gone, 1, __ATOMIC_RELEASE);
		else
			__atomic_store_n(&l->odd, res, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void comes_to(const u32 *count, u32 most)
{
	while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < most)
		usleep(1000);
}

static void loads_are_right(struct sess *k, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		assert_int_equal(load(k, i, PAGE), PAGE);
}

/* What a session's ring has open is the new file, and not the one before, whose bytes have gone. */
static void below_a_session_at_work(void **state)
{
	struct loader l = { .odd = 0 };
	struct kve_pool *p;
	pthread_t thread;
	u32 i;

	(void)state;
	rig_make(rig_dir, 2);
	sess_start(&l.k, 0, -1);
	p = l.k.s->pool;
	for (i = 0; i < LOADED; i++)
		assert_int_equal(store(&l.k, i, PAGE), PAGE);
	assert_int_equal(run(&l.k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, load_on, &l), 0);
	comes_to(&l.loaded, LOADED);
	__atomic_store_n(&l.lost, true, __ATOMIC_RELEASE);
	lose(p, 1);
	comes_to(&l.gone, 1);
	becomes_another_file();
	__atomic_store_n(&l.lost, false, __ATOMIC_RELEASE);
	back(p, 1, "m1");
	assert_int_equal(truncate(rig_path(".m1"), 0), 0);
	comes_to(&l.loaded, __atomic_load_n(&l.loaded, __ATOMIC_ACQUIRE) + 5 * LOADED);
	__atomic_store_n(&l.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_int_equal(l.odd, 0);
	loads_are_right(&l.k, LOADED);
	/* nor is what comes written to that */
	for (; i < LOADED + 4; i++)
		assert_int_equal(store(&l.k, i, PAGE), PAGE);
	/* a session's next flush tells of the loss */
	assert_int_equal(run(&l.k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), -EIO);
	assert_int_equal(run(&l.k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), 0);
	sess_close(&l.k);
	sess_start(&l.k, 0, -1);
	loads_are_right(&l.k, i);
	sess_close(&l.k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_was_there_all_the_time),
		TEST(another_has_its_content),
		TEST(what_is_refused),
		TEST(all_were_lost),
		BOTH(below_a_session_at_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
