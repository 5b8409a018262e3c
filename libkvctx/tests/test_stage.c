// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Staging. The peer's memory is not mapped: who touches it but the copy function ends the test. The
 * copy function only notes its pieces, and copies when it is told that they were the last.
 */
#include <sys/mman.h>

#include "test.h"

#define PEER		(1UL << 20)
#define SLOT		16384
#define SLOTS		3
#define SLOTS_AT	8192

static uint8_t bytes[PEER];
static uint8_t *peer;
static uint32_t mem;

struct copies {
	pthread_mutex_t lock;
	unsigned int pieces, ends;
	int fail_piece, fail_end, result;	/* fail the n-th from now, counted from 1 */
	bool hold;			/* copies do not come back */
	unsigned int held;		/* so many of them; atomically */
	struct kvctx *ctx;
};

static struct copies copies = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Of one page; a thread copies one at a time */
static __thread struct {
	void *dst;
	const void *src;
	size_t len;
} noted[8];
static __thread unsigned int nr_noted;

/* A test may run as two threads: nothing to copy may lie in memory that is not mapped */
static void *mapped(const void *p)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)peer;

	return at < PEER ? bytes + at : (void *)(uintptr_t)p;
}

static bool in_slots(const void *p)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)kvctx_arena(copies.ctx, NULL);

	return at >= SLOTS_AT && at < SLOTS_AT + SLOTS * SLOT;
}

static int copy(void *copy_ctx, void *dst, const void *src, size_t len,
		enum kvctx_copy_direction direction)
{
	struct copies *c = copy_ctx;
	int ret = 0;

	__atomic_add_fetch(&c->held, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&c->hold, __ATOMIC_ACQUIRE))
		usleep(100);
	__atomic_sub_fetch(&c->held, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&c->lock);
	if (len) {
		assert_true(in_slots(direction == KVCTX_COPY_TO_HOST ? dst : src));
		assert_false(in_slots(direction == KVCTX_COPY_TO_HOST ? src : dst));
		noted[nr_noted].dst = dst;
		noted[nr_noted].src = src;
		noted[nr_noted++].len = len;
		c->pieces++;
		if (c->fail_piece && !--c->fail_piece)
			ret = c->result;
	} else {
		assert_null(dst);
		assert_null(src);
		while (nr_noted) {
			nr_noted--;
			memcpy(mapped(noted[nr_noted].dst), mapped(noted[nr_noted].src), noted[nr_noted].len);
		}
		c->ends++;
		if (c->fail_end && !--c->fail_end)
			ret = c->result;
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

static int stage_setup(void **state)
{
	int ret = setup(state);

	copies.pieces = 0;
	copies.ends = 0;
	copies.fail_piece = 0;
	copies.fail_end = 0;
	copies.ctx = ctx;
	peer = mmap(NULL, PEER, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fake.peer = peer;
	fake.peer_bytes = bytes;
	fake.peer_len = PEER;
	fake.no_path = true;
	memset(bytes, 0, PEER);
	ret |= kvctx_mem_register(ctx, peer, PEER, &mem);
	return ret | kvctx_stage_init(ctx, copy, &copies, SLOTS_AT, SLOTS, SLOT);
}

static int stage_teardown(void **state)
{
	assert_int_equal(kvctx_mem_unregister(ctx, mem), 0);
	munmap(peer, PEER);
	return teardown(state);
}

#undef TEST
#define TEST(f)		cmocka_unit_test_setup_teardown(f, stage_setup, stage_teardown)

static struct kvctx_key key_of(uint64_t n)
{
	return kvctx_key_from_u64(77, n);
}

static void fill(uint8_t *p, size_t len, uint64_t n)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(n * 31 + i * 7 + (i >> 8));
}

static bool is_filled(const uint8_t *p, size_t len, uint64_t n)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (uint8_t)(n * 31 + i * 7 + (i >> 8)))
			return false;
	return true;
}

/* A page that lies in the pool */
static void put_page(uint64_t n, size_t len)
{
	struct kvctx_key key = key_of(n);
	uint8_t *buf = malloc(len);

	fill(buf, len, n);
	assert_int_equal(kvctx_store(ctx, &key, buf, len, NULL), len);
	free(buf);
}

/* Queue a LOAD or STORE of page @n at @n * SLOT of the peer's memory, in two pieces */
static void move_queued(uint8_t opcode, uint64_t n, size_t len, bool staged)
{
	static struct kvctx_seg segs[64][2];
	struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);
	struct kvctx_key key = key_of(n);

	segs[n][0] = (struct kvctx_seg){ .mem = mem, .offset = n * SLOT, .length = 100 };
	segs[n][1] = (struct kvctx_seg){ .mem = mem, .offset = n * SLOT + 100, .length = (uint32_t)len - 100 };
	kvctx_prep_rw(sqe, opcode, &key, segs[n], 2, len);
	kvctx_sqe_set_data(sqe, 1000 + n);
	if (staged)
		assert_int_equal(kvctx_stage(ctx, sqe), 0);
}

static void reap(struct kvctx_cqe *cqes, unsigned int n)
{
	assert_int_equal(kvctx_wait(ctx, n, KVCTX_TIMEOUT_NONE), n);
	assert_int_equal(kvctx_take(ctx, cqes, n), n);
	assert_int_equal(kvctx_take(ctx, cqes + n, 1), 0);
}

static void parameters(void **state)
{
	struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);
	struct kvctx_key key = key_of(1);
	uint8_t buf[8];

	(void)state;
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 0, 1, 4096), -EEXIST);
	kvctx_prep_query(sqe, &key);
	assert_int_equal(kvctx_stage(ctx, sqe), -EINVAL);
	sqe->opcode = KVCTX_OP_LOAD;
	assert_int_equal(kvctx_stage(ctx, sqe), 0);
	assert_int_equal(kvctx_stage(ctx, sqe), -EINVAL);
	assert_int_equal(kvctx_mem_unregister(ctx, mem), 0);
	reopen(O_RDWR, 8, 16);
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_load(sqe, &key, NULL, 0, 0, 1);
	assert_int_equal(kvctx_stage(ctx, sqe), -EINVAL);
	assert_int_equal(kvctx_load_staged(ctx, &key, buf, 8, NULL, NULL), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, NULL, NULL, 0, 1, 4096), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 0, 0, 4096), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 0, 1, 0), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 0, 1, ARENA + 1), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, ARENA + 1, 1, 1), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 4097, 15, 4096), -EINVAL);
	assert_int_equal(kvctx_stage_init(ctx, copy, NULL, 4096, 15, 4096), 0);
	assert_int_equal(kvctx_load_staged(ctx, &key, buf, 0, NULL, NULL), -EINVAL);
	assert_int_equal(kvctx_mem_register(ctx, peer, PEER, &mem), 0);
}

static void synchronous(void **state)
{
	struct kvctx_key key = key_of(3);
	uint32_t flags, crcs[3] = { 0 };

	(void)state;
	fill(bytes + 500, 10000, 3);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer + 500, 10000, NULL, &flags), 10000);
	assert_int_equal(flags, KVCTX_CQE_STAGED);
	memset(bytes, 0, PEER);
	assert_int_equal(kvctx_load_staged(ctx, &key, peer + 77, 10000, crcs, &flags), 10000);
	assert_int_equal(flags, KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED);
	assert_true(is_filled(bytes + 77, 10000, 3));
	assert_int_equal(kvctx_check_crcs(bytes + 77, 10000, FAKE_CHUNK, crcs), 0);
	assert_int_equal(copies.pieces, 2);
	assert_int_equal(copies.ends, 2);

	/* with a path nothing is copied, and nothing verified */
	fake.no_path = false;
	memset(crcs, 0, sizeof(crcs));
	assert_int_equal(kvctx_load_staged(ctx, &key, peer + 99, 10000, crcs, &flags), 10000);
	assert_int_equal(flags, KVCTX_CQE_P2P);
	assert_true(is_filled(bytes + 99, 10000, 3));
	assert_int_equal(kvctx_check_crcs(bytes + 99, 10000, FAKE_CHUNK, crcs), 0);
	assert_int_equal(copies.pieces, 2);
}

/* Memory that the kernel has not been shown is the copy function's alone */
static void synchronous_without_registration(void **state)
{
	struct kvctx_key key = key_of(4);
	uint32_t flags, registered = fake.registered;

	(void)state;
	assert_int_equal(kvctx_mem_unregister(ctx, mem), 0);
	fill(bytes, 5000, 4);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, 5000, NULL, &flags), 5000);
	memset(bytes, 0, PEER);
	assert_int_equal(kvctx_load_staged(ctx, &key, peer + 1, 5000, NULL, NULL), 5000);
	assert_true(is_filled(bytes + 1, 5000, 4));
	assert_int_equal(fake.registered, registered);
	assert_int_equal(kvctx_mem_register(ctx, peer, PEER, &mem), 0);
}

/* What the write budget turns away was copied all the same */
static void synchronous_and_not_admitted(void **state)
{
	struct kvctx_key key = key_of(6);
	uint32_t flags = 0;

	(void)state;
	fake.budget_spent = true;
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, &flags), 0);
	assert_int_equal(flags, KVCTX_CQE_STAGED | KVCTX_CQE_UNADMITTED);
	assert_int_equal(fake_pages(), 0);
}

static void synchronous_errors(void **state)
{
	struct kvctx_key key = key_of(5);
	uint32_t crcs[4] = { 1, 2, 3, 4 };
	int i;

	(void)state;
	assert_int_equal(kvctx_load_staged(ctx, &key, peer, 100, NULL, NULL), -ENOENT);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, SLOT + 1, NULL, NULL), -EREMOTEIO);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, (1 << 20) + 1, NULL, NULL), -E2BIG);
	assert_int_equal(kvctx_load_staged(ctx, &key, peer, (1 << 20) + 1, NULL, NULL), -ERANGE);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, SLOT, crcs, NULL), -EILSEQ);
	for (i = 0; i < 20; i++) {	/* slots come back */
		copies.result = -EXDEV;
		copies.fail_piece = 1;
		assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, NULL), -EXDEV);
		copies.fail_end = 1;
		assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, NULL), -EXDEV);
		copies.result = 700;	/* no errno */
		copies.fail_end = 1;
		assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, NULL), -EIO);
	}
	assert_int_equal(fake_pages(), 0);
	assert_int_equal(copies.ends, 1 + 20 * 3);
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, NULL), 100);
	copies.result = -EXDEV;
	copies.fail_end = 1;
	assert_int_equal(kvctx_load_staged(ctx, &key, peer, 100, NULL, NULL), -EXDEV);
}

/* Many more operations than slots, of both kinds, beside others that complete as usual */
static void queued(void **state)
{
	struct kvctx_cqe cqes[25];
	unsigned int i, n;

	(void)state;
	for (n = 0; n < 12; n++)
		fill(bytes + n * SLOT, SLOT, n);
	for (n = 0; n < 12; n++)
		move_queued(KVCTX_OP_STORE, n, SLOT, true);
	queue(0, 2);
	assert_int_equal(kvctx_submit_and_wait(ctx, 14, KVCTX_TIMEOUT_NONE), 14);
	reap(cqes, 14);
	for (i = n = 0; i < 14; i++) {
		if (cqes[i].user_data < 1000)
			continue;
		assert_int_equal(cqes[i].res, SLOT);
		assert_int_equal(cqes[i].flags, KVCTX_CQE_STAGED);
		assert_int_equal(cqes[i].user_data, 1000 + n++);	/* in the order of completion */
	}
	assert_int_equal(n, 12);
	memset(bytes, 0, PEER);
	for (n = 0; n < 12; n++)
		move_queued(KVCTX_OP_LOAD, n, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 12);
	reap(cqes, 12);
	for (n = 0; n < 12; n++) {
		assert_int_equal(cqes[n].res, SLOT);
		assert_int_equal(cqes[n].flags, KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED);
		assert_true(is_filled(bytes + n * SLOT, SLOT, n));
	}
	assert_int_equal(copies.pieces, 48);
	assert_int_equal(copies.ends, 24);
}

/* The numbers of the library's own operations come back, after 2^32 of them, while one still has its own */
static void queued_for_long(void **state)
{
	struct kvctx_cqe cqes[2];

	(void)state;
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	ctx->next_tag--;
	put_page(1, SLOT);
	assert_int_equal(kvctx_submit(ctx), 1);
	reap(cqes, 1);
	assert_int_equal(cqes[0].user_data, 1001);
	assert_int_equal(cqes[0].flags, KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED);
	assert_true(is_filled(bytes + SLOT, SLOT, 1));
}

/* An operation that nobody asked to stage, or that is longer than a slot, ends where it did before */
static void queued_and_refused(void **state)
{
	struct kvctx_cqe cqes[4];

	(void)state;
	put_page(1, SLOT + 1);
	put_page(2, SLOT);
	move_queued(KVCTX_OP_LOAD, 1, SLOT + 1, true);
	move_queued(KVCTX_OP_LOAD, 2, SLOT, false);
	move_queued(KVCTX_OP_LOAD, 3, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 3);
	reap(cqes, 3);
	assert_int_equal(cqes[0].res, -EREMOTEIO);
	assert_int_equal(cqes[0].user_data, 1001);
	assert_int_equal(cqes[1].res, -EREMOTEIO);
	assert_int_equal(cqes[1].user_data, 1002);
	assert_int_equal(cqes[2].res, -ENOENT);
	assert_int_equal(cqes[2].flags, 0);
	fake.no_path = false;
	move_queued(KVCTX_OP_LOAD, 2, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
	reap(cqes, 1);
	assert_int_equal(cqes[0].res, SLOT);
	assert_int_equal(cqes[0].flags, KVCTX_CQE_P2P);
	assert_int_equal(copies.ends, 0);
}

static void queued_errors(void **state)
{
	struct kvctx_cqe cqes[4];
	int i;

	(void)state;
	put_page(1, SLOT);
	for (i = 0; i < 20; i++) {
		copies.result = -EXDEV;
		copies.fail_piece = 2;
		move_queued(KVCTX_OP_STORE, 2, SLOT, true);
		assert_int_equal(kvctx_submit(ctx), 1);
		reap(cqes, 1);
		assert_int_equal(cqes[0].res, -EXDEV);
		assert_int_equal(cqes[0].user_data, 1002);
		copies.result = -EAGAIN;	/* is not taken for a full queue */
		copies.fail_end = 1;
		move_queued(KVCTX_OP_STORE, 2, SLOT, true);
		assert_int_equal(kvctx_submit(ctx), 1);
		reap(cqes, 1);
		assert_int_equal(cqes[0].res, -EAGAIN);
		copies.fail_end = 1;
		move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
		assert_int_equal(kvctx_submit(ctx), 1);
		reap(cqes, 1);
		assert_int_equal(cqes[0].res, -EAGAIN);
	}
	assert_int_equal(fake_pages(), 1);
	fake.hold_calls = true;
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
	fake_release(1);
	fake.fail_submit = -ENODEV;
	reap(cqes, 1);
	assert_int_equal(cqes[0].res, -ENODEV);
}

/* With poll() or an eventfd: nothing sleeps, each peek goes on with what there is */
static void peeking_only(void **state)
{
	struct kvctx_cqe cqe;
	unsigned int n;

	(void)state;
	for (n = 0; n < 5; n++) {
		put_page(n, SLOT);
		move_queued(KVCTX_OP_LOAD, n, SLOT, true);
	}
	fake.hold_calls = true;
	assert_int_equal(kvctx_submit(ctx), 5);
	fake_release(5);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);	/* three have a slot */
	assert_int_equal(kvctx_wait(ctx, 1, 0), -ETIME);
	assert_int_equal(kvctx_wait(ctx, 1, 1000000), -ETIME);
	fake_release(2);
	for (n = 0; n < 2; n++) {
		assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
		assert_int_equal(cqe.user_data, 1000 + n);
	}
	fake_release(3);
	for (; n < 5; n++) {
		assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
		assert_int_equal(cqe.user_data, 1000 + n);
		assert_true(is_filled(bytes + n * SLOT, SLOT, n));
	}
	assert_int_equal(fake.waits, 1);
}

/* The kernel has no room when it is to be done again */
static void full_queue(void **state)
{
	struct kvctx_cqe cqe;

	(void)state;
	put_page(1, SLOT);
	fake.hold_calls = true;
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
	fake_release(1);
	fake.fail_submit = -EAGAIN;
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);
	assert_int_equal(kvctx_wait(ctx, 1, 1000000), -ETIME);
	fake.fail_submit = 0;
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
	assert_int_equal(cqe.res, SLOT);
	assert_int_equal(copies.ends, 1);
}

/* Pieces that leave their memory, or memory that has gone, when it comes to copying */
static void memory_that_is_gone(void **state)
{
	struct kvctx_cqe cqe;
	uint32_t id;

	(void)state;
	put_page(1, SLOT);
	fake.hold_calls = true;
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);
	id = mem;
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
	assert_int_equal(cqe.res, -EINVAL);
	assert_int_equal(kvctx_mem_register(ctx, peer, 1000, &mem), 0);
	assert_int_equal(mem, id);
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 0);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
	assert_int_equal(cqe.res, -EFAULT);
}

/* Synchronous calls find all slots taken by operations that nobody reaps */
static void calls_beside_queued(void **state)
{
	struct kvctx_key key = key_of(20);
	struct kvctx_cqe cqes[9];
	unsigned int n;

	(void)state;
	for (n = 0; n < 8; n++) {
		put_page(n, SLOT);
		move_queued(KVCTX_OP_LOAD, n, SLOT, true);
	}
	put_page(20, SLOT);
	fake.hold_calls = true;
	fake_disk_start(5);
	assert_int_equal(kvctx_submit(ctx), 8);
	for (n = 0; n < 10; n++)
		assert_int_equal(kvctx_load_staged(ctx, &key, peer + 20 * SLOT, SLOT, NULL, NULL), SLOT);
	assert_true(is_filled(bytes + 20 * SLOT, SLOT, 20));
	reap(cqes, 8);
	fake_disk_stop();
	for (n = 0; n < 8; n++)
		assert_true(is_filled(bytes + n * SLOT, SLOT, n));
}

static bool in_use[16];		/* pages of several_threads(): scatter list and memory */

static void *reaper(void *arg)
{
	unsigned int *left = arg;
	struct kvctx_cqe cqe;

	while (__atomic_load_n(left, __ATOMIC_ACQUIRE)) {
		kvctx_wait(ctx, 1, 2000000);
		if (!kvctx_take(ctx, &cqe, 1))
			continue;
		assert_int_equal(cqe.res, SLOT);
		assert_true(is_filled(bytes + (cqe.user_data - 1000) * SLOT, SLOT, cqe.user_data - 1000));
		__atomic_store_n(&in_use[cqe.user_data - 1000], false, __ATOMIC_RELEASE);
		__atomic_sub_fetch(left, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

static void *caller(void *arg)
{
	struct kvctx_key key = key_of(50);
	unsigned int *left = arg;

	while (__atomic_load_n(left, __ATOMIC_ACQUIRE))
		assert_int_equal(kvctx_load_staged(ctx, &key, peer + 50 * SLOT, SLOT, NULL, NULL), SLOT);
	return NULL;
}

static void several_threads(void **state)
{
	unsigned int left = 300, sent = 0, page;
	pthread_t threads[4];
	int i, ret;

	(void)state;
	for (i = 0; i < 16; i++)
		put_page((uint64_t)i, SLOT);
	put_page(50, SLOT);
	fake.hold_calls = true;
	fake_disk_start(6);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i ? reaper : caller, &left), 0);
	while (sent < 300) {
		for (page = 0; page < 16 && __atomic_load_n(&in_use[page], __ATOMIC_ACQUIRE); page++)
			;
		if (page == 16)
			continue;
		in_use[page] = true;
		move_queued(KVCTX_OP_LOAD, page, SLOT, true);
		while ((ret = kvctx_submit(ctx)) == -EAGAIN)
			usleep(100);		/* calls have filled the ring */
		assert_int_equal(ret, 1);
		sent++;
	}
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	fake_disk_stop();
}

/* A wait for several goes on with one that was refused while others are in the kernel */
static void *release_one_by_one(void *arg)
{
	fake_await_kept(2);
	fake_await_sleepers(1);
	fake_release(1);
	fake_await_kept(2);	/* the other one, and the first again */
	fake_release(2);
	fake_await_kept(1);
	fake_release(1);
	return arg;
}

static void waiting_goes_on(void **state)
{
	struct kvctx_cqe cqes[3];
	pthread_t thread;

	(void)state;
	put_page(1, SLOT);
	put_page(2, SLOT);
	fake.hold_calls = true;
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	move_queued(KVCTX_OP_LOAD, 2, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(pthread_create(&thread, NULL, release_one_by_one, NULL), 0);
	reap(cqes, 2);
	pthread_join(thread, NULL);
	assert_int_equal(cqes[0].res, SLOT);
	assert_int_equal(cqes[1].res, SLOT);
}

static void submitting_and_waiting(void **state)
{
	struct kvctx_cqe cqe;
	int i;

	(void)state;
	put_page(1, SLOT);
	fake.hold_calls = true;
	fake_disk_start(7);
	for (i = 0; i < 20; i++) {
		move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
		assert_int_equal(kvctx_submit_and_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 1);
		assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
		assert_int_equal(cqe.res, SLOT);
		assert_int_equal(cqe.flags, KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED);
	}
	fake_disk_stop();
}

static void *call_once(void *arg)
{
	struct kvctx_key key = key_of(60);

	assert_int_equal(kvctx_store_staged(ctx, &key, peer, SLOT, NULL, NULL), SLOT);
	return arg;
}

/* Calls have all slots and keep them; a LOAD, submitted behind them, waits for one */
static void calls_take_slots(pthread_t *threads)
{
	int i;

	put_page(1, SLOT);
	__atomic_store_n(&copies.hold, true, __ATOMIC_RELEASE);
	for (i = 0; i < SLOTS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_once, NULL), 0);
	while (__atomic_load_n(&copies.held, __ATOMIC_SEQ_CST) != SLOTS)
		usleep(100);
	move_queued(KVCTX_OP_LOAD, 1, SLOT, true);
	assert_int_equal(kvctx_submit(ctx), 1);
}

/* Calls have all slots, and nothing is in the kernel: who waits for a slot is not told that nothing comes any more */
static void waiting_for_slots_of_calls(void **state)
{
	pthread_t threads[SLOTS];
	struct kvctx_cqe cqes[2];
	int i;

	(void)state;
	calls_take_slots(threads);
	assert_int_equal(kvctx_wait(ctx, 1, 20000000), -ETIME);
	__atomic_store_n(&copies.hold, false, __ATOMIC_RELEASE);
	reap(cqes, 1);
	assert_int_equal(cqes[0].res, SLOT);
	for (i = 0; i < SLOTS; i++)
		pthread_join(threads[i], NULL);
}

/* A call that gives its slot back uses it for who waits for one: who sleeps in the kernel cannot */
static void calls_give_slots_on(void **state)
{
	pthread_t threads[SLOTS];
	struct kvctx_cqe cqes[2];
	int i;

	(void)state;
	calls_take_slots(threads);
	assert_int_equal(kvctx_wait(ctx, 1, 1000000), -ETIME);
	fake.hold_calls = true;
	__atomic_store_n(&copies.hold, false, __ATOMIC_RELEASE);
	fake_await_kept(SLOTS);
	fake_release(1);
	fake_await_kept(SLOTS);	/* the others, and the LOAD */
	fake_release(SLOTS);
	for (i = 0; i < SLOTS; i++)
		pthread_join(threads[i], NULL);
	reap(cqes, 1);
	assert_int_equal(cqes[0].res, SLOT);
	assert_true(is_filled(bytes + SLOT, SLOT, 1));
}

/* A session that cannot write the arena stages LOADs all the same, but not into the arena itself */
static void read_only(void **state)
{
	struct kvctx_key key = key_of(1);
	struct kvctx_seg segs[2];
	struct kvctx_sqe *sqe;
	struct kvctx_cqe cqe;

	(void)state;
	put_page(1, 2000);
	assert_int_equal(kvctx_mem_unregister(ctx, mem), 0);
	reopen(O_RDONLY, 8, 16);
	copies.ctx = ctx;
	assert_int_equal(kvctx_mem_register(ctx, peer, PEER, &mem), 0);
	assert_int_equal(kvctx_stage_init(ctx, copy, &copies, SLOTS_AT, SLOTS, SLOT), 0);
	assert_int_equal(kvctx_load_staged(ctx, &key, peer + 5, 2000, NULL, NULL), 2000);
	assert_true(is_filled(bytes + 5, 2000, 1));
	segs[0] = (struct kvctx_seg){ .mem = mem, .length = 1000 };
	segs[1] = (struct kvctx_seg){ .mem = KVCTX_MEM_ARENA, .length = 1000 };
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_load(sqe, &key, segs, 2, 0, 2000);
	assert_int_equal(kvctx_stage(ctx, sqe), 0);
	assert_int_equal(kvctx_submit(ctx), 1);
	assert_int_equal(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 1);
	assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
	assert_int_equal(cqe.res, -EREMOTEIO);
	key.qualifier++;
	/* the copy would write the arena: nothing is stored, and nothing is touched */
	assert_int_equal(kvctx_store_staged(ctx, &key, peer, 100, NULL, NULL), -EACCES);
	assert_int_equal(kvctx_store_staged(ctx, &key, bytes, 100, NULL, NULL), -EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(parameters),
		TEST(synchronous),
		TEST(synchronous_without_registration),
		TEST(synchronous_and_not_admitted),
		TEST(synchronous_errors),
		TEST(queued),
		TEST(queued_for_long),
		TEST(queued_and_refused),
		TEST(queued_errors),
		TEST(peeking_only),
		TEST(full_queue),
		TEST(memory_that_is_gone),
		TEST(calls_beside_queued),
		TEST(several_threads),
		TEST(waiting_goes_on),
		TEST(submitting_and_waiting),
		TEST(waiting_for_slots_of_calls),
		TEST(calls_give_slots_on),
		TEST(read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
