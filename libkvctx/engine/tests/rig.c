// SPDX-License-Identifier: LGPL-2.1-or-later
/* See rig.h. */
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <liburing.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kvctx.h"
#include "rig.h"

#define LOG_MAX		(64U << 10)

char rig_dir[256];
char rig_why[KVE_WHY];
u64 rig_members;
s64 (*rig_result)(s64 res);
bool rig_stalled;
u32 rig_stuck;
bool rig_held;
bool rig_full;
bool rig_gone;
u32 rig_sleeps;
static char rig_log[LOG_MAX];			/* log.c has a lock around the call */
static size_t rig_log_len;

struct kve_session;

/* A device that fails */
static struct { int what; dev_t dev; ino_t ino; } rig_bad;

static bool rig_fails(int fd, int what)
{
	struct stat st;

	/* pairs with rig_fail() */
	return (os_load_acquire(&rig_bad.what) & what) && !fstat(fd, &st) && st.st_dev == rig_bad.dev &&
	       st.st_ino == rig_bad.ino;
}

ssize_t __real_preadv64v2(int fd, const struct iovec *v, int n, off_t at, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int n, off_t at, int flags);
ssize_t __real_pwritev64v2(int fd, const struct iovec *v, int n, off_t at, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int n, off_t at, int flags);
unsigned int __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned int count);
unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned int count);
int __real_io_uring_wait_cqes(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int nr,
			      struct __kernel_timespec *ts, sigset_t *mask);
int __wrap_io_uring_wait_cqes(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int nr,
			      struct __kernel_timespec *ts, sigset_t *mask);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
bool __real_kve_touch(struct kve_session *s);
bool __wrap_kve_touch(struct kve_session *s);

static struct os_atomic rig_events = { -1 };

void rig_power(int events)
{
	os_atomic_set(&rig_events, (u32)events);
}

bool rig_dark(void)
{
	int left = (int)os_atomic_read(&rig_events);

	while (left > 0 && !__atomic_compare_exchange_n((int *)&rig_events, &left, left - 1, false, __ATOMIC_SEQ_CST,
							__ATOMIC_SEQ_CST))
		;
	return !left;
}

bool rig_power_went(void)
{
	return !os_atomic_read(&rig_events);
}

/* Is this one of the threads that make transfers of sessions? */
static bool rig_of_session(void)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	return !strcmp(name, "kvctx-io");
}

static void rig_wait(void)
{
	bool own = !rig_of_session(), *waits = own ? &rig_stalled : &rig_held;

	if (!READ_ONCE(*waits))
		return;
	__atomic_add_fetch(&rig_stuck, own, __ATOMIC_SEQ_CST);
	while (READ_ONCE(*waits))
		usleep(100);
	__atomic_sub_fetch(&rig_stuck, own, __ATOMIC_SEQ_CST);
}

static ssize_t rig_told(ssize_t res)
{
	s64 (*result)(s64 res) = __atomic_load_n(&rig_result, __ATOMIC_ACQUIRE);
	s64 told = res < 0 ? -errno : res;

	if (result && rig_of_session())
		told = result(told);
	if (told >= 0)
		return told;
	errno = (int)-told;
	return -1;
}

static ssize_t rig_bytes_of(const struct iovec *v, int n)
{
	ssize_t sum = 0;

	while (n--)
		sum += (ssize_t)v[n].iov_len;
	return sum;
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	if (rig_of_session())
		rig_wait();
	errno = EIO;
	return rig_told(rig_fails(fd, RIG_READS) ? -1 : __real_preadv64v2(fd, v, n, at, flags));
}

ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	rig_wait();
	if (rig_dark())
		return rig_told(rig_bytes_of(v, n));
	errno = EIO;
	return rig_told(rig_fails(fd, RIG_WRITES) ? -1 : __real_pwritev64v2(fd, v, n, at, flags));
}

unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned int count)
{
	unsigned int nr = READ_ONCE(rig_held) ? 0 : __real_io_uring_peek_batch_cqe(ring, cqes, count), i;
	s64 (*result)(s64 res) = __atomic_load_n(&rig_result, __ATOMIC_ACQUIRE);

	for (i = 0; i < nr && result; i++)
		if (cqes[i]->user_data)
			cqes[i]->res = (s32)result(cqes[i]->res);
	return nr;
}

int __wrap_io_uring_wait_cqes(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int nr,
			      struct __kernel_timespec *ts, sigset_t *mask)
{
	__atomic_add_fetch(&rig_sleeps, 1, __ATOMIC_RELEASE);
	/* what is held wakes who waits for it, again and again */
	if (READ_ONCE(rig_held))
		usleep(100);
	return __real_io_uring_wait_cqes(ring, cqe, nr, ts, mask);
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
	return READ_ONCE(rig_full) ? -EAGAIN : __real_io_uring_submit(ring);
}

int __wrap_fdatasync(int fd)
{
	errno = EIO;
	return rig_fails(fd, RIG_SYNCS) ? -1 : __real_fdatasync(fd);
}

bool __wrap_kve_touch(struct kve_session *s)
{
	return !READ_ONCE(rig_gone) && __real_kve_touch(s);
}

void rig_fail(const char *path, int what)
{
	struct stat st;

	if (path) {
		assert_int_equal(stat(path, &st), 0);
		rig_bad.dev = st.st_dev;
		rig_bad.ino = st.st_ino;
	}
	os_store_release(&rig_bad.what, path ? what : 0);
}

static void rig_hear(void *arg, int priority, const char *text)
{
	(void)arg, (void)priority;
	rig_log_len += (size_t)snprintf(rig_log + rig_log_len, LOG_MAX - rig_log_len, "%s\n", text);
}

bool rig_logged(const char *text)
{
	bool found;

	kvctx_set_log(NULL, NULL);
	found = strstr(rig_log, text);
	kvctx_set_log(rig_hear, NULL);
	return found;
}

/* Sanitizers are slow, and the machine may be busy */
static unsigned int rig_patience(unsigned int seconds)
{
	const char *times = getenv("KVCTX_PATIENCE");

	return seconds * (times ? (unsigned int)atoi(times) : 1);
}

/* Beside the program: its build directory is on a disk, where a system's directory for temporary files may not be */
int rig_setup(void **state)
{
	char self[200] = "";

	(void)state;
	alarm(rig_patience(120));	/* a hang is a failure */
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(rig_dir, sizeof(rig_dir), "%s/pool-XXXXXX", dirname(self));
	assert_non_null(mkdtemp(rig_dir));
	rig_members = KVC_ANY_MEMBER;
	rig_log_len = 0;
	rig_log[0] = 0;
	kvctx_set_log(rig_hear, NULL);
	return 0;
}

int rig_setup_uring(void **state)
{
	unsetenv("KVCTX_IO");
	return rig_setup(state);
}

int rig_setup_threads(void **state)
{
	setenv("KVCTX_IO", "threads", 1);
	return rig_setup(state);
}

int rig_teardown(void **state)
{
	char command[300];

	(void)state;
	rig_fail(NULL, 0);
	rig_power(-1);
	rig_tell(NULL);
	WRITE_ONCE(rig_stalled, false);
	WRITE_ONCE(rig_held, false);
	WRITE_ONCE(rig_full, false);
	WRITE_ONCE(rig_gone, false);
	kvctx_set_log(NULL, NULL);
	umount2(rig_dir, MNT_DETACH);	/* of a test that failed with a file system there */
	snprintf(command, sizeof(command), "rm -rf '%s'", rig_dir);
	return system(command);
}

const char *rig_path(const char *name)
{
	static __thread char path[4][300];
	static __thread int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", rig_dir, name);
	return path[n];
}

void rig_file(const char *path, const void *bytes, size_t len, u64 size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(kve_write_all(fd, bytes, len, 0), 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

void rig_copy(const char *from, const char *to)
{
	char command[700];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
}

void rig_make(const char *dir, u32 members)
{
	struct kve_format f = { .nr = members };
	char path[300];
	u32 i;

	f.super = calloc(1, sizeof(*f.super));
	strcpy(f.super->pool_name, "test");
	f.super->segment_size = RIG_SEGMENT;
	f.super->chunk_size = KVC_CHUNK_MIN;
	for (i = 0; i < members; i++) {
		snprintf(path, sizeof(path), "%s/m%u", dir, i);
		rig_file(path, "", 0, RIG_BYTES);
		f.place[i] = (struct kve_place){ open(path, O_RDWR | O_CLOEXEC), RIG_BYTES };
	}
	assert_int_equal(kve_format_describe(&f), 0);
	assert_int_equal(kve_format_write(&f), 0);
	for (i = 0; i < members; i++)
		close(f.place[i].fd);
	free(f.super);
}

int rig_get(struct kve_pool **p)
{
	rig_why[0] = 0;
	return kve_pool_get(rig_dir, p, rig_why);
}

struct kve_pool *rig_attach(void)
{
	struct kve_pool *p = NULL;
	int err = rig_get(&p);

	if (err)
		fail_msg("attach: %s (%s)", rig_why, strerror(-err));
	return p;
}

u32 rig_state(struct kve_pool *p, u32 member)
{
	return kve_member_state(&p->members[member]);
}

struct kve_pool *rig_again(struct kve_pool *p)
{
	assert_true(kve_pool_put(p));
	return rig_attach();
}

void rig_refused(int err, const char *why)
{
	struct kve_pool *p;
	int got = rig_get(&p);

	if (got != err || !strstr(rig_why, why))
		fail_msg("attach: %d '%s', not %d '%s'", got, rig_why, err, why);
}

static void rig_key(u8 key[KVC_KEY_LEN], u32 id)
{
	memset(key, 0, KVC_KEY_LEN);
	memcpy(key, &id, sizeof(id));
}

static void rig_bytes(u8 *buf, u32 id, u32 len)
{
	u32 i;

	for (i = 0; i < len; i++)
		buf[i] = (u8)(id * 37 + i + (i >> 8));
}

static struct kvc_domain *rig_domain(struct kve_pool *p)
{
	static const u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;
	u32 slot, flags;

	assert_int_equal(kve_pool_tenant(p, "default", &slot, &flags), 0);
	assert_int_equal(flags, 0);
	assert_int_equal(kvc_domain_open(p->core, slot, keyspace, &d), 0);
	return d;
}

static int rig_transfer(struct kve_pool *p, struct kvc_store *st, u32 id, u32 len)
{
	u32 padded = kvc_blocks(len) << KVC_BLOCK_SHIFT, size = kvc_chunk_size(p->core), i;
	u8 *buf = aligned_alloc(KVC_BLOCK, padded);
	int err;

	memset(buf, 0, padded);
	rig_bytes(buf, id, len);
	err = kve_device_write(p->members[st->member].dev, buf, padded, st->offset, false);
	for (i = 0; i < st->nr_chunks; i++)
		kvc_store_crc(p->core, st, i,
			      kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, buf + i * size, min(size, len - i * size))));
	free(buf);
	return err;
}

int rig_store(struct kve_pool *p, u32 id, u32 len)
{
	struct kvc_domain *d = rig_domain(p);
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	int err;

	rig_key(key, id);
	err = kvc_store_begin(p->core, d, key, len, 0, rig_members, &st);
	if (!err) {
		err = rig_transfer(p, &st, id, len);
		if (err)
			kvc_store_abort(p->core, &st);
		else
			kvc_store_commit(p->core, &st);
	}
	kvc_domain_put(p->core, d);
	return err;
}

int rig_load(struct kve_pool *p, u32 id, u32 len)
{
	u32 padded = kvc_blocks(len) << KVC_BLOCK_SHIFT;
	u8 *buf = aligned_alloc(KVC_BLOCK, padded), *want = malloc(len), key[KVC_KEY_LEN];
	struct kvc_domain *d = rig_domain(p);
	struct kvc_load ld;
	int err;

	rig_key(key, id);
	rig_bytes(want, id, len);
	err = kvc_load_begin(p->core, d, key, &ld);
	if (!err) {
		assert_int_equal(ld.length, len);
		err = kve_device_read(p->members[ld.member].dev, buf, padded, ld.offset);
		if (!err && memcmp(buf, want, len))
			err = -EBADMSG;
		kvc_load_end(p->core, &ld, err);
	}
	kvc_domain_put(p->core, d);
	free(buf);
	free(want);
	return err;
}

#define RIG_PAGE	10000U

/* A segment that is being made ready is waited for, as a session does. */
void rig_stored(struct kve_pool *p, u32 from, u32 nr)
{
	u32 i;
	int err;

	for (i = from; i < from + nr; i++) {
		while ((err = rig_store(p, i, RIG_PAGE)) == -EAGAIN)
			usleep(100);
		assert_int_equal(err, 0);
	}
}

void rig_store_on(struct kve_pool *p, u32 member, u32 from, u32 nr)
{
	rig_members = BIT_ULL(member);
	rig_stored(p, from, nr);
	rig_members = KVC_ANY_MEMBER;
}

u32 rig_found(struct kve_pool *p, u32 from, u32 nr)
{
	u32 i, found = 0;

	for (i = from; i < from + nr; i++)
		found += !rig_load(p, i, RIG_PAGE);
	return found;
}

struct rig_flush {
	struct kve_flush f;
	pthread_mutex_t lock;
	pthread_cond_t end;
	bool done;
};

static void rig_flushed(struct kve_flush *f)
{
	struct rig_flush *r = (struct rig_flush *)f;

	pthread_mutex_lock(&r->lock);
	r->done = true;
	pthread_cond_signal(&r->end);
	pthread_mutex_unlock(&r->lock);
}

int rig_flush(struct kve_pool *p, u32 *losses_seen)
{
	struct rig_flush r = { .f = { .pool = p, .done = rig_flushed, .losses_seen = losses_seen } };

	pthread_mutex_init(&r.lock, NULL);
	pthread_cond_init(&r.end, NULL);
	kve_flush_start(&r.f);
	pthread_mutex_lock(&r.lock);
	while (!r.done)
		pthread_cond_wait(&r.end, &r.lock);
	pthread_mutex_unlock(&r.lock);
	return r.f.err;
}

int rig_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
