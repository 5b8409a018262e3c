// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Sessions: the calls on an open tenant of a pool that this process serves; their life and death.
 *
 * What is valid says kmod/session. The dispatcher copies the structure in and out; handlers work on the copy.
 *
 * Death. close() cancels what waits for space or for a turn, and waits for what is in flight: operations, and reads into
 * slots. Then nothing of the session is known to anybody any more. If a device holds on to a transfer for longer, the
 * session is an orphan (reap.c): its reaper does what close() would have done, when the last one has ended.
 *
 * A child after fork() owns nothing of it, and calls do as if its descriptor were closed, which it is.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "session.h"
#include "share.h"

#define SESSION_ARG_MAX		4096U	/* bytes of a structure that later versions may have */

typedef int (*session_call)(struct kve_session *s, union kvctx_arg *arg);

/* SETUP was done, and what it made can be seen. */
static bool session_ready(const struct kve_session *s)
{
	/* pairs with session_setup_all() */
	return os_load_acquire(&s->ready);
}

static u32 session_page(void)
{
	return (u32)sysconf(_SC_PAGESIZE);
}

static u64 session_arena_max(void)
{
	return min((u64)sysconf(_SC_PHYS_PAGES) * session_page(), (u64)KVCTX_MMAP_ARENA);
}

/* Any page fits */
static u32 session_slot_bytes_max(const struct kve_session *s)
{
	return (s->rights.page_max + session_page() - 1) & ~(session_page() - 1);
}

static u32 session_align(const struct kve_pool *p)
{
	u32 i, nr = kve_nr_members(p), align = 1;

	for (i = 0; i < nr; i++)
		if (!(kve_member_state(&p->members[i]) & (KVE_MEMBER_REMOVED | KVE_MEMBER_MISSING)))
			align = max(align, p->members[i].dev->align);
	return align;
}

static u64 session_features(struct kve_session *s)
{
	u64 features = KVCTX_FEAT_VERIFY | KVCTX_FEAT_SLOTS | KVCTX_FEAT_EVENTS | KVCTX_FEAT_PROCESS;

	pthread_mutex_lock(&s->lock);
	if (s->ring && s->ring->kind->threads)
		features |= KVCTX_FEAT_IOTHREADS;
	if (READ_ONCE(s->unregistered))
		features |= KVCTX_FEAT_UNREGISTERED;
	pthread_mutex_unlock(&s->lock);
	return features;
}

static int session_info(struct kve_session *s, union kvctx_arg *arg)
{
	const struct kvc_super *super = kvc_super_of(s->pool->core);
	struct kvctx_info *info = &arg->info;
	u64 pages, bytes, capacity, quota;

	pthread_mutex_lock(&s->pool->config_lock);
	quota = super->limits[s->slot].quota;
	capacity = kvc_capacity(s->pool->core);
	pthread_mutex_unlock(&s->pool->config_lock);
	*info = (struct kvctx_info){
		.size = info->size,
		.session_flags = (s->rights.rdonly ? KVCTX_SESSION_RDONLY : 0) |
				 (session_ready(s) ? KVCTX_SESSION_READY : 0),
		.features = session_features(s),
		.capacity = capacity,
		.page_len_max = s->rights.page_max,
		.arena_max = session_arena_max(),
		.segment_size = super->segment_size,
		.chunk_size = kvc_chunk_size(s->pool->core),
		.block_size = KVC_BLOCK,
		.members = kve_nr_members(s->pool),
		.dma_align = session_align(s->pool),
		.tenant_flags = s->tenant_flags,
		.tenant_limit = quota,
		.slot_bytes_max = session_slot_bytes_max(s),
	};
	kvc_tenant_usage(s->pool->core, s->slot, &pages, &bytes);
	info->tenant_pages = pages;
	info->tenant_bytes = bytes;
	kvctx_info_limits(info);
	memcpy(info->pool_uuid, super->pool_uuid, sizeof(info->pool_uuid));
	snprintf(info->pool, sizeof(info->pool), "%s", s->pool->name);
	snprintf(info->tenant, sizeof(info->tenant), "%s", s->tenant);
	return 0;
}

/* The caller may close his own. */
static int session_setup_eventfd(struct kve_session *s, const struct kvctx_setup *arg)
{
	char link[64], target[64] = "";
	int fd, err;

	if (!(arg->flags & KVCTX_SETUP_EVENTFD))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", arg->eventfd);
	/* where nothing tells what it is, it is taken for one */
	if (readlink(link, target, sizeof(target) - 1) > 0 && strcmp(target, "anon_inode:[eventfd]"))
		return -EINVAL;
	kve_fork_lock();
	fd = fcntl(arg->eventfd, F_DUPFD_CLOEXEC, 0);
	err = fd >= 0 ? 0 : errno == EBADF ? -EINVAL : -ENOMEM;
	if (!err && kve_fork_own(fd)) {
		close(fd);
		err = -ENOMEM;
	}
	kve_fork_unlock();
	s->cq.eventfd = err ? -1 : fd;
	return err;
}

uint64_t kve_share_setup_bytes(const struct kvctx_setup *arg)
{
	u64 page = session_page(), arena = (arg->arena_bytes + page - 1) & ~(page - 1);

	return arena + ((arg->slot_bytes + page - 1) & ~(page - 1)) * arg->nr_slots;
}

/* The key that the tenant was added with, as this process has it */
static int session_setup_cipher(struct kve_session *s)
{
	struct kve_pool *p = s->pool;
	struct kvc_super_key key;
	int err;

	if (!s->rights.encrypted)
		return 0;
	pthread_mutex_lock(&p->config_lock);
	key = kvc_super_of(p->core)->keys[s->slot];
	pthread_mutex_unlock(&p->config_lock);
	err = kve_cipher_of(&key, &s->cipher);
	if (!err || err == -ENOMEM)
		return err;
	kve_log(LOG_ERR, "%s: tenant %s: key %s: %s", p->name, s->tenant, key.name, strerror(-err));
	return -ENOKEY;
}

/* The arena and the slots count against the tenant's limit before they are there. */
static int session_setup_pin(struct kve_session *s, const struct kvctx_setup *arg)
{
	u64 bytes = kve_share_setup_bytes(arg);
	int err = kvc_tenant_pin(s->pool->core, s->slot, bytes);

	if (!err)
		s->pinned = bytes;
	return err;
}

static int session_setup_arena(struct kve_session *s, u64 bytes)
{
	u32 page = session_page();
	int err;

	s->mems = calloc(1, sizeof(struct kve_mem *));
	if (!s->mems)
		return -ENOMEM;
	s->nr_mems = 1;
	if (!bytes)
		return 0;
	err = kve_map_create(&s->arena_map, (bytes + page - 1) & ~((u64)page - 1), s->rights.rdonly);
	if (err)
		return err;
	s->mems[KVCTX_MEM_ARENA] = kve_mem_of_map(s, &s->arena_map);
	return s->mems[KVCTX_MEM_ARENA] ? 0 : -ENOMEM;
}

/* Undo what a failed SETUP, or a session at its end, leaves. */
static void session_setup_undo(struct kve_session *s)
{
	u32 i;

	if (s->ring) {
		kve_slots_free(s);
		for (i = 0; i < s->nr_mems; i++)
			kve_mem_free(s, s->mems[i]);
		kve_holder_remove(s->pool, &s->holder);
		s->ring->kind->close(s->ring);
	}
	free(s->mems);
	kve_map_free(&s->arena_map);
	kvc_tenant_unpin(s->pool->core, s->slot, s->pinned);
	s->pinned = 0;
	kve_cq_free(s);
	if (s->domain)
		kvc_domain_put(s->pool->core, s->domain);
	kve_cipher_free(s->cipher);
	s->cipher = NULL;
	s->mems = NULL;
	s->nr_mems = 0;
	s->unregistered = 0;
	s->ring = NULL;
	s->domain = NULL;
}

/* Nothing of it moves. */
static void session_end(struct kve_session *s)
{
	void (*ended)(void *arg) = s->ended;
	void *arg = s->ended_arg;

	kve_lease_exit(s);
	kve_job_cancel(s->pool, &s->send_job);
	session_setup_undo(s);
	kve_fd_close(&s->cq.pollfd);
	pthread_mutex_destroy(&s->setup_lock);
	pthread_mutex_destroy(&s->lock);
	kve_pool_put(s->pool);
	free(s);
	if (ended)
		ended(arg);
}

static u32 session_entries(u32 wanted)
{
	u32 entries = 1;

	while (entries < wanted)
		entries *= 2;
	return entries;
}

static void session_let_go(struct kve_holder *h, u32 member)
{
	struct kve_ring *ring = container_of(h, struct kve_session, holder)->ring;

	ring->kind->let_go(ring, member);
}

static int session_setup_all(struct kve_session *s, struct kvctx_setup *arg)
{
	u32 entries = session_entries(arg->cq_entries);
	int err;

	err = session_setup_cipher(s);
	if (!err)
		err = kvc_domain_open(s->pool->core, s->slot, arg->keyspace, &s->domain);
	if (!err)
		err = kve_ring_open(&s->ring, entries);
	if (!err) {
		kve_holder_add(s->pool, &s->holder);
		err = kve_cq_setup(s, entries);
	}
	if (!err)
		err = session_setup_eventfd(s, arg);
	if (!err)
		err = session_setup_pin(s, arg);
	if (!err)
		err = session_setup_arena(s, arg->arena_bytes);
	if (!err && arg->nr_slots)
		err = kve_slots_setup(s, &arg->slot_bytes, arg->nr_slots);
	if (!err)
		err = kve_reaper_start(s, session_end);
	if (err) {
		session_setup_undo(s);
		return err;
	}
	arg->cq_entries = entries;
	arg->cq_bytes = s->cq.map.bytes;
	arg->arena_bytes = s->arena_map.addr ? s->arena_map.bytes : 0;
	/* pairs with session_ready() */
	os_store_release(&s->ready, true);
	return 0;
}

static int session_setup(struct kve_session *s, union kvctx_arg *arg)
{
	int err = kvctx_setup_check(&arg->setup, session_arena_max(), session_slot_bytes_max(s), session_page());

	if (err)
		return err;
	pthread_mutex_lock(&s->setup_lock);
	err = s->ready ? -EEXIST : session_setup_all(s, &arg->setup);
	pthread_mutex_unlock(&s->setup_lock);
	return err;
}

static int session_register(struct kve_session *s, union kvctx_arg *arg)
{
	int ret;

	if (arg->reg.reserved)
		return -EINVAL;
	ret = kve_mem_register(s, arg->reg.addr, arg->reg.length);
	if (ret > 0)
		arg->reg.id = (u32)ret;
	return min(ret, 0);
}

static int session_unregister(struct kve_session *s, union kvctx_arg *arg)
{
	return arg->unreg.reserved ? -EINVAL : kve_mem_unregister(s, arg->unreg.id);
}

/* Host memory, which every member reaches */
static int session_paths(struct kve_session *s, union kvctx_arg *arg)
{
	struct kvctx_path *rows = (struct kvctx_path *)arg->paths.paths;
	u32 i, id = arg->paths.mem, all = kve_nr_members(s->pool), nr = min(arg->paths.nr, all);
	bool known;

	pthread_mutex_lock(&s->lock);
	known = id < s->nr_mems && s->mems[id];
	pthread_mutex_unlock(&s->lock);
	if (!known)
		return -EINVAL;
	for (i = 0; i < nr; i++) {
		const struct kve_member *m = &s->pool->members[i];
		const char *name;

		rows[i] = (struct kvctx_path){ .member = i };
		if (kve_member_state(m) & (KVE_MEMBER_REMOVED | KVE_MEMBER_MISSING)) {
			rows[i].reason = KVCTX_PATH_GONE;
			continue;
		}
		name = strrchr(m->dev->path, '/');
		snprintf(rows[i].device, sizeof(rows[i].device), "%.31s", name ? name + 1 : m->dev->path);
	}
	arg->paths.nr = all;
	return 0;
}

static int session_submit(struct kve_session *s, union kvctx_arg *arg)
{
	return kve_submit(s, &arg->submit);
}

static int session_wait(struct kve_session *s, union kvctx_arg *arg)
{
	int err = kve_cq_consume(s, arg->wait.consumed);

	if (err)
		return err;
	arg->wait.consumed = 0;
	return kve_cq_wait(s, arg->wait.min, &arg->wait.timeout_ns);
}

static int session_match(struct kve_session *s, union kvctx_arg *arg)
{
	return kve_match(s, &arg->match);
}

static int session_events(struct kve_session *s, union kvctx_arg *arg)
{
	return kve_events(s, &arg->events);
}

static const session_call session_calls[KVCTX_CALLS] = {
	[_IOC_NR(KVCTX_IOC_INFO)]		= session_info,
	[_IOC_NR(KVCTX_IOC_SETUP)]		= session_setup,
	[_IOC_NR(KVCTX_IOC_MEM_REGISTER)]	= session_register,
	[_IOC_NR(KVCTX_IOC_MEM_UNREGISTER)]	= session_unregister,
	[_IOC_NR(KVCTX_IOC_SUBMIT)]		= session_submit,
	[_IOC_NR(KVCTX_IOC_WAIT)]		= session_wait,
	[_IOC_NR(KVCTX_IOC_MATCH)]		= session_match,
	[_IOC_NR(KVCTX_IOC_PATHS)]		= session_paths,
	[_IOC_NR(KVCTX_IOC_EVENTS)]		= session_events,
};

static int session_arg_get(const struct kvctx_call *call, const void *user, union kvctx_arg *arg)
{
	const u8 *bytes = user;
	u32 size, i;

	memcpy(&size, user, sizeof(size));
	if (size < call->min)
		return -EINVAL;
	if (size > SESSION_ARG_MAX)
		return -E2BIG;
	for (i = call->known; i < size; i++)
		if (bytes[i])
			return -E2BIG;
	memset(arg, 0, sizeof(*arg));
	memcpy(arg, user, min(size, call->known));
	return arg->size == size ? 0 : -EINVAL;
}

int kve_session_ioctl(struct kve_session *s, unsigned long nr, void *user)
{
	unsigned long i = _IOC_NR(nr);
	const struct kvctx_call *call;
	union kvctx_arg arg;
	u32 size;
	int ret;

	if (kve_forked())
		return -EBADF;
	if (nr != _IO(KVCTX_IOC_TYPE, i) || i >= KVCTX_CALLS)
		return -ENOTTY;
	if (!user)
		return -EFAULT;
	call = &kvctx_calls[i];
	ret = session_arg_get(call, user, &arg);
	if (ret)
		return ret;
	if (arg.flags & ~call->flags)
		return -EINVAL;
	if (call->ready && !session_ready(s))
		return -EBADFD;
	if (kve_broken())
		return -ENODEV;
	size = min(arg.size, call->known);
	ret = session_calls[i](s, &arg);
	if ((ret >= 0 && call->out) || (ret == -EINTR && nr == KVCTX_IOC_WAIT))
		memcpy(user, &arg, size);
	return ret;
}

/* What is at *@offset of mmap(), and where in it. NULL: nothing */
const struct kve_map *kve_session_area(struct kve_session *s, u64 *offset)
{
	if (*offset >= KVCTX_MMAP_SLOTS) {
		*offset -= KVCTX_MMAP_SLOTS;
		return kve_slots_map(s);
	}
	if (*offset >= KVCTX_MMAP_ARENA) {
		*offset -= KVCTX_MMAP_ARENA;
		return &s->arena_map;
	}
	return &s->cq.map;
}

int kve_session_mmap(struct kve_session *s, size_t len, int prot, u64 offset, void **out)
{
	const struct kve_map *map;

	if (kve_forked())
		return -EBADF;
	if (!session_ready(s))
		return -EBADFD;
	map = kve_session_area(s, &offset);
	return map ? kve_map_share(map, len, prot, offset, out) : -EINVAL;
}

static int session_tenant(struct kve_session *s, const char *tenant)
{
	int err = kve_pool_tenant(s->pool, tenant, &s->slot, &s->tenant_flags);
	struct kvctx_tally *tally;

	if (err)
		return err;
	snprintf(s->tenant, sizeof(s->tenant), "%s", tenant);
	s->waits = kve_waits_get(s->pool);
	tally = kve_tally_get(s->pool, s->slot);
	if (!s->waits || !tally)
		return -ENOMEM;
	s->tally = kvctx_tally_join(tally);
	return 0;
}

int kve_session_open(const char *dir, const char *tenant, bool rdonly, struct kve_session **out)
{
	struct kve_session *s = calloc(1, sizeof(*s));
	char why[KVE_WHY] = "";
	int err;

	if (!s)
		return -ENOMEM;
	err = kve_pool_get(dir, &s->pool, why);
	if (err) {
		kve_log(LOG_ERR, "%s: %s", dir, why);
		free(s);
		return err;
	}
	err = session_tenant(s, tenant);
	if (err) {
		kve_pool_put(s->pool);
		free(s);
		return err;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->setup_lock, NULL);
	kve_lease_init(s);
	s->cq.eventfd = -1;
	s->cq.pollfd = -1;
	s->holder.let_go = session_let_go;
	s->send_job.fn = kve_send_work;
	s->losses_seen = os_atomic_read(&s->pool->losses);
	s->rights = (struct kvctx_rights){
		.rdonly = rdonly, .verified = s->tenant_flags & KVCTX_TENANT_VERIFIED,
		.encrypted = s->tenant_flags & KVCTX_TENANT_ENCRYPTED,
		.page_max = kvc_page_max(s->pool->core),
	};
	*out = s;
	return 0;
}

/* No call is being made on it, nor will one be. */
void kve_session_close(struct kve_session *s, void (*ended)(void *arg), void *arg)
{
	if (kve_forked())
		return;
	s->ended = ended;
	s->ended_arg = arg;
	WRITE_ONCE(s->dying, true);
	kve_events_exit(s);
	kve_sweep(s->waits);
	if (s->ready) {
		if (!kve_cq_drain(s))
			return;
		kve_reaper_stop(s);
	}
	session_end(s);
}
