// SPDX-License-Identifier: LGPL-2.1-or-later
/* Pools attached and detached in the process: what is found again, what is refused, what is lost. */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

static void pages_are_found_again(void **state)
{
	int before = rig_descriptors();
	struct kve_pool *p;
	int i;

	(void)state;
	rig_make(rig_dir, 2);
	for (i = 0; i < 3; i++) {
		p = rig_attach();
		assert_string_equal(p->name, "test");
		assert_int_equal(rig_found(p, 0, 20 * (u32)i), 20 * i);
		rig_stored(p, 20 * (u32)i, 20);
		assert_int_equal(rig_found(p, 0, 20 * (u32)i + 20), 20 * i + 20);
		kve_pool_put(p);
	}
	assert_int_equal(rig_descriptors(), before);
}

static void one_engine_serves_all_of_a_process(void **state)
{
	struct kve_pool *a, *b;

	(void)state;
	rig_make(rig_dir, 1);
	a = rig_attach();
	assert_int_equal(kve_pool_get(rig_path("."), &b, rig_why), 0);
	assert_ptr_equal(a, b);
	kve_pool_put(a);
	rig_stored(b, 0, 3);
	kve_pool_put(b);
	a = rig_attach();
	assert_int_equal(rig_found(a, 0, 3), 3);
	kve_pool_put(a);
}

static void tenants_by_name(void **state)
{
	u32 slot = 77, flags;
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	assert_int_equal(kve_pool_tenant(p, "default", &slot, &flags), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(kve_pool_tenant(p, "defaul", &slot, &flags), -ENOENT);
	assert_int_equal(kve_pool_tenant(p, "", &slot, &flags), -ENOENT);
	kve_pool_put(p);
}

static void directories_without_a_pool(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_refused(-ENOENT, "empty");
	assert_int_equal(kve_pool_get(rig_path("nowhere"), &p, rig_why), -ENOENT);
	rig_file(rig_path("notes"), "hello", 5, RIG_BYTES);
	rig_refused(-ENOTTY, "notes: no member of a pool");
	assert_int_equal(kve_pool_get(rig_path("notes"), &p, rig_why), -ENOTDIR);
}

static void what_else_is_in_the_directory(void **state)
{
	(void)state;
	rig_make(rig_dir, 1);
	rig_file(rig_path(".hidden"), "", 0, 0);
	kve_pool_put(rig_attach());
	rig_file(rig_path("short"), "", 0, 10);
	rig_refused(-EMEDIUMTYPE, "short: no member of a pool, too small");
	unlink(rig_path("short"));
	mkdir(rig_path("sub"), 0700);
	kve_pool_put(rig_attach());
	rig_make(rig_path("sub"), 1);
	rename(rig_path("sub/m0"), rig_path("other"));
	rmdir(rig_path("sub"));
	rig_refused(-EMEDIUMTYPE, "of another pool, test");
	unlink(rig_path("other"));
	kve_pool_put(rig_attach());
}

static void members_may_be_links(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 2);
	mkdir(rig_path(".elsewhere"), 0700);
	rename(rig_path("m1"), rig_path(".elsewhere/m1"));
	assert_int_equal(symlink(".elsewhere/m1", rig_path("m1")), 0);
	p = rig_attach();
	rig_stored(p, 0, 10);
	kve_pool_put(p);
	assert_int_equal(symlink("nowhere", rig_path("m2")), 0);
	rig_refused(-ENOENT, "m2");
}

/* What a slot of a member's superblock holds now */
static enum kvc_reason slot_of(const char *path, u32 slot)
{
	struct kvc_super *s = malloc(sizeof(*s));
	u8 *buf = malloc(KVC_SUPER_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	enum kvc_reason why;

	assert_int_equal(kve_read_all(fd, buf, KVC_SUPER_BYTES, kvc_super_offset(slot, RIG_BYTES)), 0);
	why = kvc_super_read(buf, slot, s);
	close(fd);
	free(buf);
	free(s);
	return why;
}

static void overwrite(const char *path, u64 offset, u32 len)
{
	u8 *buf = malloc(len);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	memset(buf, 0xee, len);
	assert_int_equal(kve_write_all(fd, buf, len, offset), 0);
	close(fd);
	free(buf);
}

static void a_worn_copy_is_written_again(void **state)
{
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	overwrite(rig_path("m0"), 0, KVC_SUPER_BYTES);
	assert_int_equal(slot_of(rig_path("m0"), 0), KVC_BAD_MAGIC);
	kve_pool_put(rig_attach());
	assert_true(rig_logged("m0: superblock at the front damaged or old"));
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		assert_int_equal(slot_of(rig_path("m0"), i), KVC_OK);
}

static void damaged_superblocks(void **state)
{
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		overwrite(rig_path("m0"), kvc_super_offset(i, RIG_BYTES) + 500, 3000);
	rig_refused(-EUCLEAN, "m0: superblock damaged");
	rig_fail(rig_path("m0"), RIG_READS);
	rig_refused(-EIO, "m0: superblock cannot be read");
}

static void members_that_do_not_fit(void **state)
{
	(void)state;
	rig_make(rig_dir, 2);
	rig_copy(rig_path("m0"), rig_path("copy"));
	rig_refused(-EUCLEAN, "and so is");
	unlink(rig_path("copy"));
	/* its copy at the end is gone with the end; the one at the front says how long it was */
	assert_int_equal(truncate(rig_path("m0"), RIG_BYTES - RIG_SEGMENT), 0);
	rig_refused(-EUCLEAN, "m0: smaller than the pool knows it");
}

/* Half of them on each of two members */
static void store_on_both(struct kve_pool *p, u32 nr)
{
	rig_store_on(p, 0, 0, nr / 2);
	rig_store_on(p, 1, nr / 2, nr / 2);
}

static void a_member_may_be_missing_on_demand(void **state)
{
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	store_on_both(p, 20);
	kve_pool_put(p);
	rename(rig_path("m1"), rig_path(".m1"));
	rig_refused(-EUCLEAN, "member 1 of 2 is missing");
	rig_file(rig_path(".degraded"), "", 0, 0);
	p = rig_attach();
	assert_true(rig_logged("member 1 is missing"));
	assert_int_equal(rig_state(p, 1), KVE_MEMBER_FAILED | KVE_MEMBER_LOST | KVE_MEMBER_MISSING);
	assert_int_equal(rig_found(p, 0, 20), 10);
	/* what is not found may be there */
	assert_int_equal(rig_load(p, 1000, 1), -ENODEV);
	rig_stored(p, 100, 5);
	assert_int_equal(rig_flush(p, NULL), 0);
	kve_pool_put(p);
	rename(rig_path(".m1"), rig_path("m1"));
	p = rig_attach();
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_int_equal(rig_found(p, 100, 5), 5);
	kve_pool_put(p);
}

static void members_have_one_history(void **state)
{
	(void)state;
	rig_make(rig_dir, 2);
	rig_file(rig_path(".degraded"), "", 0, 0);
	kve_pool_put(rig_attach());
	rename(rig_path("m1"), rig_path(".m1"));
	kve_pool_put(rig_attach());
	rename(rig_path(".m1"), rig_path("m1"));
	rename(rig_path("m0"), rig_path(".m0"));
	kve_pool_put(rig_attach());
	rename(rig_path(".m0"), rig_path("m0"));
	rig_refused(-EUCLEAN, "attached without each other");
}

static void a_member_that_fails_is_lost(int what)
{
	struct kve_pool *p;
	u32 seen = 0;

	rig_make(rig_dir, 2);
	p = rig_attach();
	store_on_both(p, 20);
	assert_int_equal(rig_flush(p, &seen), 0);
	rig_store_on(p, 1, 100, 1);
	rig_fail(rig_path("m1"), what);
	assert_int_equal(rig_flush(p, &seen), -EIO);
	assert_int_equal(seen, 1);
	assert_int_equal(rig_flush(p, &seen), 0);
	assert_int_equal(os_atomic_read(&p->losses), 1);
	assert_int_equal(rig_state(p, 1), KVE_MEMBER_FAILED | KVE_MEMBER_LOST);
	assert_true(rig_logged("m1) lost"));
	assert_int_equal(rig_found(p, 0, 20), 10);
	rig_stored(p, 200, 10);
	assert_int_equal(rig_found(p, 200, 10), 10);
	kve_pool_put(p);
	/* what was flushed before comes back with the member */
	rig_fail(NULL, 0);
	p = rig_attach();
	assert_int_equal(rig_found(p, 0, 20), 20);
	assert_int_equal(rig_found(p, 200, 10), 10);
	assert_int_equal(rig_found(p, 100, 1), 0);
	kve_pool_put(p);
}

static void a_member_that_cannot_be_written_is_lost(void **state)
{
	(void)state;
	a_member_that_fails_is_lost(RIG_WRITES);
}

static void a_member_that_cannot_be_flushed_is_lost(void **state)
{
	(void)state;
	a_member_that_fails_is_lost(RIG_SYNCS);
}

static void all_members_lost(void **state)
{
	struct kve_pool *p;
	u32 seen = 0;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	rig_stored(p, 0, 3);
	kve_member_failed(&p->members[0]);
	kve_member_failed(&p->members[0]);
	assert_int_equal(rig_flush(p, &seen), -EIO);
	assert_int_equal(rig_store(p, 10, 100), -ENODEV);
	assert_int_equal(rig_load(p, 0, 10000), -ENODEV);
	p = rig_again(p);
	kve_pool_put(p);
}

/* The pool is written over several times, by threads, while others read and flush. */
struct churn {
	pthread_t thread;
	struct kve_pool *p;
	u32 n;
	u32 stored;
};

static void *churn(void *arg)
{
	struct churn *c = arg;
	u32 i;
	int err;

	for (i = 0; i < 400; i++) {
		while ((err = rig_store(c->p, c->n << 16 | i, 40000)) == -EAGAIN)
			usleep(100);
		c->stored += !err;
		if (i % 32 == 0)
			rig_flush(c->p, NULL);
		if (i % 8 == 0)
			rig_load(c->p, c->n << 16 | i / 2, 40000);
	}
	return NULL;
}

static void space_is_made(void **state)
{
	struct churn c[3] = { { .n = 1 }, { .n = 2 }, { .n = 3 } };
	struct kve_pool *p;
	u32 i, j, found = 0;
	struct kvc_stats st;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	for (i = 0; i < 3; i++) {
		c[i].p = p;
		assert_int_equal(pthread_create(&c[i].thread, NULL, churn, &c[i]), 0);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(c[i].thread, NULL);
		assert_int_equal(c[i].stored, 400);
	}
	kvc_stats_get(p->core, &st);
	assert_true(st.evicted_pages > 500);
	p = rig_again(p);
	for (i = 1; i <= 3; i++)
		for (j = 0; j < 400; j++) {
			int err = rig_load(p, i << 16 | j, 40000);

			assert_true(!err || err == -ENOENT);
			found += !err;
		}
	assert_in_range(found, 50, 220);
	kve_pool_put(p);
}

/* Jobs */

static struct { struct kve_job job; struct kve_pool *p; u32 runs; u64 at; bool again; } jobs[3];

static void job_runs(struct kve_job *job)
{
	u32 i;

	for (i = 0; &jobs[i].job != job; i++)
		;
	jobs[i].at = kve_now();
	if (jobs[i].again && __atomic_load_n(&jobs[i].runs, __ATOMIC_RELAXED) < 5)
		kve_job_queue(jobs[i].p, job, kve_now() + KVE_NSEC / 1000);
	__atomic_add_fetch(&jobs[i].runs, 1, __ATOMIC_SEQ_CST);
}

static u32 runs(u32 i)
{
	return __atomic_load_n(&jobs[i].runs, __ATOMIC_SEQ_CST);
}

static struct { struct kve_job job; struct kve_pool *p; u32 begun, ended; bool late; } slow;

static void slow_runs(struct kve_job *job)
{
	__atomic_add_fetch(&slow.begun, 1, __ATOMIC_SEQ_CST);
	if (slow.late)
		usleep(10000);
	kve_job_queue(slow.p, job, 0);
	usleep(20000);
	__atomic_add_fetch(&slow.ended, 1, __ATOMIC_SEQ_CST);
}

static void a_job_that_is_cancelled_is_over(void **state)
{
	struct kve_pool *p;
	u32 i, ended;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	slow.p = p;
	slow.job.fn = slow_runs;
	for (i = 0; i < 5; i++) {
		slow.begun = 0;
		slow.ended = 0;
		slow.late = i % 2;	/* when somebody waits for its end */
		kve_job_queue(p, &slow.job, 0);
		while (!__atomic_load_n(&slow.begun, __ATOMIC_SEQ_CST))
			usleep(100);
		kve_job_cancel(p, &slow.job);
		/* also where it has queued itself again while it ran */
		ended = slow.ended;
		assert_int_equal(slow.begun, ended);
		assert_false(slow.job.queued);
		usleep(30000);
		assert_int_equal(slow.begun, ended);
	}
	kve_pool_put(p);
}

static struct { struct kve_job job; bool begun, go; } busy;	/* atomically */

/* Keeps the attendant from all others */
static void busy_runs(struct kve_job *job)
{
	(void)job;
	__atomic_store_n(&busy.begun, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&busy.go, __ATOMIC_SEQ_CST))
		usleep(100);
}

static void jobs_run_in_time(void **state)
{
	struct kve_pool *p;
	u64 start;
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	memset(jobs, 0, sizeof(jobs));
	for (i = 0; i < 3; i++) {
		jobs[i].job.fn = job_runs;
		jobs[i].p = p;
	}
	start = kve_now();
	kve_job_queue(p, &jobs[0].job, start + 1000 * KVE_NSEC);
	kve_job_queue(p, &jobs[1].job, start + KVE_NSEC / 20);
	jobs[2].again = true;
	kve_job_queue(p, &jobs[2].job, 0);
	while (!runs(1) || runs(2) < 6)
		usleep(1000);
	assert_true(jobs[1].at >= start + KVE_NSEC / 20);
	assert_int_equal(runs(0), 0);
	/* earlier than it was queued for */
	kve_job_queue(p, &jobs[0].job, kve_now());
	kve_job_queue(p, &jobs[0].job, KVE_NEVER);
	while (!runs(0))
		usleep(1000);
	memset(&busy, 0, sizeof(busy));
	busy.job.fn = busy_runs;
	kve_job_queue(p, &busy.job, 0);
	while (!__atomic_load_n(&busy.begun, __ATOMIC_SEQ_CST))
		usleep(100);
	kve_job_queue(p, &jobs[1].job, 0);
	kve_job_cancel(p, &jobs[1].job);
	kve_job_cancel(p, &jobs[1].job);
	kve_job_queue(p, &jobs[0].job, kve_now());
	__atomic_store_n(&busy.go, true, __ATOMIC_SEQ_CST);
	/* it would be behind the other one */
	while (runs(0) < 2)
		usleep(1000);
	assert_int_equal(runs(1), 1);
	kve_pool_put(p);
}

/* A write beyond the limit would be a signal for the program */
static void files_beyond_the_limit(void **state)
{
	struct rlimit before, limit;

	(void)state;
	rig_make(rig_dir, 1);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = RIG_BYTES - 1;
	setrlimit(RLIMIT_FSIZE, &limit);
	rig_refused(-EFBIG, "RLIMIT_FSIZE");
	setrlimit(RLIMIT_FSIZE, &before);
	kve_pool_put(rig_attach());
}

static void a_file_system_without_direct_io(void **state)
{
	(void)state;
	if (mount("none", rig_dir, "ramfs", 0, ""))
		skip();
	rig_make(rig_dir, 1);
	rig_refused(-EOPNOTSUPP, "O_DIRECT");
	umount(rig_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_are_found_again),
		TEST(one_engine_serves_all_of_a_process),
		TEST(tenants_by_name),
		TEST(directories_without_a_pool),
		TEST(what_else_is_in_the_directory),
		TEST(members_may_be_links),
		TEST(a_worn_copy_is_written_again),
		TEST(damaged_superblocks),
		TEST(members_that_do_not_fit),
		TEST(a_member_may_be_missing_on_demand),
		TEST(members_have_one_history),
		TEST(a_member_that_cannot_be_written_is_lost),
		TEST(a_member_that_cannot_be_flushed_is_lost),
		TEST(all_members_lost),
		TEST(space_is_made),
		TEST(jobs_run_in_time),
		TEST(a_job_that_is_cancelled_is_over),
		TEST(files_beyond_the_limit),
		TEST(a_file_system_without_direct_io),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
