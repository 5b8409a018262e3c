// SPDX-License-Identifier: GPL-2.0
/*
 * The ABI's refusals, for every ioctl and every operation: short, long and dirty sizes, unknown flags, reserved
 * fields, bad pointers, bad ids, the wrong order of calls.
 */
#include "ktest.h"
#include "harness.h"

#define BAD_PTR ((void *)1)

struct row {
	const char *name;
	unsigned long nr;
	size_t size;		/* as published */
	size_t flags_at;	/* offset of the flags field */
	size_t reserved[5];	/* offsets of bytes that are zero in a good argument, ended by 0 */
	bool needs_setup;
	int flags_known;	/* bits from 0 that have a meaning */
};

#define AT(s, f) offsetof(struct s, f)

static const struct row rows[] = {
	{ "INFO", KVCTX_IOC_INFO, sizeof(struct kvctx_info), AT(kvctx_info, flags), { 0 }, false, 0 },
	{ "SETUP", KVCTX_IOC_SETUP, sizeof(struct kvctx_setup), AT(kvctx_setup, flags),
	  { AT(kvctx_setup, reserved), AT(kvctx_setup, eventfd),
	    AT(kvctx_setup, slot_bytes), AT(kvctx_setup, nr_slots) }, false, 1 },
	{ "MEM_REGISTER", KVCTX_IOC_MEM_REGISTER, sizeof(struct kvctx_mem_register), AT(kvctx_mem_register, flags),
	  { AT(kvctx_mem_register, reserved) }, true, 0 },
	{ "MEM_UNREGISTER", KVCTX_IOC_MEM_UNREGISTER, sizeof(struct kvctx_mem_unregister),
	  AT(kvctx_mem_unregister, flags), { AT(kvctx_mem_unregister, reserved) }, true, 0 },
	{ "SUBMIT", KVCTX_IOC_SUBMIT, sizeof(struct kvctx_submit), AT(kvctx_submit, flags),
	  { AT(kvctx_submit, reserved) }, true, 0 },
	{ "WAIT", KVCTX_IOC_WAIT, sizeof(struct kvctx_wait), AT(kvctx_wait, flags), { AT(kvctx_wait, consumed) },
	  true, 0 },
	{ "MATCH", KVCTX_IOC_MATCH, sizeof(struct kvctx_match), AT(kvctx_match, flags),
	  { AT(kvctx_match, reserved), AT(kvctx_match, lease_ms), AT(kvctx_match, present) }, true, 3 },
	{ "PATHS", KVCTX_IOC_PATHS, sizeof(struct kvctx_paths), AT(kvctx_paths, flags), { 0 }, true, 0 },
	{ "EVENTS", KVCTX_IOC_EVENTS, sizeof(struct kvctx_events), AT(kvctx_events, flags),
	  { AT(kvctx_events, reserved) }, true, 0 },
};

#define NR_ROWS (sizeof(rows) / sizeof(rows[0]))

FIXTURE(abi)
{
	struct kt k;
	uint8_t *big;		/* one argument, followed by zeros */
	struct kvctx_sqe sqe;
	struct kvctx_key keys[2];
};

/* A good argument for a row: what is refused afterwards is refused for the one thing that a test changed */
static void good(struct __test_metadata *_metadata, FIXTURE_DATA(abi) *self, const struct row *r)
{
	uint32_t size = r->size;

	memset(self->big, 0, kt_page());
	memcpy(self->big, &size, 4);
	if (r->nr == KVCTX_IOC_SETUP) {
		((struct kvctx_setup *)self->big)->cq_entries = 8;
	} else if (r->nr == KVCTX_IOC_MEM_REGISTER) {
		((struct kvctx_mem_register *)self->big)->addr = (uintptr_t)self->keys;
		((struct kvctx_mem_register *)self->big)->length = 1;
	} else if (r->nr == KVCTX_IOC_MEM_UNREGISTER) {
		struct kvctx_mem_register m = { .size = sizeof(m), .addr = (uintptr_t)self->keys, .length = 1 };

		ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &m));
		((struct kvctx_mem_unregister *)self->big)->id = m.id;
	} else if (r->nr == KVCTX_IOC_SUBMIT) {
		self->sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(1));
		((struct kvctx_submit *)self->big)->sqes = (uintptr_t)&self->sqe;
		((struct kvctx_submit *)self->big)->nr = 1;
	} else if (r->nr == KVCTX_IOC_MATCH) {
		((struct kvctx_match *)self->big)->keys = (uintptr_t)self->keys;
		((struct kvctx_match *)self->big)->nr_keys = 2;
	}
}

static int call(FIXTURE_DATA(abi) *self, const struct row *r)
{
	struct kvctx_file *f = self->k.file;
	int ret;

	if (r->nr == KVCTX_IOC_SETUP) {	/* needs a file of its own */
		ret = kt_file(O_RDWR, &f);
		if (ret)
			return ret;
	}
	ret = kt_ioctl(f, r->nr, self->big);
	if (f != self->k.file)
		kvctx_sys_close(f);
	if (r->nr == KVCTX_IOC_SUBMIT && ret > 0) {
		struct kvctx_cqe cqe;

		kt_wait(&self->k, 1, KT_LIMIT);
		while (kt_reap(&self->k, &cqe))
			;
		ret = 0;
	}
	return ret;
}

FIXTURE_SETUP(abi)
{
	self->big = mmap(NULL, 2 * kt_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->big);
	/* nothing readable behind the first page */
	ASSERT_EQ(0, mprotect(self->big + kt_page(), kt_page(), PROT_NONE));
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0xab, KT_MIB, 64));
}

FIXTURE_TEARDOWN(abi)
{
	kt_close(&self->k);
	munmap(self->big, 2 * kt_page());
}

TEST_F(abi, good_arguments_pass)
{
	for (size_t i = 0; i < NR_ROWS; i++) {
		good(_metadata, self, &rows[i]);
		EXPECT_EQ(0, call(self, &rows[i])) TH_LOG("%s", rows[i].name);
	}
}

/* What the structure had when it was published first */
static uint32_t first_size(const struct row *r)
{
	switch (r->nr) {
	case KVCTX_IOC_INFO:
		return AT(kvctx_info, slots_max);
	case KVCTX_IOC_MATCH:
		return AT(kvctx_match, nr_prefetched);
	default:
		return r->size;
	}
}

TEST_F(abi, short_sizes)
{
	for (size_t i = 0; i < NR_ROWS; i++)
		for (uint32_t size = 0; size < first_size(&rows[i]); size++) {
			good(_metadata, self, &rows[i]);
			memcpy(self->big, &size, 4);
			EXPECT_EQ(-EINVAL, call(self, &rows[i])) TH_LOG("%s size %u", rows[i].name, size);
		}
}

TEST_F(abi, long_sizes_with_clean_tail_pass)
{
	for (size_t i = 0; i < NR_ROWS; i++) {
		uint32_t size = rows[i].size + 64;

		good(_metadata, self, &rows[i]);
		memcpy(self->big, &size, 4);
		EXPECT_EQ(0, call(self, &rows[i])) TH_LOG("%s", rows[i].name);
	}
}

TEST_F(abi, long_sizes_with_dirty_tail)
{
	for (size_t i = 0; i < NR_ROWS; i++)
		for (int at = 0; at < 64; at += 21) {
			uint32_t size = rows[i].size + 64;

			good(_metadata, self, &rows[i]);
			memcpy(self->big, &size, 4);
			self->big[rows[i].size + at] = 1;
			EXPECT_EQ(-E2BIG, call(self, &rows[i])) TH_LOG("%s tail %d", rows[i].name, at);
		}
}

TEST_F(abi, size_larger_than_a_page)
{
	for (size_t i = 0; i < NR_ROWS; i++) {
		uint32_t size = 1U << 30;

		good(_metadata, self, &rows[i]);
		memcpy(self->big, &size, 4);
		EXPECT_EQ(-E2BIG, call(self, &rows[i])) TH_LOG("%s", rows[i].name);
	}
}

TEST_F(abi, unknown_flags)
{
	for (size_t i = 0; i < NR_ROWS; i++)
		for (int bit = rows[i].flags_known; bit < 32; bit++) {
			uint32_t flags = 1U << bit;

			good(_metadata, self, &rows[i]);
			memcpy(self->big + rows[i].flags_at, &flags, 4);
			EXPECT_EQ(-EINVAL, call(self, &rows[i])) TH_LOG("%s flag %d", rows[i].name, bit);
		}
}

TEST_F(abi, reserved_fields)
{
	for (size_t i = 0; i < NR_ROWS; i++)
		for (int j = 0; rows[i].reserved[j]; j++) {
			good(_metadata, self, &rows[i]);
			self->big[rows[i].reserved[j]] = 1;
			EXPECT_EQ(-EINVAL, call(self, &rows[i])) TH_LOG("%s byte %zu", rows[i].name, rows[i].reserved[j]);
		}
}

TEST_F(abi, bad_pointers_to_arguments)
{
	for (size_t i = 0; i < NR_ROWS; i++) {
		uint8_t *edge = self->big + kt_page() - 4;	/* the size can be read, the rest cannot */
		struct kvctx_file *bare, *use;
		uint32_t size = rows[i].size;

		ASSERT_EQ(0, kt_file(O_RDWR, &bare));
		use = rows[i].nr == KVCTX_IOC_SETUP ? bare : self->k.file;
		EXPECT_EQ(-EFAULT, kt_ioctl(use, rows[i].nr, NULL)) TH_LOG("%s", rows[i].name);
		EXPECT_EQ(-EFAULT, kt_ioctl(use, rows[i].nr, BAD_PTR)) TH_LOG("%s", rows[i].name);
		memcpy(edge, &size, 4);
		EXPECT_EQ(-EFAULT, kt_ioctl(use, rows[i].nr, edge)) TH_LOG("%s", rows[i].name);
		kvctx_sys_close(bare);
	}
}

TEST_F(abi, unknown_ioctls)
{
	uint32_t arg[64] = { sizeof(arg) };

	for (int nr = 9; nr < 256; nr++) {
		EXPECT_EQ(-ENOTTY, kt_ioctl(self->k.file, _IO(KVCTX_IOC_TYPE, nr), arg)) TH_LOG("%d", nr);
	}
	EXPECT_EQ(-ENOTTY, kt_ioctl(self->k.file, _IO(KVCTX_IOC_TYPE + 1, 0), arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(self->k.file, _IOWR(KVCTX_IOC_TYPE, 0, struct kvctx_info), arg));
}

TEST_F(abi, order_of_calls)
{
	struct kvctx_file *f;

	ASSERT_EQ(0, kt_file(O_RDWR, &f));
	for (size_t i = 0; i < NR_ROWS; i++) {
		good(_metadata, self, &rows[i]);
		if (rows[i].needs_setup) {
			EXPECT_EQ(-EBADFD, kt_ioctl(f, rows[i].nr, self->big)) TH_LOG("%s", rows[i].name);
		}
	}
	EXPECT_EQ(MAP_FAILED, kt_map(f, kt_page(), PROT_READ, KVCTX_MMAP_CQ));
	EXPECT_EQ(EBADFD, errno);
	good(_metadata, self, &rows[1]);
	EXPECT_EQ(0, kt_ioctl(f, KVCTX_IOC_SETUP, self->big));
	good(_metadata, self, &rows[1]);
	EXPECT_EQ(-EEXIST, kt_ioctl(f, KVCTX_IOC_SETUP, self->big));
	kvctx_sys_close(f);
}

TEST_F(abi, info_tells_the_masks)
{
	struct kvctx_info info = { .size = sizeof(info) };

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	EXPECT_EQ(sizeof(info), info.size);
	EXPECT_EQ(KVCTX_ABI_VERSION, info.abi_version);
	EXPECT_EQ(KVCTX_SESSION_READY, info.session_flags);
	EXPECT_TRUE(info.features & KVCTX_FEAT_VERIFY);
	EXPECT_TRUE(info.features & KVCTX_FEAT_SLOTS);
	EXPECT_LE(1024, info.slots_max);
	EXPECT_LE(info.page_len_max, info.slot_bytes_max);
	EXPECT_LE(80 * KT_MIB, info.page_len_max);
	EXPECT_LE(4096, info.segs_max);
	EXPECT_LT(0, info.members);
	EXPECT_EQ(4096, info.block_size);
	for (int op = 0; op < 64; op++) {
		struct kvctx_sqe sqe = kt_sqe(op, kt_key(9));
		int res = kt_do(&self->k, &sqe, NULL);

		if (op == KVCTX_OP_PREFETCH || op == KVCTX_OP_GET) {	/* no slots here */
			EXPECT_EQ(-EOPNOTSUPP, res);
		} else if (!(info.op_mask >> op & 1)) {
			EXPECT_EQ(-EINVAL, res) TH_LOG("opcode %d", op);
		} else {
			EXPECT_NE(-EOPNOTSUPP, res) TH_LOG("opcode %d", op);
		}
	}
	for (int bit = 0; bit < 32; bit++) {
		struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(9));

		sqe.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL)) TH_LOG("flag %d", bit);
	}
	EXPECT_EQ(info.op_flags, (uint64_t)(KVCTX_OP_NOWAIT | KVCTX_OP_NO_VERIFY | KVCTX_OP_NO_SLOT | KVCTX_OP_REPLACE |
						 KVCTX_OP_MATCH_LEASE | KVCTX_OP_MATCH_PREFETCH | KVCTX_OP_MATCH_ALL));
}

TEST_F(abi, setup_limits)
{
	struct kvctx_info info = { .size = sizeof(info) };
	static const struct { uint64_t arena; uint32_t cq; int want; } cases[] = {
		{ 0, 0, -EINVAL }, { 0, ~0U, -EINVAL }, { ~0ULL, 8, -EINVAL }, { 0, 1, 0 }, { 1, 3, 0 },
	};

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvctx_setup s = { .size = sizeof(s), .arena_bytes = cases[i].arena, .cq_entries = cases[i].cq };
		struct kvctx_file *f;

		ASSERT_EQ(0, kt_file(O_RDWR, &f));
		EXPECT_EQ(cases[i].want, kt_ioctl(f, KVCTX_IOC_SETUP, &s)) TH_LOG("case %zu", i);
		if (!cases[i].want) {
			EXPECT_EQ(0, s.cq_entries & (s.cq_entries - 1));
			EXPECT_LE(cases[i].cq, s.cq_entries);
			EXPECT_EQ(0, s.arena_bytes % 4096);
		}
		kvctx_sys_close(f);
	}
}

/* Every field of an operation that its opcode does not use must be zero */
TEST_F(abi, operations_with_dirty_fields)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, 512);
	static const uint8_t ops[] = {
		KVCTX_OP_STORE, KVCTX_OP_LOAD, KVCTX_OP_DELETE, KVCTX_OP_QUERY, KVCTX_OP_LEASE, KVCTX_OP_RELEASE,
		KVCTX_OP_FLUSH, KVCTX_OP_PREFETCH, KVCTX_OP_GET, KVCTX_OP_PUT,
	};
	static const struct { size_t at; const char *name; uint32_t used_by; } fields[] = {
		{ AT(kvctx_sqe, prio), "prio",
		  1 << KVCTX_OP_STORE | 1 << KVCTX_OP_LOAD | 1 << KVCTX_OP_PREFETCH | 1 << KVCTX_OP_GET },
		{ AT(kvctx_sqe, mem), "mem", 0 },
		{ AT(kvctx_sqe, crcs), "crcs", 1 << KVCTX_OP_STORE | 1 << KVCTX_OP_LOAD },
		{ AT(kvctx_sqe, keys), "keys", 0 },
		{ AT(kvctx_sqe, nr_keys), "nr_keys", 0 },
		{ AT(kvctx_sqe, reserved2), "reserved2", 0 },
		{ AT(kvctx_sqe, nr_segs), "nr_segs", 1 << KVCTX_OP_STORE | 1 << KVCTX_OP_LOAD },
		{ AT(kvctx_sqe, segs), "segs", 1 << KVCTX_OP_STORE | 1 << KVCTX_OP_LOAD },
		{ AT(kvctx_sqe, length), "length", 1 << KVCTX_OP_STORE | 1 << KVCTX_OP_LOAD },
		{ AT(kvctx_sqe, offset), "offset", 1 << KVCTX_OP_LOAD },
		{ AT(kvctx_sqe, depth), "depth", 1 << KVCTX_OP_STORE },
		{ AT(kvctx_sqe, lease_ms), "lease_ms",
		  1 << KVCTX_OP_LEASE | 1 << KVCTX_OP_PREFETCH | 1 << KVCTX_OP_GET },
		{ AT(kvctx_sqe, lease), "lease", 1 << KVCTX_OP_RELEASE | 1 << KVCTX_OP_PUT },
	};

	for (size_t o = 0; o < sizeof(ops); o++) {
		struct kvctx_sqe ok = kt_sqe(ops[o], kt_key(5));

		if (ops[o] == KVCTX_OP_STORE || ops[o] == KVCTX_OP_LOAD)
			ok = kt_io(ops[o], kt_key(5), &seg, 1);
		if (ops[o] == KVCTX_OP_LEASE || ops[o] == KVCTX_OP_PREFETCH || ops[o] == KVCTX_OP_GET)
			ok.lease_ms = 10;
		if (ops[o] == KVCTX_OP_RELEASE || ops[o] == KVCTX_OP_FLUSH || ops[o] == KVCTX_OP_PUT)
			memset(&ok.key, 0, sizeof(ok.key));
		for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
			struct kvctx_sqe sqe = ok;

			if (fields[f].used_by >> ops[o] & 1)
				continue;
			((uint8_t *)&sqe)[fields[f].at] = 1;
			EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL)) TH_LOG("opcode %u %s", ops[o], fields[f].name);
		}
		for (int bit = 0; bit < 32; bit++) {
			struct kvctx_sqe sqe = ok;

			if (bit == 0 && (ops[o] == KVCTX_OP_STORE || ops[o] == KVCTX_OP_DELETE))
				continue;
			if ((bit == 1 || bit == 3) && ops[o] == KVCTX_OP_STORE)
				continue;
			if ((bit == 1 || bit == 2) && ops[o] == KVCTX_OP_LOAD)
				continue;
			sqe.flags = 1U << bit;
			EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL)) TH_LOG("opcode %u flag %d", ops[o], bit);
		}
	}
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(5)));
}

/* One segment, named by the operation itself */
TEST_F(abi, operations_without_a_list)
{
	struct kvctx_sqe sqe;

	for (int op = KVCTX_OP_STORE; op <= KVCTX_OP_LOAD; op++) {
		sqe = kt_io(op, kt_key(8), NULL, 0);
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		sqe.length = 4096;
		sqe.mem = 77;
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		sqe.mem = KVCTX_MEM_ARENA;
		sqe.segs = self->k.arena_bytes - 4095;
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
		sqe.segs = ~0ULL - 4094;
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
		sqe.segs = 8192;
		kt_fill(self->k.arena + sqe.segs, sqe.length, op == KVCTX_OP_STORE ? 8 : 9);
		EXPECT_EQ(4096, kt_do(&self->k, &sqe, NULL));
		EXPECT_EQ(-1, kt_check(self->k.arena + sqe.segs, sqe.length, 8));
	}
}

TEST_F(abi, bad_scatter_lists)
{
	struct kvctx_info info = { .size = sizeof(info) };
	static struct kvctx_seg segs[65535];
	struct kvctx_sqe sqe;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	for (int op = KVCTX_OP_STORE; op <= KVCTX_OP_LOAD; op++) {
		ASSERT_GT(65535, info.segs_max);
		for (uint32_t i = 0; i <= info.segs_max; i++)
			segs[i] = kt_seg(KVCTX_MEM_ARENA, i, 1);
		sqe = kt_io(op, kt_key(6), segs, info.segs_max + 1);
		EXPECT_EQ(-E2BIG, kt_do(&self->k, &sqe, NULL));
		sqe = kt_io(op, kt_key(6), segs, 2);
		sqe.length++;
		EXPECT_EQ(-EMSGSIZE, kt_do(&self->k, &sqe, NULL));
		sqe.length = 0;
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		sqe = kt_io(op, kt_key(6), segs, 2);
		sqe.mem = 1;
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		segs[1].length = 0;
		sqe = kt_io(op, kt_key(6), segs, 2);
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		segs[1] = kt_seg(77, 0, 512);
		sqe = kt_io(op, kt_key(6), segs, 2);
		EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
		segs[1] = kt_seg(KVCTX_MEM_ARENA, self->k.arena_bytes - 511, 512);
		sqe = kt_io(op, kt_key(6), segs, 2);
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
		segs[1] = kt_seg(KVCTX_MEM_ARENA, ~0ULL - 100, 512);
		sqe = kt_io(op, kt_key(6), segs, 2);
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
	}
	segs[0] = kt_seg(KVCTX_MEM_ARENA, 0, 512);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(6), segs, 1);
	sqe.length = info.page_len_max + 1;
	EXPECT_EQ(-E2BIG, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(6)));
}

TEST_F(abi, bad_submit_match_and_memory)
{
	struct kvctx_submit s = { .size = sizeof(s), .sqes = (uintptr_t)&self->sqe, .nr = 1 };
	struct kvctx_match m = { .size = sizeof(m), .keys = (uintptr_t)self->keys, .nr_keys = 1 };
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)self->keys, .length = 1 };
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	struct kvctx_file *f = self->k.file;

	s.nr = 0;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_SUBMIT, &s));
	s.nr = 4097;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_SUBMIT, &s));
	s.nr = 1;
	s.timeout_ns = 1;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_SUBMIT, &s));

	m.nr_keys = 0;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MATCH, &m));
	m.nr_keys = 65537;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MATCH, &m));
	m.nr_keys = 1;
	m.lease_ms = 1;		/* without the flag */
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MATCH, &m));
	m.flags = KVCTX_MATCH_LEASE;
	m.lease_ms = 0;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MATCH, &m));
	m.lease_ms = ~0U;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MATCH, &m));

	reg.length = 0;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MEM_REGISTER, &reg));
	reg.addr = ~0ULL - 4096;
	reg.length = 8192;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MEM_REGISTER, &reg));
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MEM_UNREGISTER, &un));	/* the arena */
	un.id = 4711;
	EXPECT_EQ(-EINVAL, kt_ioctl(f, KVCTX_IOC_MEM_UNREGISTER, &un));
}

TEST_F(abi, bad_pointers_in_arguments)
{
	struct kvctx_submit s = { .size = sizeof(s), .sqes = 1, .nr = 1 };
	struct kvctx_match m = { .size = sizeof(m), .keys = 1, .nr_keys = 1 };
	/* its second page cannot be read */
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)self->big, .length = 2 * kt_page() };
	struct kvctx_seg segs[2] = { kt_seg(KVCTX_MEM_ARENA, 0, 512), kt_seg(KVCTX_MEM_ARENA, 512, 512) };

	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_SUBMIT, &s));
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	for (int op = KVCTX_OP_STORE; op <= KVCTX_OP_LOAD; op++) {
		struct kvctx_sqe sqe = kt_io(op, kt_key(6), segs, 2);

		sqe.segs = 1;
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
		sqe.segs = ~0ULL - 15;
		EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
	}
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(6)));
}

TEST_F(abi, bad_leases)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LEASE, kt_key(7));

	sqe.lease_ms = 0;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe.lease_ms = ~0U;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe.lease_ms = 100;
	EXPECT_EQ(-ENOENT, kt_do(&self->k, &sqe, NULL));
	sqe = kt_sqe(KVCTX_OP_RELEASE, (struct kvctx_key){ 0 });
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe.lease = 123;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
}

TEST_HARNESS_MAIN
