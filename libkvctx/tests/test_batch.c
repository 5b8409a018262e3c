// SPDX-License-Identifier: LGPL-2.1-or-later
/* Many pages in one call. */
#include "test.h"

#define NR	24
#define PAGE	512

struct pages {
	struct kvctx_key keys[NR];
	void *addrs[2 * NR];
	uint32_t lens[2 * NR], pieces[NR];
	int32_t res[NR];
	uint32_t flags[NR];
	struct kvctx_batch b;
};

/* Pages of one piece each in the arena, page n filled with @fill + n */
static void lay_out(struct pages *p, uint8_t opcode, uint32_t nr, int fill)
{
	uint8_t *arena = kvctx_arena(ctx, NULL);
	uint32_t i;

	memset(p, 0, sizeof(*p));
	for (i = 0; i < nr; i++) {
		p->keys[i] = kvctx_key_from_u64(i, 7);
		p->addrs[i] = arena + (size_t)i * PAGE;
		p->lens[i] = PAGE;
		memset(p->addrs[i], fill + (int)i, PAGE);
		p->res[i] = 12345;
	}
	p->b = (struct kvctx_batch){
		.size = sizeof(p->b), .opcode = opcode, .nr = nr, .keys = p->keys, .addrs = p->addrs,
		.lens = p->lens, .res = p->res, .cqe_flags = p->flags, .user_data = 99,
	};
}

static void check_bytes(const struct pages *p, uint32_t nr, int fill)
{
	uint32_t i;

	for (i = 0; i < nr; i++) {
		const uint8_t *page = p->addrs[i];

		assert_int_equal(page[0], (uint8_t)(fill + (int)i));
		assert_int_equal(page[PAGE - 1], (uint8_t)(fill + (int)i));
	}
}

static void stored_and_loaded(void **state)
{
	struct kvctx_key gone = kvctx_key_from_u64(5, 7);
	struct pages p;
	uint32_t i;

	(void)state;
	lay_out(&p, KVCTX_OP_STORE, NR, 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	for (i = 0; i < NR; i++)
		assert_int_equal(p.res[i], PAGE);
	assert_int_equal(kvctx_delete(ctx, &gone), 0);
	lay_out(&p, KVCTX_OP_LOAD, NR, 100);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR - 1);
	for (i = 0; i < NR; i++)
		assert_int_equal(p.res[i], i == 5 ? -ENOENT : PAGE);
	memset(p.addrs[5], 1 + 5, PAGE);
	check_bytes(&p, NR, 1);
	assert_true(p.flags[0] & KVCTX_CQE_VERIFIED);
	assert_int_equal(fake.waits, 0);
}

/* One completion, behind the last of them, whatever the order */
static void one_completion(void **state)
{
	struct kvctx_cqe cqe[4];
	struct pages p;

	(void)state;
	fake.hold_calls = true;
	lay_out(&p, KVCTX_OP_STORE, NR, 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 0);
	fake_release_newest();
	fake_release(NR - 2);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 0);
	fake_release(1);
	assert_int_equal(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 1);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 1);
	assert_int_equal(cqe[0].user_data, 99);
	assert_int_equal(cqe[0].res, NR);
	assert_int_equal(cqe[0].flags, 0);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 0);
}

/* It counts as so many operations as it has pages, and as one from when all but its own completion are there. */
static void room(void **state)
{
	struct kvctx_cqe cqe[4];
	struct pages p, q;

	(void)state;
	fake.hold_calls = true;
	lay_out(&p, KVCTX_OP_STORE, NR, 1);
	lay_out(&q, KVCTX_OP_STORE, LIMIT - NR + 1, 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_batch_submit(ctx, &q.b), -EAGAIN);
	fake_release(NR);
	q.b.nr--;
	assert_int_equal(kvctx_batch_submit(ctx, &q.b), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 1);
	fake_release(LIMIT - NR);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 1);
	assert_int_equal(queue(0, 16), 16);
	assert_int_equal(kvctx_submit(ctx), 16);
	expect_cqes(0, 16);
}

static void pages_of_many_pieces(void **state)
{
	static uint8_t mem[NR * PAGE];
	struct pages p;
	uint32_t i, id;

	(void)state;
	assert_int_equal(kvctx_mem_register(ctx, mem, sizeof(mem), &id), 0);
	lay_out(&p, KVCTX_OP_STORE, 12, 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 12);
	/* loaded: page n to one piece, or to two, of which one is somewhere else */
	lay_out(&p, KVCTX_OP_LOAD, 12, 100);
	p.b.pieces = p.pieces;
	for (i = 0; i < 18; i++) {
		p.addrs[i] = mem + (size_t)i * PAGE;
		p.lens[i] = i % 3 ? PAGE / 2 : PAGE;
	}
	for (i = 0; i < 12; i++)
		p.pieces[i] = i % 2 ? 2 : 1;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 12);
	for (i = 0; i < 18; i++) {
		assert_int_equal(mem[i * PAGE], 1 + i / 3 * 2 + (i % 3 != 0));
		assert_int_equal(mem[i * PAGE + p.lens[i] - 1], 1 + i / 3 * 2 + (i % 3 != 0));
	}
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

static void refusals(void **state)
{
	uint8_t elsewhere[PAGE];
	struct pages p;

	(void)state;
	lay_out(&p, KVCTX_OP_STORE, 2, 1);
	p.b.nr = 0;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EINVAL);
	p.b.nr = LIMIT + 1;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), -E2BIG);
	p.b.nr = 65537;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -E2BIG);
	p.b.nr = 2;
	p.b.opcode = KVCTX_OP_FLUSH;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EINVAL);
	p.b.opcode = KVCTX_OP_STORE;
	p.b.flags = 2;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EINVAL);
	p.b.flags = 0;
	p.b.user_data = KVCTX_USER_DATA_END;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), -EINVAL);
	p.b.user_data = 1;
	p.b.size = 8;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), -EINVAL);
	p.b.size = sizeof(p.b);
	p.b.offset = 1;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EINVAL);
	p.b.offset = 0;
	p.addrs[1] = elsewhere;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EFAULT);
	assert_int_equal(p.res[0], 12345);
	assert_int_equal(fake_pages(), 0);
}

/* A part of each page, from the same place on; and what a program of another version hands over */
static void from_an_offset_on(void **state)
{
	struct {
		struct kvctx_batch b;
		uint64_t later;
	} wide;
	struct pages p;
	uint32_t i;

	(void)state;
	lay_out(&p, KVCTX_OP_STORE, 4, 1);
	for (i = 0; i < 4; i++)
		((uint8_t *)p.addrs[i])[PAGE - 1] = (uint8_t)(200 + i);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 4);
	lay_out(&p, KVCTX_OP_LOAD, 4, 50);
	p.b.offset = PAGE - 2;
	for (i = 0; i < 4; i++)
		p.lens[i] = i == 3 ? 3 : 2;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 3);
	assert_int_equal(p.res[3], -ERANGE);
	for (i = 0; i < 3; i++) {
		assert_int_equal(((uint8_t *)p.addrs[i])[0], 1 + i);
		assert_int_equal(((uint8_t *)p.addrs[i])[1], 200 + i);
		assert_int_equal(((uint8_t *)p.addrs[i])[2], 50 + i);
	}
	/* one who does not know of it gets the first bytes */
	p.b.size = offsetof(struct kvctx_batch, offset);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 4);
	assert_int_equal(((uint8_t *)p.addrs[0])[1], 1);
	wide.b = p.b;
	wide.b.size = sizeof(wide);
	wide.later = 0;
	assert_int_equal(kvctx_batch_run(ctx, &wide.b), 3);
	wide.later = 1;
	assert_int_equal(kvctx_batch_run(ctx, &wide.b), -E2BIG);
}

/* Pages that the kernel does not take have its error; the others theirs. */
static void the_kernel_takes_a_part(void **state)
{
	struct pages p;
	uint32_t i;

	(void)state;
	fake.submit_max = 5;
	lay_out(&p, KVCTX_OP_STORE, NR, 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	assert_int_equal(fake.submits, 5);
	fake.fail_submit = -ENODEV;
	lay_out(&p, KVCTX_OP_LOAD, NR, 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 0);
	for (i = 0; i < NR; i++)
		assert_int_equal(p.res[i], -ENODEV);
	fake.fail_submit = 0;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
}

struct worker {
	pthread_t thread;
	uint32_t n;
	int failed;
};

static void *hammer(void *arg)
{
	struct worker *w = arg;
	struct kvctx_key keys[8];
	void *addrs[8];
	uint32_t lens[8], i, round;
	int32_t res[8];
	uint8_t *at = (uint8_t *)kvctx_arena(ctx, NULL) + (size_t)w->n * 8 * PAGE;
	struct kvctx_batch b = {
		.size = sizeof(b), .opcode = KVCTX_OP_STORE, .nr = 8, .keys = keys, .addrs = addrs, .lens = lens,
		.res = res,
	};

	for (round = 0; round < 200; round++) {
		for (i = 0; i < 8; i++) {
			keys[i] = kvctx_key_from_u64(w->n << 8 | i, round);
			addrs[i] = at + (size_t)i * PAGE;
			lens[i] = PAGE;
			memset(addrs[i], (int)(round + i), PAGE);
		}
		b.opcode = KVCTX_OP_STORE;
		w->failed |= kvctx_batch_run(ctx, &b) != 8;
		memset(at, 0, 8 * PAGE);
		b.opcode = KVCTX_OP_LOAD;
		w->failed |= kvctx_batch_run(ctx, &b) != 8;
		for (i = 0; i < 8; i++) {
			w->failed |= at[i * PAGE] != (uint8_t)(round + i);
			kvctx_delete(ctx, &keys[i]);
		}
	}
	return NULL;
}

static void many_threads(void **state)
{
	struct worker w[4] = { 0 };
	uint32_t i;

	(void)state;
	fake.hold = true;
	fake.hold_calls = true;
	fake_disk_start(11);
	for (i = 0; i < 4; i++) {
		w[i].n = i;
		assert_int_equal(pthread_create(&w[i].thread, NULL, hammer, &w[i]), 0);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].failed, 0);
	}
	fake_disk_stop();
}

static void *load_one(void *arg)
{
	struct pages *p = arg;

	return (void *)(intptr_t)kvctx_batch_run(ctx, &p->b);
}

/* Its memory, or what another registered under the same id, is not written to by a page that waits for room. */
static void memory_of_what_waits_for_room(void **state)
{
	static uint8_t mem[3][PAGE];
	pthread_t thread;
	struct pages p;
	uint32_t ids[3], i;
	void *ret;

	(void)state;
	for (i = 0; i < 3; i++)
		assert_int_equal(kvctx_mem_register(ctx, mem[i], PAGE, &ids[i]), 0);
	lay_out(&p, KVCTX_OP_STORE, 2, 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 2);
	lay_out(&p, KVCTX_OP_LOAD, 2, 1);
	p.b.pieces = p.pieces;
	p.pieces[0] = 1;
	p.pieces[1] = 2;
	for (i = 0; i < 3; i++) {
		p.addrs[i] = mem[i];
		p.lens[i] = i ? PAGE / 2 : PAGE;
	}
	fake_stall_submit(-EAGAIN);
	assert_int_equal(pthread_create(&thread, NULL, load_one, &p), 0);
	fake_await_stalled();
	for (i = 0; i < 3; i++)
		assert_int_equal(kvctx_mem_unregister(ctx, ids[i]), -EBUSY);
	fake_go_on();
	pthread_join(thread, &ret);
	assert_int_equal((intptr_t)ret, 2);
	for (i = 0; i < 3; i++)
		assert_int_equal(kvctx_mem_unregister(ctx, ids[i]), 0);
	assert_int_equal(mem[0][0], 1);
	assert_int_equal(mem[2][0], 2);
}

/* Each operation of a batch has a name of its own, however many batches there are. */
static void more_batches_than_places(void **state)
{
	uint32_t i, nr = 1 << 15;
	struct pages p;

	(void)state;
	lay_out(&p, KVCTX_OP_STORE, 1, 1);
	ctx->batches = calloc(nr, sizeof(*ctx->batches));
	ctx->nr_batches = nr;
	for (i = 0; i < nr; i++)
		ctx->batches[i] = (void *)(ctx->batches + i);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), -EAGAIN);
	ctx->batches[nr - 1] = NULL;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 1);
	free(ctx->batches);
	ctx->batches = NULL;
	ctx->nr_batches = 0;
}

/* The end of a session is the end of its batches. */
static void closed_in_flight(void **state)
{
	struct pages p;

	(void)state;
	fake.hold_calls = true;
	lay_out(&p, KVCTX_OP_STORE, NR, 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	reopen(O_RDWR, LIMIT, 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stored_and_loaded),
		TEST(one_completion),
		TEST(room),
		TEST(pages_of_many_pieces),
		TEST(refusals),
		TEST(from_an_offset_on),
		TEST(the_kernel_takes_a_part),
		TEST(many_threads),
		TEST(memory_of_what_waits_for_room),
		TEST(more_batches_than_places),
		TEST(closed_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
