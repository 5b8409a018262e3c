// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Batches with pages in memory that was never registered. The fake kernel does not know that memory and would refuse
 * it; what is there afterwards came through the slots, of which there are far fewer than pages.
 */
#include "test.h"

#define NR		24
#define PAGE		512
#define SLOTS		3
#define SLOTS_AT	(ARENA - SLOTS * PAGE)

struct pages {
	struct kvctx_key keys[NR];
	void *addrs[2 * NR];
	uint32_t lens[2 * NR], pieces[NR];
	int32_t res[NR];
	uint32_t flags[NR];
	struct kvctx_batch b;
};

static uint8_t memory[8][NR * PAGE];	/* one a thread; nobody registers it */

static int away_setup(void **state)
{
	int ret = setup(state);

	memset(memory, 0, sizeof(memory));
	return ret | kvctx_stage_init_at(ctx, NULL, NULL, (uint8_t *)kvctx_arena(ctx, NULL) + SLOTS_AT, SLOTS, PAGE);
}

#undef TEST
#define TEST(f)		cmocka_unit_test_setup_teardown(f, away_setup, teardown)

static void fill(uint8_t *m, int fill)
{
	int i;

	for (i = 0; i < NR * PAGE; i++)
		m[i] = (uint8_t)(fill + i / PAGE * 7 + i % PAGE);
}

static bool is_filled(const uint8_t *m, uint32_t page, int fill)
{
	int i;

	for (i = 0; i < PAGE; i++)
		if (m[page * PAGE + i] != (uint8_t)(fill + (int)page * 7 + i))
			return false;
	return true;
}

/* Pages of one piece each in @m */
static void lay_out(struct pages *p, uint8_t opcode, uint8_t *m, uint64_t keys)
{
	uint32_t i;

	memset(p, 0, sizeof(*p));
	for (i = 0; i < NR; i++) {
		p->keys[i] = kvctx_key_from_u64(i, keys);
		p->addrs[i] = m + (size_t)i * PAGE;
		p->lens[i] = PAGE;
		p->res[i] = 12345;
	}
	p->b = (struct kvctx_batch){
		.size = sizeof(p->b), .flags = KVCTX_BATCH_STAGE, .opcode = opcode, .nr = NR, .keys = p->keys,
		.addrs = p->addrs, .lens = p->lens, .res = p->res, .cqe_flags = p->flags, .user_data = 99,
	};
}

static void check_loaded(const struct pages *p, const uint8_t *m, int fill)
{
	uint32_t i;

	for (i = 0; i < NR; i++) {
		assert_int_equal(p->res[i], PAGE);
		assert_int_equal(p->flags[i], KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED);
		assert_true(is_filled(m, i, fill));
	}
}

static void stored_and_loaded(void **state)
{
	struct kvctx_key gone = kvctx_key_from_u64(5, 7);
	struct pages p;
	uint32_t i;

	(void)state;
	fill(memory[0], 1);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 7);
	p.b.flags = 0;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EFAULT);
	p.b.flags = KVCTX_BATCH_STAGE;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	for (i = 0; i < NR; i++) {
		assert_int_equal(p.res[i], PAGE);
		assert_int_equal(p.flags[i], KVCTX_CQE_STAGED);
	}
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 7);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	check_loaded(&p, memory[1], 1);
	assert_int_equal(kvctx_delete(ctx, &gone), 0);
	memset(memory[1], 0, sizeof(memory[1]));
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 7);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR - 1);
	assert_int_equal(p.res[5], -ENOENT);
	assert_int_equal(memory[1][5 * PAGE], 0);
	assert_int_equal(fake.registered, 0);
}

/* Some pages in the arena, some registered, some away, some in pieces of all three */
static void memory_of_all_kinds(void **state)
{
	uint8_t *arena = kvctx_arena(ctx, NULL);
	static uint8_t registered[NR * PAGE];
	struct pages p;
	uint32_t i, id;

	(void)state;
	assert_int_equal(kvctx_mem_register(ctx, registered, sizeof(registered), &id), 0);
	fill(memory[0], 3);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 1);
	p.b.pieces = p.pieces;
	for (i = 0; i < NR; i++) {	/* the halves of a page next to each other, each in memory of some kind */
		uint8_t *of[] = { memory[1], registered, arena };

		p.pieces[i] = 2;
		p.addrs[2 * i] = of[i % 3] + (size_t)i * PAGE;
		p.addrs[2 * i + 1] = of[i / 3 % 3] + (size_t)i * PAGE + 100;
		p.lens[2 * i] = 100;
		p.lens[2 * i + 1] = PAGE - 100;
	}
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	for (i = 0; i < NR; i++) {
		bool away = i % 3 == 0 || i / 3 % 3 == 0;

		memcpy(memory[2] + i * PAGE, p.addrs[2 * i], 100);
		memcpy(memory[2] + i * PAGE + 100, p.addrs[2 * i + 1], PAGE - 100);
		assert_true(is_filled(memory[2], i, 3));
		assert_int_equal(!!(p.flags[i] & KVCTX_CQE_STAGED), away);
	}
	p.lens[0] = 0;	/* as the kernel refuses it */
	p.lens[1] = PAGE;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR - 1);
	assert_int_equal(p.res[0], -EINVAL);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

/* A page waits, a half of it in a registration that goes meanwhile, and whose number another one gets */
static void registration_goes(void **state)
{
	static uint8_t half[PAGE], other[PAGE];
	struct kvctx_cqe cqe[2];
	struct pages p;
	uint32_t id, again;

	(void)state;
	fill(memory[0], 6);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	assert_int_equal(kvctx_mem_register(ctx, half, PAGE, &id), 0);
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 1);
	p.b.nr = SLOTS + 1;
	p.b.pieces = p.pieces;
	for (int i = 0; i <= SLOTS; i++)
		p.pieces[i] = 1 + (i == SLOTS);
	p.lens[SLOTS] = 100;
	p.addrs[SLOTS + 1] = half;
	p.lens[SLOTS + 1] = PAGE - 100;
	fake.hold_calls = true;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	assert_int_equal(kvctx_mem_register(ctx, other, PAGE, &again), 0);
	assert_int_equal(again, id);
	fake_release(SLOTS);
	assert_int_equal(kvctx_take(ctx, cqe, 2), 0);
	fake_release(1);
	assert_int_equal(kvctx_take(ctx, cqe, 2), 1);
	assert_int_equal(cqe[0].res, SLOTS + 1);
	memcpy(memory[1] + SLOTS * PAGE + 100, half, PAGE - 100);
	assert_true(is_filled(memory[1], SLOTS, 6));
	assert_int_equal(other[0], 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

/* STOREs are copied when they are submitted, as many as find slots; a LOAD's memory changes when somebody reaps */
static void one_slot_after_the_other(void **state)
{
	struct kvctx_cqe cqe[4];
	struct pages p;
	uint32_t i;

	(void)state;
	fake.hold_calls = true;
	fill(memory[0], 9);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	memset(memory[0], 0, SLOTS * PAGE);	/* not what a caller may do: it shows which were copied */
	fake_await_kept(SLOTS);
	for (i = SLOTS; i < NR; i += SLOTS) {
		fake_release(SLOTS);
		assert_int_equal(kvctx_take(ctx, cqe, 4), 0);
		fake_await_kept(SLOTS);
	}
	fake_release(SLOTS);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 1);
	assert_int_equal(cqe[0].user_data, 99);
	assert_int_equal(cqe[0].res, NR);
	lay_out(&p, KVCTX_OP_LOAD, memory[0], 1);
	memset(memory[0], 0, sizeof(memory[0]));
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	fake_release(SLOTS);
	assert_int_equal(p.res[0], 12345);
	assert_int_equal(memory[0][2], 0);
	for (i = SLOTS; i < NR; i += SLOTS) {
		assert_int_equal(kvctx_take(ctx, cqe, 4), 0);
		assert_int_equal(p.res[i - 1], PAGE);
		assert_int_equal(p.res[i], 12345);
		fake_release(SLOTS);
	}
	assert_int_equal(kvctx_drain(ctx, KVCTX_TIMEOUT_NONE), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 1);
	assert_int_equal(cqe[0].res, NR);
	check_loaded(&p, memory[0], 9);
}

/* What has a slot goes on, the rest ends; the next batch finds all slots */
static void cancelled(void **state)
{
	struct kvctx_cqe cqe[4];
	struct pages p, q;
	uint32_t i;

	(void)state;
	fake.hold_calls = true;
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	lay_out(&q, KVCTX_OP_STORE, memory[0], 2);
	q.b.nr = 4;
	q.b.user_data = 98;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_batch_submit(ctx, &q.b), 0);
	fake.hold_calls = false;
	assert_int_equal(kvctx_cancel(ctx, 99), NR - SLOTS);
	assert_int_equal(kvctx_cancel(ctx, 99), 0);
	for (i = 0; i < NR; i++)
		assert_int_equal(p.res[i], i < SLOTS ? 12345 : -ECANCELED);
	assert_int_equal(q.res[0], 12345);
	fake_release(SLOTS);
	assert_int_equal(kvctx_wait(ctx, 2, KVCTX_TIMEOUT_NONE), 2);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 2);
	assert_int_equal(cqe[0].user_data, 99);
	assert_int_equal(cqe[0].res, SLOTS);
	assert_int_equal(cqe[1].user_data, 98);
	assert_int_equal(cqe[1].res, 4);
}

/* A page longer than a slot is refused before anything is done, until there are longer slots. */
static void slots_elsewhere(void **state)
{
	static uint8_t registered[4 * PAGE];
	struct kvctx_cqe cqe[2];
	struct pages p;
	uint32_t id;

	(void)state;
	fill(memory[0], 4);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	p.lens[1] = 2 * PAGE;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EFAULT);
	assert_int_equal(p.res[0], 12345);
	assert_int_equal(fake_pages(), 0);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 2, 2 * PAGE), -EINVAL);
	assert_int_equal(kvctx_mem_register(ctx, registered, sizeof(registered), &id), 0);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 2, 2 * PAGE + 1), -EINVAL);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 0, PAGE), -EINVAL);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 1, 0), -EINVAL);
	fake.hold_calls = true;
	p.lens[1] = PAGE;
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 2, 2 * PAGE), -EBUSY);
	fake.hold_calls = false;
	fake_release(SLOTS);
	assert_int_equal(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 1);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, registered, 2, 2 * PAGE), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), -EBUSY);
	assert_int_equal(kvctx_take(ctx, cqe, 2), 1);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 2);
	p.lens[1] = 2 * PAGE;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 2);
	p.lens[1] = 2 * PAGE;
	p.b.nr = 2;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 2);
	assert_true(is_filled(memory[1], 1, 4) && is_filled(memory[1], 2, 4));
	/* longer than any page: as with registered memory */
	p.lens[1] = kvctx_get_info(ctx)->page_len_max + 1;
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 1);
	assert_int_equal(p.res[1], -ERANGE);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, NULL, 0, 0), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), -EFAULT);
}

/* The kernel has no room for what has a slot; and then refuses it */
static void refused(void **state)
{
	struct kvctx_cqe cqe[2];
	struct pages p;
	uint32_t i;

	(void)state;
	fake.fail_submit = -EAGAIN;
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 2), 0);
	assert_int_equal(kvctx_wait(ctx, 1, 1000000), -ETIME);
	fake.fail_submit = 0;
	assert_int_equal(kvctx_take(ctx, cqe, 2), 1);
	assert_int_equal(cqe[0].res, NR);
	fake.fail_submit = -ENODEV;
	lay_out(&p, KVCTX_OP_LOAD, memory[0], 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 0);
	for (i = 0; i < NR; i++)
		assert_int_equal(p.res[i], -ENODEV);
}

/* A session that cannot write the slots loads through them, and stores nothing */
static void read_only(void **state)
{
	struct pages p;

	(void)state;
	fill(memory[0], 8);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	reopen(O_RDONLY, LIMIT, 1024);
	assert_int_equal(kvctx_stage_init_at(ctx, NULL, NULL, kvctx_arena(ctx, NULL), SLOTS, PAGE), 0);
	lay_out(&p, KVCTX_OP_STORE, memory[0], 2);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), 0);
	assert_int_equal(p.res[0], -EACCES);
	lay_out(&p, KVCTX_OP_LOAD, memory[1], 1);
	assert_int_equal(kvctx_batch_run(ctx, &p.b), NR);
	check_loaded(&p, memory[1], 8);
}

static void closed_in_flight(void **state)
{
	struct pages p;

	(void)state;
	fake.hold_calls = true;
	lay_out(&p, KVCTX_OP_LOAD, memory[0], 1);
	assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
	reopen(O_RDWR, LIMIT, 1024);
	assert_int_equal(memory[0][0], 0);
}

struct worker {
	pthread_t thread;
	int n, failed;
};

/* Stores and loads pages of its own by batches, which are several times all slots, or by single calls beside them */
static void *hammer(void *arg)
{
	struct worker *w = arg;
	uint8_t *m = memory[w->n];
	struct pages p;
	int round;

	for (round = 0; round < 60; round++) {
		struct kvctx_key key = kvctx_key_from_u64(1000 + (uint64_t)w->n, (uint64_t)round);

		fill(m, round);
		if (w->n == 3) {
			w->failed |= kvctx_store_staged(ctx, &key, m, PAGE, NULL, NULL) != PAGE;
			memset(m, 0, PAGE);
			w->failed |= kvctx_load_staged(ctx, &key, m, PAGE, NULL, NULL) != PAGE;
			w->failed |= !is_filled(m, 0, round);
			kvctx_delete(ctx, &key);
			continue;
		}
		lay_out(&p, KVCTX_OP_STORE, m, (uint64_t)w->n);
		w->failed |= kvctx_batch_run(ctx, &p.b) != NR;
		memset(m, 0, sizeof(memory[0]));
		p.b.opcode = KVCTX_OP_LOAD;
		w->failed |= kvctx_batch_run(ctx, &p.b) != NR;
		for (uint32_t i = 0; i < NR; i++) {
			w->failed |= !is_filled(m, i, round);
			kvctx_delete(ctx, &p.keys[i]);
		}
	}
	return NULL;
}

/* One submits and another reaps, beside threads that wait for their own */
static void many_threads(void **state)
{
	struct worker w[4] = { 0 };
	struct kvctx_cqe cqe;
	struct pages p;
	int i, round;

	(void)state;
	fake.hold = true;
	fake.hold_calls = true;
	fake_disk_start(13);
	for (i = 0; i < 4; i++) {
		w[i].n = i;
		assert_int_equal(pthread_create(&w[i].thread, NULL, hammer, &w[i]), 0);
	}
	for (round = 0; round < 40; round++) {
		fill(memory[4], round);
		lay_out(&p, KVCTX_OP_STORE, memory[4], 500);
		for (i = 0; i < 2; i++) {
			assert_int_equal(kvctx_batch_submit(ctx, &p.b), 0);
			assert_int_equal(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 1);
			assert_int_equal(kvctx_take(ctx, &cqe, 1), 1);
			assert_int_equal(cqe.res, NR);
			if (i == 0)
				memset(memory[4], 0, sizeof(memory[4]));
			p.b.opcode = KVCTX_OP_LOAD;
		}
		check_loaded(&p, memory[4], round);
		for (i = 0; i < NR; i++)
			kvctx_delete(ctx, &p.keys[i]);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].failed, 0);
	}
	fake_disk_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stored_and_loaded),
		TEST(memory_of_all_kinds),
		TEST(registration_goes),
		TEST(one_slot_after_the_other),
		TEST(cancelled),
		TEST(slots_elsewhere),
		TEST(refused),
		TEST(read_only),
		TEST(closed_in_flight),
		TEST(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
