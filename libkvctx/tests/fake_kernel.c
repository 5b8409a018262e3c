// SPDX-License-Identifier: LGPL-2.1-or-later
/* Calls, ring and sleeping of the kernel in memory; see fake_kernel.h. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake_kernel.h"

#define FD	77	/* of poll() */
#define KEPT	4096

struct fake fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct kvctx_cq_ring *ring;	/* the kernel's own mapping */
static uint32_t inflight, entries, tail;
static int cq_fd = -1, arena_fd = -1, slots_fd = -1;
static struct fake_op kept[KEPT];
static unsigned int nr_kept, nr_sleepers, nr_stalled;
static int stall_err;
static bool rdonly, disk_runs;
static uint32_t consumed;		/* head, as the library has told last */
static struct kvctx_file file;
static pthread_t disk;

void fake_reset(void)
{
	assert(!fake.fds);
	fake_drop_pages();
	memset(fake_memories, 0, sizeof(fake_memories));
	nr_kept = 0;
	inflight = 0;
	fake = (struct fake){
		.mmaps_left = -1, .abi_version = KVCTX_ABI_VERSION, .cq_max = 1024,
	};
}

/* Room is kept for it: in flight and in the ring together never exceed the entries */
static void complete(const struct fake_op *op)
{
	struct kvctx_cqe cqe = { .user_data = op->sqe.user_data };
	int i;

	if (fake.fail_op && op->sqe.opcode != KVCTX_OP_QUERY) {
		cqe.res = fake.fail_op;
		fake.fail_op = 0;
	} else {
		cqe.res = fake_do_op(op, rdonly, &cqe.flags);
	}
	for (i = 0; i < op->sqe.nr_segs; i++)
		fake_memories[op->segs[i].mem % FAKE_MEMORIES].users--;
	ring->cqes[tail & (entries - 1)] = cqe;
	__atomic_store_n(&ring->tail, ++tail, __ATOMIC_RELEASE);
	inflight--;
	pthread_cond_broadcast(&changed);
}

static void release_one(unsigned int i)
{
	struct fake_op op = kept[i];

	memmove(&kept[i], &kept[i + 1], (nr_kept - i - 1) * sizeof(kept[0]));
	nr_kept--;
	complete(&op);
}

void fake_release(unsigned int n)
{
	pthread_mutex_lock(&lock);
	assert(n <= nr_kept);
	while (n--)
		release_one(0);
	pthread_mutex_unlock(&lock);
}

void fake_release_newest(void)
{
	pthread_mutex_lock(&lock);
	release_one(nr_kept - 1);
	pthread_mutex_unlock(&lock);
}

static void await(const unsigned int *what, unsigned int n)
{
	pthread_mutex_lock(&lock);
	while (*what != n)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

void fake_await_kept(unsigned int n)
{
	await(&nr_kept, n);
}

void fake_await_sleepers(unsigned int n)
{
	await(&nr_sleepers, n);
}

void fake_stall_submit(int err)
{
	pthread_mutex_lock(&lock);
	stall_err = err;
	pthread_mutex_unlock(&lock);
}

void fake_await_stalled(void)
{
	await(&nr_stalled, 1);
}

void fake_go_on(void)
{
	fake_stall_submit(0);
	pthread_cond_broadcast(&changed);
}

static int stall(void)
{
	int err = stall_err;

	nr_stalled++;
	pthread_cond_broadcast(&changed);
	while (stall_err)
		pthread_cond_wait(&changed, &lock);
	nr_stalled--;
	return err;
}

static void *disk_thread(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct timespec ts = { 0 };

	pthread_mutex_lock(&lock);
	while (disk_runs || nr_kept) {
		if (nr_kept)
			release_one((unsigned int)rand_r(&seed) % nr_kept);
		pthread_mutex_unlock(&lock);
		ts.tv_nsec = rand_r(&seed) % 50000;
		nanosleep(&ts, NULL);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

void fake_disk_start(unsigned int seed)
{
	disk_runs = true;
	assert(!pthread_create(&disk, NULL, disk_thread, (void *)(uintptr_t)seed));
}

void fake_disk_stop(void)
{
	pthread_mutex_lock(&lock);
	disk_runs = false;
	pthread_mutex_unlock(&lock);
	pthread_join(disk, NULL);
}

unsigned int fake_waits(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = fake.waits;
	pthread_mutex_unlock(&lock);
	return n;
}

bool fake_readable(void)
{
	bool readable;

	pthread_mutex_lock(&lock);
	readable = __atomic_load_n(&consumed, __ATOMIC_RELAXED) != tail;
	pthread_mutex_unlock(&lock);
	return readable;
}

static uint32_t consumable(void)
{
	return tail - __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
}

/* As the module: enough to consume, or nothing in flight. The condition can become false again. */
static int sleep_until(uint32_t min, uint64_t timeout_ns)
{
	struct timespec end;
	int ret = 0;

	if (consumable() >= min || !inflight || !timeout_ns)
		return (int)consumable();
	if (fake.fail_waits) {
		fake.fail_waits--;
		return fake.fail_wait;
	}
	clock_gettime(CLOCK_REALTIME, &end);
	if (timeout_ns < 1000000000000)
		end.tv_nsec += (long)(timeout_ns % 1000000000);
	end.tv_sec += timeout_ns < 1000000000000 ? (time_t)(timeout_ns / 1000000000) : 1000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	nr_sleepers++;
	pthread_cond_broadcast(&changed);
	while (consumable() < min && inflight && !ret)
		ret = pthread_cond_timedwait(&changed, &lock, &end);
	nr_sleepers--;
	pthread_cond_broadcast(&changed);
	return consumable() >= min || !inflight ? (int)consumable() : -ETIME;
}

/* What the module refuses as malformed; the caller's mistakes are no business of this */
static void check_clean(const struct kvctx_sqe *s)
{
	bool moves = s->opcode == KVCTX_OP_STORE || s->opcode == KVCTX_OP_LOAD;
	bool ahead = s->opcode == KVCTX_OP_PREFETCH || s->opcode == KVCTX_OP_GET;
	const struct kvctx_key none = { .qualifier = 0 };

	assert(!s->reserved2);
	assert(moves || (!s->segs && !s->length && !s->crcs));
	assert((moves && !s->nr_segs) || !s->mem);
	assert(moves || !s->nr_segs);
	assert(s->opcode == KVCTX_OP_LOAD || s->opcode == KVCTX_OP_CANCEL || !s->offset);
	assert(s->opcode == KVCTX_OP_STORE || !s->depth);
	assert(s->opcode == KVCTX_OP_LEASE || ahead || !s->lease_ms);
	assert(s->opcode == KVCTX_OP_RELEASE || s->opcode == KVCTX_OP_PUT || !s->lease);
	assert(moves || ahead || !s->prio);
	if (s->opcode == KVCTX_OP_RELEASE || s->opcode == KVCTX_OP_FLUSH || s->opcode == KVCTX_OP_PUT)
		assert(!memcmp(&s->key, &none, sizeof(none)));
}

static void take_op(const struct kvctx_sqe *sqe)
{
	bool call = sqe->user_data >= KVCTX_USER_DATA_END;
	struct fake_op op = { .sqe = *sqe };
	int i;

	check_clean(sqe);
	assert(sqe->nr_segs <= 8);
	if (sqe->nr_segs) {
		memcpy(op.segs, (const void *)(uintptr_t)sqe->segs,
		       sqe->nr_segs * sizeof(op.segs[0]));
	} else if (sqe->opcode == KVCTX_OP_STORE || sqe->opcode == KVCTX_OP_LOAD) {
		/* from here on as if it had come in a list */
		op.segs[0] = (struct kvctx_seg){
			.offset = sqe->segs, .length = (uint32_t)sqe->length, .mem = sqe->mem,
		};
		op.sqe.nr_segs = 1;
	}
	for (i = 0; i < op.sqe.nr_segs; i++)
		fake_memories[op.segs[i].mem % FAKE_MEMORIES].users++;
	fake.timeout_ns = sqe->timeout_ns;
	inflight++;
	if (call ? fake.hold_calls : fake.hold) {
		assert(nr_kept < KEPT);
		kept[nr_kept++] = op;
		pthread_cond_broadcast(&changed);
	} else {
		complete(&op);
	}
}

static int do_submit(const struct kvctx_submit *s)
{
	const struct kvctx_sqe *sqes = (const void *)(uintptr_t)s->sqes;
	uint32_t i;

	assert(s->size == sizeof(*s) && !s->flags && !s->reserved && s->nr && s->nr <= 16);
	assert(s->wait_nr || !s->timeout_ns);
	fake.submits++;
	if (stall_err)
		return stall();
	if (fake.fail_submit)
		return fake.fail_submit;
	for (i = 0; i < s->nr && (!fake.submit_max || i < fake.submit_max); i++) {
		if (consumable() + inflight >= entries)
			break;
		take_op(&sqes[i]);
	}
	if (!i)
		return -EAGAIN;
	if (s->wait_nr)
		sleep_until(s->wait_nr, s->timeout_ns);
	return (int)i;
}

static int do_wait(const struct kvctx_wait *w)
{
	assert(w->size == sizeof(*w) && !w->flags && (rdonly || !w->consumed));
	if (w->consumed > consumable())
		return -EINVAL;
	if (w->consumed && fake.fail_consume)
		return fake.fail_consume;
	if (w->consumed) {
		__atomic_store_n(&ring->head, ring->head + w->consumed, __ATOMIC_RELEASE);
		__atomic_store_n(&consumed, ring->head, __ATOMIC_RELAXED);
	} else {
		fake.waits++;
	}
	if (!w->consumed && fake.on_wait)
		fake.on_wait();
	return sleep_until(w->min, w->timeout_ns);
}

static int shared_memory(size_t len, void **kernel)
{
	int fd = memfd_create("fake", 0);

	assert(fd >= 0 && !ftruncate(fd, (off_t)len));
	*kernel = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert(*kernel != MAP_FAILED);
	return fd;
}

static int do_setup(struct kvctx_setup *s)
{
	void *p;

	assert(s->size == sizeof(*s) && !s->reserved);
	if (fake.fail_setup)
		return fake.fail_setup;
	if (!s->cq_entries || s->cq_entries > fake.cq_max)
		return -EINVAL;
	if (!s->nr_slots != !s->slot_bytes || s->nr_slots > FAKE_SLOTS)
		return -EINVAL;
	fake.setup = *s;
	for (entries = 1; entries < s->cq_entries; entries *= 2)
		;
	s->cq_entries = entries;
	s->cq_bytes = (sizeof(*ring) + entries * sizeof(struct kvctx_cqe) + 4095) & ~4095ULL;
	s->arena_bytes = (s->arena_bytes + 4095) & ~4095ULL;
	s->slot_bytes = (s->slot_bytes + 4095) & ~4095U;
	cq_fd = shared_memory(s->cq_bytes, &p);
	ring = p;
	ring->entries = entries;
	/* close to the end of the counters, so that every test crosses it */
	ring->head = ring->tail = tail = consumed = 0U - 3;
	if (s->arena_bytes) {
		arena_fd = shared_memory(s->arena_bytes, &p);
		fake_memories[0] = (struct fake_memory){ .addr = p, .len = s->arena_bytes };
	}
	if (s->nr_slots) {
		slots_fd = shared_memory((size_t)s->nr_slots * s->slot_bytes, &p);
		fake_slots = (struct fake_slots){ .addr = p, .bytes = s->slot_bytes, .nr = s->nr_slots };
	}
	return 0;
}

static int do_info(struct kvctx_info *info)
{
	assert(info->size == sizeof(*info) && !info->flags);
	if (fake.on_info)
		fake.on_info();
	*info = (struct kvctx_info){
		.size = sizeof(*info),
		.features = fake.features,
		.abi_version = fake.abi_version,
		.page_len_max = 1 << 20,
		.arena_max = 1 << 30,
		.segs_max = 8,
		.chunk_size = FAKE_CHUNK,
		.batch_max = 16,
		.cq_max = fake.cq_max,
		.match_max = 64,
	};
	return fake.fail_info;
}

static int do_register(struct kvctx_mem_register *r)
{
	uint32_t i;

	assert(r->size == sizeof(*r) && !r->flags && !r->reserved);
	if (fake.fail_register)
		return fake.fail_register;
	if (!r->length)
		return -EINVAL;
	if (r->addr == (uintptr_t)fake.unpinnable)
		return -EFAULT;
	for (i = 1; i < FAKE_MEMORIES && fake_memories[i].addr; i++)
		;
	if (i == FAKE_MEMORIES)
		return -ENOMEM;
	fake_memories[i] = (struct fake_memory){ .addr = (void *)(uintptr_t)r->addr, .len = r->length };
	if (fake.peer && r->addr - (uintptr_t)fake.peer < fake.peer_len) {
		fake_memories[i].addr = fake.peer_bytes + (r->addr - (uintptr_t)fake.peer);
		fake_memories[i].peer = true;
	}
	r->id = i;
	fake.registrations++;
	fake.registered++;
	return 0;
}

static int do_unregister(const struct kvctx_mem_unregister *u)
{
	assert(u->size == sizeof(*u) && !u->flags && !u->reserved);
	if (fake.fail_unregister)
		return fake.fail_unregister;
	if (!u->id || u->id >= FAKE_MEMORIES || !fake_memories[u->id].addr)
		return -EINVAL;
	if (fake_memories[u->id].users)
		return -EBUSY;
	fake_memories[u->id].addr = NULL;
	fake.registrations--;
	return 0;
}

static int do_match(struct kvctx_match *m)
{
	assert(m->size == sizeof(*m) && !m->nr_present && !m->lease);
	assert(!(m->flags & ~(KVCTX_MATCH_LEASE | KVCTX_MATCH_PREFETCH)) && !m->flags == !m->lease_ms);
	if (fake.fail_match)
		return fake.fail_match;
	if (!m->nr_keys || m->nr_keys > 64)
		return -EINVAL;
	fake_match(m);
	return 0;
}

/* Two members; the second is no PCI device */
static int do_paths(struct kvctx_paths *p)
{
	struct kvctx_path rows[2] = {
		{ .device = "nvme0n1", .reason = fake.no_path ? KVCTX_PATH_NO_ROUTE : KVCTX_PATH_DIRECT, .distance = 4 },
		{ .device = "nvme1n1", .member = 1, .reason = KVCTX_PATH_NO_QUEUE, .distance = -1 },
	};
	int i;

	assert(p->size == sizeof(*p) && !p->flags && (p->paths || !p->nr));
	if (fake.fail_paths)
		return fake.fail_paths;
	if (p->mem >= FAKE_MEMORIES || !fake_memories[p->mem].addr)
		return -EINVAL;
	for (i = 0; i < 2; i++)
		strcpy(rows[i].peer, "0000:03:00.0");
	if (p->nr)
		memcpy((void *)(uintptr_t)p->paths, rows, (p->nr < 2 ? p->nr : 2) * sizeof(rows[0]));
	p->nr = 2;
	return 0;
}

static int dispatch(unsigned long nr, void *arg)
{
	if (nr == KVCTX_IOC_INFO)
		return do_info(arg);
	if (nr == KVCTX_IOC_SETUP)
		return do_setup(arg);
	assert(ring);
	switch (nr) {
	case KVCTX_IOC_MEM_REGISTER:
		return do_register(arg);
	case KVCTX_IOC_MEM_UNREGISTER:
		return do_unregister(arg);
	case KVCTX_IOC_SUBMIT:
		return do_submit(arg);
	case KVCTX_IOC_WAIT:
		return do_wait(arg);
	case KVCTX_IOC_MATCH:
		return do_match(arg);
	case KVCTX_IOC_PATHS:
		return do_paths(arg);
	}
	return -ENOTTY;
}

static int fake_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	int ret;

	assert(f == &file);
	pthread_mutex_lock(&lock);
	ret = dispatch(nr, arg);
	pthread_mutex_unlock(&lock);
	return ret;
}

static int fake_mmap(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out)
{
	int from = offset == KVCTX_MMAP_CQ ? cq_fd : offset == KVCTX_MMAP_ARENA ? arena_fd : slots_fd;

	assert(f == &file && len && from >= 0 && !(offset & (KVCTX_MMAP_ARENA - 1)));
	if ((rdonly || from == slots_fd) && (prot & PROT_WRITE))
		return -EACCES;
	if (!fake.mmaps_left)
		return -ENOMEM;
	fake.mmaps_left -= fake.mmaps_left > 0;
	fake.maps++;
	*out = mmap(NULL, len, prot, MAP_SHARED, from, 0);
	assert(*out != MAP_FAILED);
	return 0;
}

static void fake_munmap(struct kvctx_file *f, void *p, size_t len)
{
	assert(f == &file && !munmap(p, len));
	fake.maps--;
}

/* The end of the session: nothing in flight writes any more, registrations are gone */
static void fake_close(struct kvctx_file *f)
{
	int i;

	assert(f == &file);
	fake.fds--;
	nr_kept = 0;
	inflight = 0;
	if (ring)
		munmap(ring, (sizeof(*ring) + entries * sizeof(struct kvctx_cqe) + 4095) & ~4095UL);
	if (fake_memories[0].addr)
		munmap(fake_memories[0].addr, fake_memories[0].len);
	if (fake_slots.addr)
		munmap(fake_slots.addr, (size_t)fake_slots.nr * fake_slots.bytes);
	fake_slots = (struct fake_slots){ 0 };
	if (slots_fd >= 0)
		close(slots_fd);
	slots_fd = -1;
	if (cq_fd >= 0)
		close(cq_fd);
	if (arena_fd >= 0)
		close(arena_fd);
	ring = NULL;
	cq_fd = -1;
	arena_fd = -1;
	for (i = 0; i < FAKE_MEMORIES; i++)
		fake_memories[i].addr = NULL;
	fake.registrations = 0;
}

static int fake_poll_fd(struct kvctx_file *f)
{
	assert(f == &file);
	return FD;
}

/* A device that is only looked at when the library asks for it */
static void fake_look(struct kvctx_file *f)
{
	assert(f == &file);
	pthread_mutex_lock(&lock);
	fake.looks++;
	while (fake.by_looking && nr_kept)
		release_one(0);
	pthread_mutex_unlock(&lock);
}

static void fake_consumed(struct kvctx_file *f)
{
	assert(f == &file && !rdonly);
	__atomic_store_n(&consumed, ring->head, __ATOMIC_RELAXED);
}

static const struct kvctx_server fake_server = {
	.ioctl = fake_ioctl,
	.mmap = fake_mmap,
	.munmap = fake_munmap,
	.poll_fd = fake_poll_fd,
	.close = fake_close,
	.look = fake_look,
	.consumed = fake_consumed,
};

int kvctx_sys_open(const char *path, int flags, struct kvctx_file **out)
{
	if (strcmp(path, FAKE_PATH))
		return -ENOENT;
	if (fake.fail_open)
		return fake.fail_open;
	assert(!fake.fds);
	fake.open_flags = flags;
	rdonly = (flags & O_ACCMODE) == O_RDONLY;
	fake.fds++;
	file.server = &fake_server;
	*out = &file;
	return 0;
}
