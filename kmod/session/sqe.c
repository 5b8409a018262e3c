// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Which operations are valid. What an opcode may use stands in one table; INFO reports the masks of that table.
 */
#include "session.h"

/* Fields of an operation that not every opcode uses */
enum {
	F_KEY		= 1 << 0,
	F_SEGS		= 1 << 1,	/* nr_segs, segs, mem, length */
	F_OFFSET	= 1 << 2,
	F_DEPTH		= 1 << 3,
	F_LEASE_MS	= 1 << 4,
	F_LEASE		= 1 << 5,
	F_PRIO		= 1 << 6,
	F_CRCS		= 1 << 7,
	F_KEYS		= 1 << 8,	/* keys, nr_keys */
};

const struct kvctx_rule kvctx_rules[KVCTX_OPS] = {
	[KVCTX_OP_STORE] = {
		.known = true, .keyed = true, .writes = true, .prio = KVCTX_PRIO_NORMAL,
		.flags = KVCTX_OP_NOWAIT | KVCTX_OP_NO_VERIFY | KVCTX_OP_REPLACE,
		.fields = F_KEY | F_SEGS | F_DEPTH | F_PRIO | F_CRCS,
	},
	[KVCTX_OP_LOAD] = {
		.known = true, .keyed = true, .prio = KVCTX_PRIO_URGENT,
		.flags = KVCTX_OP_NO_VERIFY | KVCTX_OP_NO_SLOT,
		.fields = F_KEY | F_SEGS | F_OFFSET | F_PRIO | F_CRCS,
	},
	[KVCTX_OP_DELETE] = { .known = true, .writes = true, .flags = KVCTX_OP_NOWAIT, .fields = F_KEY },
	[KVCTX_OP_QUERY] = { .known = true, .keyed = true, .fields = F_KEY },
	[KVCTX_OP_PREFETCH] = {
		.known = true, .keyed = true, .prio = KVCTX_PRIO_BACKGROUND, .fields = F_KEY | F_LEASE_MS | F_PRIO,
	},
	[KVCTX_OP_GET] = {
		.known = true, .keyed = true, .prio = KVCTX_PRIO_URGENT, .fields = F_KEY | F_LEASE_MS | F_PRIO,
	},
	[KVCTX_OP_PUT] = { .known = true, .fields = F_LEASE },
	[KVCTX_OP_LEASE] = { .known = true, .keyed = true, .fields = F_KEY | F_LEASE_MS },
	[KVCTX_OP_RELEASE] = { .known = true, .fields = F_LEASE },
	[KVCTX_OP_FLUSH] = { .known = true, .writes = true },
	[KVCTX_OP_MATCH] = {
		.known = true, .keyed = true,
		.flags = KVCTX_OP_MATCH_LEASE | KVCTX_OP_MATCH_PREFETCH | KVCTX_OP_MATCH_ALL,
		.fields = F_SEGS | F_LEASE_MS | F_KEYS,
	},
	[KVCTX_OP_CANCEL] = { .known = true, .fields = F_OFFSET },
};

/* For INFO */
void kvctx_rule_masks(u64 *ops, u64 *flags)
{
	u32 i;

	*ops = 0;
	*flags = 0;
	for (i = 0; i < KVCTX_OPS; i++) {
		if (kvctx_rules[i].known)
			*ops |= BIT_ULL(i);
		*flags |= kvctx_rules[i].flags;
	}
}

/* Of the fields that few operations use, those that the opcode does not are zero. */
static bool sqe_rest_clean(const struct kvctx_sqe *sqe, u32 fields)
{
	return !sqe->reserved2 && (fields & F_OFFSET || !sqe->offset) &&
	       (fields & F_DEPTH || !sqe->depth) && (fields & F_CRCS || !sqe->crcs) &&
	       (fields & F_LEASE_MS || !sqe->lease_ms) && (fields & F_LEASE || !sqe->lease) &&
	       (fields & F_KEYS || !(sqe->keys | sqe->nr_keys));
}

/* Every field that the opcode does not use is zero, and the priority is one. */
static bool sqe_clean(const struct kvctx_sqe *sqe, u32 fields)
{
	u64 rest = sqe->keys | sqe->nr_keys | sqe->reserved2 | sqe->offset | sqe->depth | sqe->crcs | sqe->lease_ms |
		   sqe->lease;
	static const struct kvctx_key none;

	if (rest && !sqe_rest_clean(sqe, fields))
		return false;
	if (!(fields & F_KEY) && memcmp(&sqe->key, &none, sizeof(none)))
		return false;
	if (!(fields & F_SEGS) && (sqe->nr_segs || sqe->segs || sqe->mem || sqe->length))
		return false;
	if (sqe->nr_segs && sqe->mem)
		return false;
	return sqe->prio <= (fields & F_PRIO ? KVCTX_PRIO_BACKGROUND : KVCTX_PRIO_DEFAULT);
}

/* Of MATCH, the operation and the ioctl: 0 or -EINVAL. @flags: KVCTX_MATCH_* */
int kvctx_match_keys_check(u32 flags, u32 nr_keys, u32 lease_ms)
{
	bool timed = flags & (KVCTX_MATCH_LEASE | KVCTX_MATCH_PREFETCH);

	if (!nr_keys || nr_keys > KVCTX_MATCH_MAX)
		return -EINVAL;
	if (timed ? !lease_ms || lease_ms > KVCTX_LEASE_MS_MAX : lease_ms)
		return -EINVAL;
	return 0;
}

/* What is wrong with the length of a list that is empty, or longer than a page */
static int sqe_length_error(const struct kvctx_sqe *sqe)
{
	if (!sqe->length)
		return -EINVAL;
	return sqe->opcode == KVCTX_OP_LOAD && sqe->nr_segs <= KVCTX_SEGS_MAX ? -ERANGE : -E2BIG;
}

/* 0, or with which error it completes. @rule: its opcode's */
int kvctx_sqe_check(const struct kvctx_sqe *sqe, const struct kvctx_rule *rule, const struct kvctx_rights *rights)
{
	if (sqe->flags & ~rule->flags || !sqe_clean(sqe, rule->fields))
		return -EINVAL;
	if (rule->writes && rights->rdonly)
		return -EACCES;
	if (sqe->flags & KVCTX_OP_NO_VERIFY && rights->verified)
		return -EPERM;
	if (sqe->crcs && rights->encrypted)
		return -EOPNOTSUPP;
	if (!(rule->fields & F_SEGS))
		return rule->known ? 0 : -EINVAL;
	/* 0 is not below it */
	if (unlikely(sqe->length - 1 >= rights->page_max))
		return sqe_length_error(sqe);
	if (sqe->nr_segs > KVCTX_SEGS_MAX)
		return -E2BIG;
	if (!(rule->fields & F_KEYS))
		return 0;
	if (sqe->length < sizeof(struct kvctx_found))
		return -EINVAL;
	return kvctx_match_keys_check(sqe->flags >> KVCTX_OP_MATCH_SHIFT, sqe->nr_keys, sqe->lease_ms);
}
