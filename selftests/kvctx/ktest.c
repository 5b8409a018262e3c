// SPDX-License-Identifier: GPL-2.0
/* See ktest.h. */
#include "ktest.h"

const char *kt_node(void)
{
	const char *node = getenv("KVCTX_NODE");

	return node ? node : "/dev/kvctx/t/default";
}

int kt_file(int flags, struct kvctx_file **f)
{
	return kvctx_sys_open(kt_node(), flags, f);
}

int kt_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	return kvctx_sys_ioctl(f, nr, arg);
}

void *kt_map(struct kvctx_file *f, size_t len, int prot, uint64_t offset)
{
	void *p;
	int ret = kvctx_sys_mmap(f, len, prot, offset, &p);

	if (!ret)
		return p;
	errno = -ret;
	return MAP_FAILED;
}

int kt_fd(const struct kt *k)
{
	return kvctx_sys_poll_fd(k->file);
}

int kt_open(struct kt *k, int flags, uint8_t keyspace, size_t arena_bytes, unsigned int cq_entries)
{
	return kt_open_slots(k, flags, keyspace, arena_bytes, cq_entries, 0, 0);
}

static int kt_map_all(struct kt *k, const struct kvctx_setup *s)
{
	int ret, prot = k->rdonly ? PROT_READ : PROT_READ | PROT_WRITE;

	k->cq_bytes = s->cq_bytes;
	k->slots_bytes = (size_t)s->slot_bytes * s->nr_slots;
	k->arena_bytes = s->arena_bytes;
	ret = kvctx_sys_mmap(k->file, k->cq_bytes, prot, KVCTX_MMAP_CQ, (void **)&k->cq);
	if (!ret && k->slots_bytes)
		ret = kvctx_sys_mmap(k->file, k->slots_bytes, PROT_READ, KVCTX_MMAP_SLOTS, (void **)&k->slots);
	if (!ret && k->arena_bytes)
		ret = kvctx_sys_mmap(k->file, k->arena_bytes, prot, KVCTX_MMAP_ARENA, (void **)&k->arena);
	return ret;
}

int kt_open_slots(struct kt *k, int flags, uint8_t keyspace, size_t arena_bytes, unsigned int cq_entries,
		  uint32_t slot_bytes, uint32_t nr_slots)
{
	struct kvctx_setup s = {
		.size = sizeof(s), .arena_bytes = arena_bytes, .cq_entries = cq_entries,
		.slot_bytes = slot_bytes, .nr_slots = nr_slots,
	};
	int ret;

	memset(k, 0, sizeof(*k));
	memset(s.keyspace, keyspace, sizeof(s.keyspace));
	ret = kt_file(flags, &k->file);
	if (ret)
		return ret;
	ret = kt_ioctl(k->file, KVCTX_IOC_SETUP, &s);
	k->rdonly = (flags & O_ACCMODE) == O_RDONLY;
	if (!ret)
		ret = kt_map_all(k, &s);
	if (ret)
		kt_close(k);
	return ret;
}

static void kt_unmap(struct kt *k, void *p, size_t len)
{
	if (p)
		kvctx_sys_munmap(k->file, p, len);
}

void kt_close(struct kt *k)
{
	kt_unmap(k, k->arena, k->arena_bytes);
	kt_unmap(k, k->slots, k->slots_bytes);
	kt_unmap(k, k->cq, k->cq_bytes);
	if (k->file)
		kvctx_sys_close(k->file);
	memset(k, 0, sizeof(*k));
}

int kt_submit(struct kt *k, const struct kvctx_sqe *sqes, unsigned int nr, unsigned int wait_nr)
{
	struct kvctx_submit s = {
		.size = sizeof(s), .sqes = (uintptr_t)sqes, .nr = nr, .wait_nr = wait_nr,
		.timeout_ns = wait_nr ? KT_LIMIT : 0,
	};

	return kt_ioctl(k->file, KVCTX_IOC_SUBMIT, &s);
}

int kt_wait(struct kt *k, unsigned int min, uint64_t timeout_ns)
{
	struct kvctx_wait w = { .size = sizeof(w), .min = min, .timeout_ns = timeout_ns };

	return kt_ioctl(k->file, KVCTX_IOC_WAIT, &w);
}

bool kt_reap(struct kt *k, struct kvctx_cqe *cqe)
{
	uint32_t head = k->cq->head;

	if (head == __atomic_load_n(&k->cq->tail, __ATOMIC_ACQUIRE))
		kvctx_sys_look(k->file);
	if (head == __atomic_load_n(&k->cq->tail, __ATOMIC_ACQUIRE))
		return false;
	*cqe = k->cq->cqes[head & (k->cq->entries - 1)];
	if (k->rdonly) {
		struct kvctx_wait w = { .size = sizeof(w), .consumed = 1 };

		return kt_ioctl(k->file, KVCTX_IOC_WAIT, &w) >= 0;
	}
	__atomic_store_n(&k->cq->head, head + 1, __ATOMIC_RELEASE);
	kvctx_sys_consumed(k->file);
	return true;
}

int kt_do(struct kt *k, const struct kvctx_sqe *sqe, uint32_t *flags)
{
	struct kvctx_cqe cqe;
	int ret;

	ret = kt_submit(k, sqe, 1, 1);
	if (ret != 1)
		return ret < 0 ? ret : -EPROTO;
	if (!kt_reap(k, &cqe))
		return -EPROTO;
	if (cqe.user_data != sqe->user_data)
		return -EPROTO;
	/* who serves may have to copy: that is no other result */
	if (flags)
		*flags = cqe.flags & ~KVCTX_CQE_STAGED;
	return cqe.res;
}

struct kvctx_key kt_key(uint64_t n)
{
	static uint64_t first;
	uint64_t mine = kt_now() ^ ((uint64_t)getpid() << 40), base = 0;
	struct kvctx_key key = { .qualifier = n };

	/* threads agree on one */
	if (__atomic_compare_exchange_n(&first, &base, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		base = mine;
	memcpy(key.digest, &base, sizeof(base));
	memcpy(key.digest + 24, &n, sizeof(n));
	return key;
}

struct kvctx_key kt_page_key(uint64_t n)
{
	return (struct kvctx_key){ .digest = "pages of the test scripts", .qualifier = n };
}

struct kvctx_sqe kt_sqe(enum kvctx_opcode op, struct kvctx_key key)
{
	static uint64_t serial;
	struct kvctx_sqe sqe = { .opcode = op, .key = key, .user_data = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED) };

	return sqe;
}

struct kvctx_sqe kt_io(enum kvctx_opcode op, struct kvctx_key key, const struct kvctx_seg *segs, unsigned int nr_segs)
{
	struct kvctx_sqe sqe = kt_sqe(op, key);
	unsigned int i;

	sqe.segs = (uintptr_t)segs;
	sqe.nr_segs = nr_segs;
	for (i = 0; i < nr_segs; i++)
		sqe.length += segs[i].length;
	return sqe;
}

struct kvctx_seg kt_seg(uint32_t mem, uint64_t offset, uint32_t length)
{
	return (struct kvctx_seg){ .offset = offset, .mem = mem, .length = length };
}

static int kt_whole(struct kt *k, enum kvctx_opcode op, struct kvctx_key key, uint64_t at, uint32_t length,
		    uint32_t *flags)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, at, length);
	struct kvctx_sqe sqe = kt_io(op, key, &seg, 1);

	return kt_do(k, &sqe, flags);
}

int kt_store(struct kt *k, struct kvctx_key key, uint64_t at, uint32_t length, uint32_t *flags)
{
	return kt_whole(k, KVCTX_OP_STORE, key, at, length, flags);
}

int kt_load(struct kt *k, struct kvctx_key key, uint64_t at, uint32_t length, uint32_t *flags)
{
	return kt_whole(k, KVCTX_OP_LOAD, key, at, length, flags);
}

int kt_op(struct kt *k, enum kvctx_opcode op, struct kvctx_key key)
{
	struct kvctx_sqe sqe = kt_sqe(op, key);

	return kt_do(k, &sqe, NULL);
}

/* splitmix64 (Steele, Lea, Flood 2014), one word for each 8 bytes */
static uint64_t kt_word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0xd1342543de82ef95ULL + (i + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

void kt_fill(void *p, size_t n, uint64_t seed)
{
	uint8_t *b = p;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t w = kt_word(seed, i / 8);

		memcpy(b + i, &w, 8);
	}
	for (; i < n; i++)
		b[i] = kt_word(seed, i / 8) >> (i % 8 * 8);
}

long kt_check(const void *p, size_t n, uint64_t seed)
{
	const uint8_t *b = p;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t w = kt_word(seed, i / 8);

		if (memcmp(b + i, &w, 8))
			break;
	}
	for (; i < n; i++)
		if (b[i] != (uint8_t)(kt_word(seed, i / 8) >> (i % 8 * 8)))
			return i;
	return -1;
}

long kt_slow(const char *verb)
{
	char line[128] = "";
	FILE *f;

	if (!getenv("KVCTX_SCRIPTS"))
		return kt_slow_here ? kt_slow_here(verb) : -1;
	snprintf(line, sizeof(line), "%s/slow.sh %s", getenv("KVCTX_SCRIPTS"), verb);
	f = popen(line, "r");
	line[0] = 0;
	if (!f || (!fgets(line, sizeof(line), f) && ferror(f)) || pclose(f))
		return -1;
	return atol(line);
}

uint64_t kt_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * KT_SEC + ts.tv_nsec;
}

unsigned int kt_patience(void)
{
	const char *times = getenv("KVCTX_PATIENCE");
	int n = times ? atoi(times) : 1;

	return n > 0 ? (unsigned int)n : 1;
}
