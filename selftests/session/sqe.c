// SPDX-License-Identifier: GPL-2.0
/*
 * Which operations are valid: every opcode with every field, flag and priority, against what the ABI says of them.
 *
 * The table here is written from uapi/linux/kvctx.h, not from the one under test. Ends with "session: N passed, N failed,
 * 0 skipped".
 */
#include <stdio.h>
#include <string.h>

#include "session.h"

#define PAGE_MAX	(1U << 20)
#define LENGTH(a)	((int)(sizeof(a) / sizeof((a)[0])))

static int passed, failed;

struct op {
	const char *name;
	u32 opcode;
	const char *fields;		/* letters of fields[] */
	u32 flags;
	bool writes;
};

static const struct op ops[] = {
	{ "STORE", KVCTX_OP_STORE, "kslndpc", KVCTX_OP_NOWAIT | KVCTX_OP_NO_VERIFY | KVCTX_OP_REPLACE,
	  true },
	{ "LOAD", KVCTX_OP_LOAD, "kslnopc", KVCTX_OP_NO_VERIFY | KVCTX_OP_NO_SLOT, false },
	{ "DELETE", KVCTX_OP_DELETE, "k", KVCTX_OP_NOWAIT, true },
	{ "QUERY", KVCTX_OP_QUERY, "k", 0, false },
	{ "PREFETCH", KVCTX_OP_PREFETCH, "ktp", 0, false },
	{ "LEASE", KVCTX_OP_LEASE, "kt", 0, false },
	{ "RELEASE", KVCTX_OP_RELEASE, "i", 0, false },
	{ "FLUSH", KVCTX_OP_FLUSH, "", 0, true },
	{ "GET", KVCTX_OP_GET, "ktp", 0, false },
	{ "PUT", KVCTX_OP_PUT, "i", 0, false },
	{ "CANCEL", KVCTX_OP_CANCEL, "o", 0, false },
	/* lease_ms: see below */
	{ "MATCH", KVCTX_OP_MATCH, "slnm", KVCTX_OP_MATCH_LEASE | KVCTX_OP_MATCH_PREFETCH | KVCTX_OP_MATCH_ALL, false },
};

#define FIELD(letter, member)	{ letter, #member, offsetof(struct kvctx_sqe, member), \
				  sizeof_field(struct kvctx_sqe, member) }
#define sizeof_field(type, member)	sizeof(((type *)0)->member)

/* Everything but opcode, flags, user_data and timeout_ns, which all may use */
static const struct field {
	char letter;
	const char *name;
	size_t at, bytes;
} fields[] = {
	FIELD('k', key.digest), FIELD('k', key.qualifier), FIELD('s', segs), FIELD('s', mem), FIELD('l', length),
	FIELD('n', nr_segs), FIELD('o', offset), FIELD('d', depth), FIELD('p', prio), FIELD('c', crcs),
	FIELD('t', lease_ms), FIELD('i', lease), FIELD('m', keys), FIELD('m', nr_keys), FIELD('-', reserved2),
};

static const struct kvctx_rights all = { .page_max = PAGE_MAX };

static struct kvctx_sqe sqe_of(const struct op *op)
{
	struct kvctx_sqe sqe = { .opcode = (u8)op->opcode, .user_data = 7, .timeout_ns = 7 };

	if (strchr(op->fields, 'l'))
		sqe.length = 4096;
	if (strchr(op->fields, 'm'))
		sqe.nr_keys = 1;
	return sqe;
}

static void expect(const struct kvctx_sqe *sqe, const struct kvctx_rights *rights, int want, const char *name,
		   const char *what)
{
	int got = kvctx_sqe_check(sqe, &kvctx_rules[sqe->opcode], rights);

	if (got == want) {
		passed++;
		return;
	}
	failed++;
	printf("not ok %s, %s: %d, not %d\n", name, what, got, want);
}

/* Each field alone, its last byte not zero: valid where the opcode uses it. */
static void test_fields(const struct op *op)
{
	int i;

	for (i = 0; i < LENGTH(fields); i++) {
		const struct field *f = &fields[i];
		struct kvctx_sqe sqe = sqe_of(op);

		/* the smallest value, but at the end of what has many bytes */
		((u8 *)&sqe)[f->at + (f->bytes > 8 ? f->bytes - 1 : 0)] = 1;
		expect(&sqe, &all, strchr(op->fields, f->letter) ? 0 : -EINVAL, op->name, f->name);
	}
}

static void test_flags(const struct op *op)
{
	struct kvctx_rights verified = { .verified = true, .page_max = PAGE_MAX };
	int bit;

	for (bit = 0; bit < 32; bit++) {
		struct kvctx_sqe sqe = sqe_of(op);
		int want = op->flags & 1U << bit ? 0 : -EINVAL;

		sqe.flags = 1U << bit;
		sqe.lease_ms = sqe.flags & (KVCTX_OP_MATCH_LEASE | KVCTX_OP_MATCH_PREFETCH) ? 1 : 0;
		expect(&sqe, &all, want, op->name, "a flag");
		if (!want && sqe.flags == KVCTX_OP_NO_VERIFY)
			want = -EPERM;
		expect(&sqe, &verified, want, op->name, "a flag, of a tenant that verifies");
	}
}

/* Which priority is meant, and what is left of it where operations may not be urgent */
static void test_urgency(void)
{
	static const struct {
		u32 opcode, asked, is, without;
	} rows[] = {
		{ KVCTX_OP_LOAD, KVCTX_PRIO_DEFAULT, KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_GET, KVCTX_PRIO_DEFAULT, KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_STORE, KVCTX_PRIO_DEFAULT, KVCTX_PRIO_NORMAL, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_PREFETCH, KVCTX_PRIO_DEFAULT, KVCTX_PRIO_BACKGROUND, KVCTX_PRIO_BACKGROUND },
		{ KVCTX_OP_PREFETCH, KVCTX_PRIO_URGENT, KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_STORE, KVCTX_PRIO_URGENT, KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_LOAD, KVCTX_PRIO_NORMAL, KVCTX_PRIO_NORMAL, KVCTX_PRIO_NORMAL },
		{ KVCTX_OP_LOAD, KVCTX_PRIO_BACKGROUND, KVCTX_PRIO_BACKGROUND, KVCTX_PRIO_BACKGROUND },
	};
	int i;

	for (i = 0; i < LENGTH(rows); i++) {
		const struct kvctx_rule *rule = &kvctx_rules[rows[i].opcode];

		if (kvctx_prio_of(rule, (u8)rows[i].asked, true) == rows[i].is &&
		    kvctx_prio_of(rule, (u8)rows[i].asked, false) == rows[i].without) {
			passed++;
			continue;
		}
		failed++;
		printf("not ok the priority of row %d\n", i);
	}
}

static void test_prios(const struct op *op)
{
	int prio;

	for (prio = 0; prio < 256; prio++) {
		struct kvctx_sqe sqe = sqe_of(op);
		bool fits = prio <= (strchr(op->fields, 'p') ? KVCTX_PRIO_BACKGROUND : 0);

		sqe.prio = (u8)prio;
		expect(&sqe, &all, fits ? 0 : -EINVAL, op->name, "a priority");
	}
}

static void test_rights(const struct op *op)
{
	struct kvctx_rights rdonly = { .rdonly = true, .page_max = PAGE_MAX };
	struct kvctx_sqe sqe = sqe_of(op);

	expect(&sqe, &all, 0, op->name, "as it should be");
	expect(&sqe, &rdonly, op->writes ? -EACCES : 0, op->name, "in a read-only session");
}

static void test_lengths(const struct op *op)
{
	struct kvctx_sqe sqe = sqe_of(op);

	if (!strchr(op->fields, 'l'))
		return;
	sqe.length = 0;
	expect(&sqe, &all, -EINVAL, op->name, "no length");
	sqe.length = PAGE_MAX;
	expect(&sqe, &all, 0, op->name, "the longest page");
	sqe.length = PAGE_MAX + 1;
	expect(&sqe, &all, op->opcode == KVCTX_OP_LOAD ? -ERANGE : -E2BIG, op->name, "a longer page");
	sqe.length = 1ULL << 32;
	expect(&sqe, &all, op->opcode == KVCTX_OP_LOAD ? -ERANGE : -E2BIG, op->name, "4 GiB");
	sqe = sqe_of(op);
	sqe.nr_segs = KVCTX_SEGS_MAX;
	expect(&sqe, &all, 0, op->name, "most segments");
	sqe.nr_segs++;
	expect(&sqe, &all, -E2BIG, op->name, "more segments");
	sqe.nr_segs = 1;
	sqe.mem = 1;
	expect(&sqe, &all, -EINVAL, op->name, "a list of segments, and one of its own");
}

/* What only MATCH has */
static void test_match(void)
{
	static const struct op match = { "MATCH", KVCTX_OP_MATCH, "slnm", 0, false };
	static const struct {
		u32 flags, nr_keys, lease_ms;
		u64 length;
		int want;
	} t[] = {
		{ 0, 1, 0, sizeof(struct kvctx_found), 0 },
		{ 0, 1, 0, sizeof(struct kvctx_found) - 1, -EINVAL },
		{ 0, 0, 0, 4096, -EINVAL },
		{ 0, KVCTX_MATCH_MAX, 0, 4096, 0 },
		{ 0, KVCTX_MATCH_MAX + 1, 0, 4096, -EINVAL },
		{ KVCTX_OP_MATCH_ALL, 1, 1, 4096, -EINVAL },
		{ KVCTX_OP_MATCH_LEASE, 1, 0, 4096, -EINVAL },
		{ KVCTX_OP_MATCH_PREFETCH, 1, 0, 4096, -EINVAL },
		{ KVCTX_OP_MATCH_LEASE | KVCTX_OP_MATCH_ALL, 1, KVCTX_LEASE_MS_MAX, 4096, 0 },
		{ KVCTX_OP_MATCH_LEASE, 1, KVCTX_LEASE_MS_MAX + 1, 4096, -EINVAL },
	};
	int i;

	for (i = 0; i < LENGTH(t); i++) {
		struct kvctx_sqe sqe = sqe_of(&match);

		sqe.flags = t[i].flags;
		sqe.nr_keys = t[i].nr_keys;
		sqe.lease_ms = t[i].lease_ms;
		sqe.length = t[i].length;
		expect(&sqe, &all, t[i].want, "MATCH", "keys, lease and room");
	}
}

/* What INFO says, and the opcodes that are none */
static void test_masks(void)
{
	u64 want_ops = 0, want_flags = 0, got_ops, got_flags;
	struct kvctx_sqe none = {};
	int i;

	for (i = 0; i < LENGTH(ops); i++) {
		want_ops |= 1ULL << ops[i].opcode;
		want_flags |= ops[i].flags;
	}
	kvctx_rule_masks(&got_ops, &got_flags);
	if (got_ops == want_ops && got_flags == want_flags) {
		passed++;
	} else {
		failed++;
		printf("not ok masks: %llx %llx\n", (unsigned long long)got_ops, (unsigned long long)got_flags);
	}
	expect(&none, &all, -EINVAL, "no opcode", "number 0");
}

int test_calls(int *failed);	/* call.c */

int main(void)
{
	int i, more = 0;

	for (i = 0; i < LENGTH(ops); i++) {
		test_fields(&ops[i]);
		test_flags(&ops[i]);
		test_prios(&ops[i]);
		test_rights(&ops[i]);
		test_lengths(&ops[i]);
	}
	test_match();
	test_masks();
	test_urgency();
	passed += test_calls(&more);
	failed += more;
	printf("session: %d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
