// SPDX-License-Identifier: LGPL-2.1-or-later
/* The entry of the seam's table for pools that this process serves: DIR/TENANT, where DIR is a directory. */
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

#include "session.h"
#include "share.h"
#include "sys.h"

struct server_file {
	struct kvctx_file file;
	struct kve_session *session;
};

static struct kve_session *server_session(struct kvctx_file *f)
{
	return ((struct server_file *)f)->session;
}

/* DIR and TENANT of @path, which is changed. NULL: it has no name at its end */
static char *server_split(char *path, const char **dir)
{
	char *slash = strrchr(path, '/');

	*dir = slash == path ? "/" : path;
	if (!slash) {
		*dir = ".";
		return path;
	}
	*slash = 0;
	return slash + 1;
}

static int server_open(const char *path, int flags, struct kvctx_file **out)
{
	char copy[PATH_MAX];
	struct server_file *f;
	const char *dir, *tenant;
	int err;

	if ((flags & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	if (strlen(path) >= sizeof(copy))
		return -ENAMETOOLONG;
	strcpy(copy, path);
	tenant = server_split(copy, &dir);
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	err = kve_session_open(dir, tenant, (flags & O_ACCMODE) == O_RDONLY, &f->session);
	if (err) {
		free(f);
		return err;
	}
	f->file.server = &kve_server;
	*out = &f->file;
	return 0;
}

static int server_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	return kve_session_ioctl(server_session(f), nr, arg);
}

static int server_mmap(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out)
{
	return kve_session_mmap(server_session(f), len, prot, offset, out);
}

static void server_munmap(struct kvctx_file *f, void *p, size_t len)
{
	(void)f;
	/* a child of fork() has nothing there, or something else by now */
	if (!kve_forked())
		munmap(p, len);
}

static int server_poll_fd(struct kvctx_file *f)
{
	return kve_cq_pollfd(server_session(f));
}

uint64_t kve_share_pinned_max(struct kvctx_file *f)
{
	struct kve_session *s = server_session(f);
	u64 most;

	pthread_mutex_lock(&s->pool->config_lock);
	most = kvc_super_of(s->pool->core)->limits[s->slot].pinned;
	pthread_mutex_unlock(&s->pool->config_lock);
	return most;
}

struct kvctx_tally *kve_share_tally(struct kve_pool *p, uint32_t slot)
{
	return kve_tally_get(p, slot);
}

/* Of what waits for a turn or a pace; NULL: nothing has. Pairs with kve_waits_get(), whose lock is held over I/O. */
static struct kve_waits *share_waits(struct kve_pool *p)
{
	return os_load_acquire(&p->space.fn) ? p->waits : NULL;
}

void kve_share_turns(struct kve_pool *p, uint32_t member, __u64 *inflight, __u32 *waiting)
{
	struct kve_waits *w = share_waits(p);

	*inflight = w ? kvctx_turn_inflight(&w->turns[member]) : 0;
	*waiting = w ? os_atomic_read(&w->turns[member].queue.waiting) : 0;
}

void kve_share_pace(struct kve_pool *p, uint32_t slot, uint32_t *inflight, uint32_t *waiting)
{
	struct kve_waits *w = share_waits(p);

	*inflight = w ? os_atomic_read(&w->pace.of[slot].inflight) : 0;
	*waiting = w ? os_atomic_read(&w->pace.of[slot].queue.waiting) : 0;
}

uint32_t kve_share_cancel(struct kvctx_file *f, const __u64 *names, uint32_t nr)
{
	return kve_cancel_all(server_session(f), names, nr);
}

void kve_share_close(struct kvctx_file *f, void (*ended)(void *arg), void *arg)
{
	kve_session_close(server_session(f), ended, arg);
	free(f);
}

static void server_close(struct kvctx_file *f)
{
	kve_share_close(f, NULL, NULL);
}

static void server_look(struct kvctx_file *f)
{
	kve_cq_look(server_session(f));
}

static void server_consumed(struct kvctx_file *f)
{
	kve_cq_consumed(server_session(f));
}

int kve_share_fd(struct kvctx_file *f, uint64_t offset)
{
	u64 at = offset;
	const struct kve_map *map = kve_session_area(server_session(f), &at);

	return map && map->addr ? map->fd : -EINVAL;
}

void kve_share_posted(struct kvctx_file *f, void (*fn)(void *arg), void (*signalled)(void *arg), void *arg)
{
	kve_cq_posted(server_session(f), fn, signalled, arg);
}

const struct kvctx_server kve_server = {
	.open = server_open, .ioctl = server_ioctl, .mmap = server_mmap, .munmap = server_munmap,
	.poll_fd = server_poll_fd, .close = server_close, .look = server_look, .consumed = server_consumed,
};
