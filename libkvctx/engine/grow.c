// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Members that come and go while the pool is in use. kmod/control/grow.c is the model; here the pool's directory has to
 * name the members too, at every moment at which the process may die.
 *
 * Add: the device is opened, what may look like a segment of ours is cleared, and then
 *	1  the new one gets the superblock with it
 *	2  the directory has it: an attach finds it now, and its superblock is the newest
 *	3  the others get that superblock
 *	4  it is used
 * Who dies before 2 leaves the old pool, who dies later the new one. A file that is made for it has no name before 2.
 *
 * Remove takes as long as its pages take to leave, so it is only begun by the call: the engine hands out the moves as
 * work of the member. When it has none any more the leaver ends it:
 *	1  all members are flushed, so that all copies are durable
 *	2  the others get the superblock without it
 *	3  the directory has it no more
 *	4  its own superblocks are wiped, and the device is let go. If 3 failed they stay: an attach must be able to tell
 *	   that it was a member
 * Who dies before 2, or detaches, leaves the pool with the member, and its pages where they were. An attach between 2
 * and 3 finds a superblock that is older than those that lack it, leaves the device alone and takes it out of the
 * directory.
 *
 * The leaver is a thread of the pool's, from its first removal on: workers tell it (kve_leave_look()) and must not wait,
 * as it waits for their flushes. It holds super_lock from 2 on, but not over the flush, since a member that is lost
 * meanwhile takes that.
 */
#include <libgen.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "format.h"
#include "pools.h"

#define LEAVE_RETRY	(KVE_NSEC / 10)

struct newcomer {
	struct kve_pool *pool;
	const char *path;
	char *why;
	struct kve_device *dev;		/* NULL: the member has it */
	struct kve_file file;		/* of one that is made for it */
	bool made, linked;		/* a file was made, with its name; the directory has a link */
	u32 nr_segments;
};

/* Its superblocks, at both ends: nobody shall take it for a member any more. super_lock */
static void grow_wipe(struct kve_member *m)
{
	struct kve_pool *p = m->pool;
	int err = 0;
	u32 i;

	if (kve_member_state(m) & KVE_MEMBER_FAILED)
		return;
	memset(p->super_buf, 0, KVC_SUPER_BYTES);
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		err = kve_device_write(m->dev, p->super_buf, KVC_SUPER_BYTES, kvc_super_offset(i, m->dev->bytes),
				       true) ?: err;
	if (err)
		kve_log(LOG_WARNING, "pool %s: %s still has superblocks of the pool", p->name, m->dev->path);
}

/* Does a link of that name lead nowhere? */
static bool grow_dangles(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISLNK(st.st_mode) && stat(path, &st);
}

/*
 * The directory has it no more: neither that device by its name nor, where that has gone, what is left of its link.
 * false: it still has
 */
static bool grow_forget_entry(const struct kve_device *d)
{
	if (!kve_device_is(d, d->path) && !grow_dangles(d->path))
		return true;
	if (!unlink(d->path) && !kve_sync_directory_of(d->path))
		return true;
	kve_log(LOG_WARNING, "%s: cannot be taken out of the directory: %s", d->path, strerror(errno));
	return false;
}

/* The member leaves its place. Nothing of it is in flight, and the engine has nothing to do with it. */
static void grow_exit(struct kve_member *m)
{
	const u32 none = KVE_MEMBER_FAILED | KVE_MEMBER_LOST;

	/* from now on its worker serves flushes, and does nothing to the device */
	__atomic_fetch_or(&m->state, none, __ATOMIC_SEQ_CST);
	kve_holders_let_go(m->pool, m->index);
	if (m->dev)
		kve_device_let_go(m->dev);
	/* who sees this finds the device free */
	__atomic_store_n(&m->state, none | KVE_MEMBER_REMOVED, __ATOMIC_SEQ_CST);
	/* flushes may have come */
	kve_member_kick(m);
}

/* Add */

/* A file without a name is opened a second time, for the engine. */
static int add_make_file(struct newcomer *n, u64 bytes)
{
	int err = kve_file_begin(&n->file, n->path, bytes & ~(u64)(KVC_BLOCK - 1));
	char self[32];

	if (err == -EEXIST)
		return kve_refuse(n->why, err, "%s: is there already; without a size it is taken as it is", n->path);
	if (err)
		return kve_refuse(n->why, err, "%s: cannot be made: %s", n->path, strerror(-err));
	snprintf(self, sizeof(self), "/proc/self/fd/%d", n->file.fd);
	flock(n->file.fd, LOCK_UN);
	return kve_device_open(n->dev, self, n->why);
}

/* Could it be a member? */
static int add_take(struct newcomer *n, u64 bytes)
{
	struct kve_pool *p = n->pool;
	u64 size = kvc_super_of(p->core)->segment_size;
	int err = bytes ? add_make_file(n, bytes) : kve_device_open(n->dev, n->path, n->why);
	bool room;

	if (err)
		return err;
	n->nr_segments = kvc_device_segments(n->dev->bytes, size);
	if (!n->nr_segments)
		return kve_refuse(n->why, -ENOSPC, "%s: too small, a member needs %llu bytes", n->path,
				  (unsigned long long)kvc_device_bytes(KVC_SEGMENTS_MIN, size));
	pthread_mutex_lock(&p->config_lock);
	room = kvc_member_room(p->core);
	pthread_mutex_unlock(&p->config_lock);
	return room ? 0 : kve_refuse(n->why, -ENOSPC, "pool %s has no place for another member", p->name);
}

static int add_check_blank(struct newcomer *n)
{
	struct kvc_super *super = calloc(1, sizeof(*super));
	struct kve_candidate c = { .dev = n->dev };
	int err;

	if (!super)
		return kve_refuse(n->why, -ENOMEM, "out of memory");
	err = kve_candidate_read(&c, super, n->why);
	if (!err)
		err = kve_refuse(n->why, -EEXIST, "%s: holds a member of pool %s", n->path, super->pool_name);
	else if (err == -EMEDIUMTYPE)
		err = 0;
	else
		kve_refuse(n->why, err, "%s: holds something like a pool: %s", n->path, strerror(-err));
	free(super);
	return err;
}

/* The device may have been a member of this pool once: no segment may be taken for one of the new member. */
static int add_clear_segments(struct newcomer *n)
{
	u64 size = kvc_super_of(n->pool->core)->segment_size, offset = KVC_DATA_OFFSET;
	void *block = aligned_alloc(KVC_BLOCK, KVC_BLOCK);
	int err = block ? 0 : -ENOMEM;
	u32 i, bytes;

	for (i = 0; i < n->nr_segments && !err; i++, offset += size) {
		err = kve_device_read(n->dev, block, KVC_BLOCK, offset);
		if (err || kvc_extent_peek(block, &bytes) != KVC_OK)
			continue;
		memset(block, 0, KVC_BLOCK);
		err = kve_device_write(n->dev, block, KVC_BLOCK, offset, true);
	}
	free(block);
	return err ? kve_refuse(n->why, err, "%s: cannot be cleared: %s", n->path, strerror(-err)) : 0;
}

struct add_search {
	const struct kve_device *dev;
	char *found;
};

static int add_look(void *arg, const char *path)
{
	struct add_search *s = arg;

	if (!kve_device_is(s->dev, path))
		return 0;
	s->found = strdup(path);
	return 1;
}

/* The entry that the pool's directory has of the device already; to be freed. NULL: none */
static char *add_known_name(const struct newcomer *n)
{
	struct add_search s = { .dev = n->dev };

	kve_dir_each(n->pool->dir, add_look, &s);
	return s.found;
}

/* Would @path be an entry of the pool's directory that an attach looks at? */
static bool add_lies_there(const struct kve_pool *p, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *copy = strdup(path);
	struct stat st;
	bool there;

	there = copy && !stat(dirname(copy), &st) && st.st_dev == p->dir_dev && st.st_ino == p->dir_ino &&
		*(slash ? slash + 1 : path) != '.';
	free(copy);
	return there;
}

/* A name that the directory does not have; to be freed */
static char *add_free_name(const struct kve_pool *p, u32 member)
{
	char *path = NULL;
	struct stat st;
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		if ((i ? asprintf(&path, "%s/member%u-%u", p->dir, member, i) :
			 asprintf(&path, "%s/member%u", p->dir, member)) < 0)
			return NULL;
		if (lstat(path, &st))
			break;
		free(path);
		path = NULL;
	}
	return path;
}

/* What the directory will call the member: the device has that as its path from now on. */
static int add_name(struct newcomer *n, u32 member)
{
	struct kve_pool *p = n->pool;
	const char *slash = strrchr(n->path, '/');
	char *name = add_known_name(n);

	if (!name && n->file.fd >= 0 && add_lies_there(p, n->path)) {
		if (asprintf(&name, "%s/%s", p->dir, slash ? slash + 1 : n->path) < 0)
			name = NULL;
	} else if (!name) {
		n->linked = true;
		name = add_free_name(p, member);
	}
	if (!name)
		return kve_refuse(n->why, -ENOMEM, "%s: out of memory", n->path);
	free(n->dev->path);
	n->dev->path = name;
	return 0;
}

static int add_link(const char *path, const char *name)
{
	char *whole = realpath(path, NULL);
	int err = 0;

	/* as it was given, if it can be: it may be a name that lasts, where what it leads to does not */
	if (!whole || symlink(*path == '/' ? path : whole, name))
		err = -errno;
	free(whole);
	return err ?: kve_sync_directory_of(name);
}

/* The file gets its name, the directory its link. */
static int add_entry(struct newcomer *n, const struct kve_device *d)
{
	int err = 0;

	if (n->file.fd >= 0) {
		err = kve_file_publish(&n->file);
		n->made = !err;
	}
	if (!err && n->linked)
		err = add_link(n->path, d->path);
	return err ? kve_refuse(n->why, err, "%s: cannot get a name in the directory: %s", n->path, strerror(-err)) : 0;
}

/* A place with a worker. super_lock */
static int add_place(struct newcomer *n, u32 i)
{
	struct kve_pool *p = n->pool;
	struct kve_member *m = &p->members[i];
	int err = m->run ? 0 : kve_worker_init(m);
	u32 nr;

	/* where there was no thread once the engine has counted a place that we have not */
	for (nr = p->nr_members; nr <= i && !err; nr++) {
		err = kve_worker_start(&p->members[nr]);
		if (!err)
			os_store_release(&p->nr_members, nr + 1);
	}
	return err ? kve_refuse(n->why, err, "%s: no thread can be had: %s", n->path, strerror(-err)) : 0;
}

static int add_write(struct newcomer *n, struct kve_member *m)
{
	int err = kve_member_write_super(m);

	if (!err)
		err = add_entry(n, m->dev);
	else
		kve_refuse(n->why, err, "%s: no superblock could be written", n->path);
	if (!err && (kve_members_write_super(n->pool) || kve_member_state(m) & KVE_MEMBER_FAILED))
		err = kve_refuse(n->why, -EIO, "%s: no superblock could be written", n->path);
	return err;
}

/* The member is none after all: the others forget it too. super_lock */
static void add_take_back(struct newcomer *n, struct kve_member *m)
{
	struct kve_pool *p = n->pool;
	bool none = true;

	pthread_mutex_lock(&p->config_lock);
	kvc_member_cancel(p->core, m->index);
	pthread_mutex_unlock(&p->config_lock);
	kve_members_write_super(p);
	if (n->dev)
		return;
	if (n->linked)
		none = grow_forget_entry(m->dev);
	if (n->made && (unlink(n->path) || kve_sync_directory_of(n->path)))
		kve_log(LOG_WARNING, "%s: cannot be deleted: %s", n->path, strerror(errno));
	if (none)
		grow_wipe(m);
	grow_exit(m);
}

/* The device becomes a member that the engine knows. super_lock */
static int add_bring(struct newcomer *n, struct kve_member *m)
{
	int err = add_name(n, m->index) ?: add_place(n, m->index);

	if (!err) {
		kve_member_enter(m, n->dev);
		n->dev = NULL;
		err = add_write(n, m);
	}
	if (err) {
		add_take_back(n, m);
		return err;
	}
	kvc_member_join(n->pool->core, m->index);
	/* a loss before that was none to the engine */
	if (kve_member_state(m) & KVE_MEMBER_FAILED)
		kvc_member_fail(n->pool->core, m->index);
	kve_log(LOG_INFO, "pool %s: member %u (%s) added", n->pool->name, m->index, n->path);
	return 0;
}

static int add_member(struct newcomer *n)
{
	struct kve_pool *p = n->pool;
	u8 uuid[KVC_UUID_LEN];
	int err;

	if (getrandom(uuid, sizeof(uuid), 0) != sizeof(uuid))
		return kve_refuse(n->why, -errno, "no random numbers");
	pthread_mutex_lock(&p->super_lock);
	pthread_mutex_lock(&p->config_lock);
	err = kvc_member_add(p->core, uuid, n->nr_segments);
	pthread_mutex_unlock(&p->config_lock);
	if (err < 0)
		kve_refuse(n->why, err, "%s: the engine does not take it: %s", n->path, strerror(-err));
	else
		err = add_bring(n, &p->members[err]);
	pthread_mutex_unlock(&p->super_lock);
	return err;
}

int kve_pool_add(struct kve_pool *p, const char *path, u64 bytes, bool dry_run, char *why)
{
	struct newcomer n = { .pool = p, .path = path, .why = why, .file.fd = -1 };
	int err;

	if (kve_broken())
		return kve_refuse(why, -ENODEV, "an invariant of this process's engine is broken");
	n.dev = calloc(1, sizeof(*n.dev));
	if (!n.dev)
		return kve_refuse(why, -ENOMEM, "out of memory");
	n.dev->fd = -1;
	err = add_take(&n, bytes);
	if (!err && !dry_run)
		err = add_check_blank(&n) ?: add_clear_segments(&n) ?: add_member(&n);
	if (n.dev)
		kve_device_close(n.dev);
	free(n.dev);
	kve_file_drop(&n.file);
	return err;
}

/* Remove */

/* super_lock */
static void leave_take_out(struct kve_member *m)
{
	struct kve_pool *p = m->pool;

	pthread_mutex_lock(&p->config_lock);
	kvc_member_remove(p->core, m->index);
	pthread_mutex_unlock(&p->config_lock);
	if (kve_members_write_super(p)) {
		kve_log(LOG_ERR, "pool %s: member %u not removed, no superblock could be written", p->name, m->index);
		return;
	}
	kvc_member_forget(p->core, m->index);
	if (m->dev && grow_forget_entry(m->dev))
		grow_wipe(m);
	kve_log(LOG_INFO, "pool %s: member %u (%s) removed", p->name, m->index, m->dev ? m->dev->path : "missing");
	if (kve_member_told)
		kve_member_told(m, KVE_MEMBER_HAS_LEFT);
	grow_exit(m);
}

/* Its pages have left it. false: it has to be tried again */
static bool leave_end(struct kve_member *m)
{
	struct kve_pool *p = m->pool;

	if (kve_pool_flush(p))
		return false;
	pthread_mutex_lock(&p->super_lock);
	if (kvc_member_left(p->core, m->index))
		leave_take_out(m);
	pthread_mutex_unlock(&p->super_lock);
	return true;
}

static bool leave_members(struct kve_pool *p)
{
	u32 i, nr = kve_nr_members(p);
	bool all = true;

	for (i = 0; i < nr && !kve_broken(); i++)
		if ((kve_member_state(&p->members[i]) & KVE_MEMBER_LEAVING) && kvc_member_left(p->core, i))
			all &= leave_end(&p->members[i]);
	return all;
}

static void *leave(void *arg)
{
	struct kve_pool *p = arg;
	u64 until = KVE_NEVER;

	pthread_mutex_lock(&p->lock);
	while (!p->leave_stop) {
		if (!p->leave_look && kve_now() < until) {
			kve_cond_wait(&p->leave, &p->lock, until);
			continue;
		}
		p->leave_look = false;
		pthread_mutex_unlock(&p->lock);
		until = leave_members(p) ? KVE_NEVER : kve_now() + LEAVE_RETRY;
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* super_lock */
static int leave_begin(struct kve_pool *p, u32 member, bool move, char *why)
{
	int err = 0;

	if (member >= kve_nr_members(p) || kve_member_state(&p->members[member]) & KVE_MEMBER_REMOVED)
		return kve_refuse(why, -ENOENT, "pool %s has no member %u", p->name, member);
	if (!p->leaves)
		err = kve_thread_start(&p->leaver, leave, p, "kvctx-leave");
	if (err)
		return kve_refuse(why, err, "no thread can be had: %s", strerror(-err));
	p->leaves = true;
	err = kvc_member_leave(p->core, member, move);
	if (err == -EBUSY)
		return kve_refuse(why, err, "no member but %u is online, or it has just returned", member);
	if (err)
		return kve_refuse(why, err, "member %u is leaving already", member);
	__atomic_fetch_or(&p->members[member].state, KVE_MEMBER_LEAVING, __ATOMIC_SEQ_CST);
	return 0;
}

int kve_pool_remove(struct kve_pool *p, u32 member, bool move, char *why)
{
	int err;

	if (kve_broken())
		return kve_refuse(why, -ENODEV, "an invariant of this process's engine is broken");
	pthread_mutex_lock(&p->super_lock);
	err = leave_begin(p, member, move, why);
	pthread_mutex_unlock(&p->super_lock);
	if (!err)
		kve_member_kick(&p->members[member]);
	return err;
}

/* Nobody begins one any more. */
void kve_leave_stop(struct kve_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->leave_stop = true;
	pthread_cond_signal(&p->leave);
	pthread_mutex_unlock(&p->lock);
	if (p->leaves)
		pthread_join(p->leaver, NULL);
}
