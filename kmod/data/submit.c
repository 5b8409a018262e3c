// SPDX-License-Identifier: GPL-2.0
/*
 * SUBMIT: from the caller's operations to operations under way.
 *
 * Each operation is copied once and validated from the copy. What an opcode may use stands in one table; INFO
 * reports the masks of that table. An operation that is refused has done nothing, and completes with the reason
 * like any other: every operation that SUBMIT takes gives exactly one completion.
 *
 * Operations that only ask the engine are answered here. The others get a struct kvctx_op, and are started.
 */
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "op.h"

#define SQE_BATCH	8
#define PLUG_IOS	32	/* what the block layer takes at most */

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
};

struct submit_opcode {
	u32 flags;			/* KVCTX_OP_* that it knows */
	u32 fields;
	bool writes;			/* refused in a read-only session */
	enum kvctx_prio prio;		/* what KVCTX_PRIO_DEFAULT means */
	int (*start)(struct kvctx_op *op);
	s32 (*now)(struct kvctx_session *s, const struct kvctx_sqe *sqe);
};

static s32 submit_query(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;

	return kvc_query(s->pool->core, s->domain, kvctx_key_bytes(&key));
}

static const struct submit_opcode opcodes[] = {
	[KVCTX_OP_STORE] = {
		.flags = KVCTX_OP_NOWAIT | KVCTX_OP_NO_VERIFY, .writes = true,
		.fields = F_KEY | F_SEGS | F_DEPTH | F_PRIO | F_CRCS,
		.prio = KVCTX_PRIO_NORMAL, .start = kvctx_store_start,
	},
	[KVCTX_OP_LOAD] = {
		.flags = KVCTX_OP_NO_VERIFY | KVCTX_OP_NO_SLOT, .fields = F_KEY | F_SEGS | F_OFFSET | F_PRIO | F_CRCS,
		.prio = KVCTX_PRIO_URGENT, .start = kvctx_load_start,
	},
	[KVCTX_OP_DELETE] = {
		.flags = KVCTX_OP_NOWAIT, .fields = F_KEY, .writes = true, .start = kvctx_delete_start,
	},
	[KVCTX_OP_QUERY] = { .fields = F_KEY, .now = submit_query },
	[KVCTX_OP_PREFETCH] = {
		.fields = F_KEY | F_LEASE_MS | F_PRIO, .prio = KVCTX_PRIO_BACKGROUND, .start = kvctx_prefetch_start,
	},
	[KVCTX_OP_GET] = {
		.fields = F_KEY | F_LEASE_MS | F_PRIO, .prio = KVCTX_PRIO_URGENT, .start = kvctx_prefetch_start,
	},
	[KVCTX_OP_PUT] = { .fields = F_LEASE, .now = kvctx_slot_put },
	[KVCTX_OP_LEASE] = { .fields = F_KEY | F_LEASE_MS, .now = kvctx_lease_one },
	[KVCTX_OP_RELEASE] = { .fields = F_LEASE, .now = kvctx_lease_release },
	[KVCTX_OP_FLUSH] = { .start = kvctx_flush_op_start },
};

/* For INFO */
void kvctx_submit_masks(u64 *ops, u64 *flags)
{
	u32 i;

	*ops = 0;
	*flags = 0;
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		if (!opcodes[i].start && !opcodes[i].now)
			continue;
		*ops |= BIT_ULL(i);
		*flags |= opcodes[i].flags;
	}
}

static const struct submit_opcode *submit_opcode(const struct kvctx_sqe *sqe)
{
	u32 i = sqe->opcode;

	return i < ARRAY_SIZE(opcodes) ? &opcodes[array_index_nospec(i, ARRAY_SIZE(opcodes))] : NULL;
}

/* Every field that the opcode does not use is zero, and the priority is one. */
static bool submit_sqe_clean(const struct kvctx_sqe *sqe, u32 fields)
{
	if (sqe->reserved2[0] | sqe->reserved2[1])
		return false;
	if (!(fields & F_KEY) && memchr_inv(&sqe->key, 0, sizeof(sqe->key)))
		return false;
	if (!(fields & F_SEGS) && (sqe->nr_segs || sqe->segs || sqe->mem || sqe->length))
		return false;
	if (sqe->nr_segs && sqe->mem)
		return false;
	if (!(fields & F_OFFSET) && sqe->offset)
		return false;
	if (!(fields & F_DEPTH) && sqe->depth)
		return false;
	if (!(fields & F_CRCS) && sqe->crcs)
		return false;
	if (fields & F_PRIO ? sqe->prio > KVCTX_PRIO_BACKGROUND : sqe->prio)
		return false;
	if (!(fields & F_LEASE_MS) && sqe->lease_ms)
		return false;
	return fields & F_LEASE || !sqe->lease;
}

static int submit_sqe_check(const struct kvctx_session *s, const struct kvctx_sqe *sqe, const struct submit_opcode *oc)
{
	if (!oc || (!oc->start && !oc->now))
		return -EINVAL;
	if (sqe->flags & ~oc->flags || !submit_sqe_clean(sqe, oc->fields))
		return -EINVAL;
	if (oc->writes && s->rdonly)
		return -EACCES;
	if (sqe->flags & KVCTX_OP_NO_VERIFY && s->tenant->flags & KVCTX_TENANT_VERIFIED)
		return -EPERM;
	if (!(oc->fields & F_SEGS))
		return 0;
	if (!sqe->length)
		return -EINVAL;
	if (sqe->nr_segs > KVCTX_SEGS_MAX)
		return -E2BIG;
	if (sqe->length > kvc_page_max(s->pool->core))
		return sqe->opcode == KVCTX_OP_STORE ? -E2BIG : -ERANGE;
	return 0;
}

/* The one segment that the operation names itself */
static int submit_get_piece(struct kvctx_op *op, const struct kvctx_sqe *sqe)
{
	struct kvctx_seg seg = { .offset = sqe->segs, .length = sqe->length, .mem = sqe->mem };
	u64 sum = 0;

	return sqe->length ? kvctx_op_add_pieces(op, &seg, 1, &sum) : 0;
}

static int submit_get_pieces(struct kvctx_op *op, const struct kvctx_sqe *sqe)
{
	const struct kvctx_seg __user *user = u64_to_user_ptr(sqe->segs);
	struct kvctx_seg few[KVCTX_INLINE_PIECES], *segs = few;
	u32 nr = sqe->nr_segs, room = nr + KVCTX_SPARE_PIECES;
	u64 sum = 0;
	int err;

	if (!nr)
		return submit_get_piece(op, sqe);
	if (nr > KVCTX_INLINE_PIECES) {
		op->mem.list = kvmalloc(room * sizeof(*op->mem.list) + nr * sizeof(*segs),
					GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!op->mem.list)
			return -ENOMEM;
		op->mem.user = op->mem.list + 1;
		segs = (struct kvctx_seg *)(op->mem.list + room);
	}
	/* all at once: when the first registration is held nothing may wait for the caller any more */
	if (copy_from_user(segs, user, nr * sizeof(*segs)))
		return -EFAULT;
	err = kvctx_op_add_pieces(op, segs, nr, &sum);
	if (err)
		return err;
	return sum == sqe->length ? 0 : -EMSGSIZE;
}

/* LOAD gets them when the page was found; those of a STORE are copied now. */
static int submit_get_crcs(struct kvctx_op *op, const struct kvctx_sqe *sqe)
{
	u32 nr = DIV_ROUND_UP(op->call.length, kvc_chunk_size(op->session->pool->core));

	if (sqe->opcode == KVCTX_OP_LOAD || !sqe->crcs) {
		op->call.crcs_to = sqe->crcs;
		return 0;
	}
	op->call.crcs = kvmalloc_array(nr, sizeof(*op->call.crcs), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!op->call.crcs)
		return -ENOMEM;
	return copy_from_user(op->call.crcs, u64_to_user_ptr(sqe->crcs), nr * sizeof(*op->call.crcs)) ? -EFAULT : 0;
}

/* An io_uring command counts the operations that are to report to it. */
static void submit_enter(struct kvctx_op *op, struct kvctx_uring *u)
{
	op->to.uring = u;
	op->to.done = u->done;
	atomic_inc(&u->left);
}

/* 0: taken over, and maybe ended */
static int submit_start(struct kvctx_session *s, const struct kvctx_sqe *sqe, const struct submit_opcode *oc,
			ktime_t deadline, struct kvctx_from *from, struct kvctx_op **spare)
{
	struct kvctx_op *op = kvctx_op_alloc(s, spare);
	struct kvctx_key key = sqe->key;
	int err;

	if (!op)
		return -ENOMEM;
	op->call.user_data = sqe->user_data;
	op->call.flags = sqe->flags;
	op->call.opcode = sqe->opcode;
	op->call.prio = sqe->prio ?: oc->prio;
	memcpy(op->call.key, kvctx_key_bytes(&key), sizeof(op->call.key));
	op->call.offset = sqe->offset;
	op->call.length = sqe->length;
	op->call.depth = sqe->depth;
	op->call.lease_ms = sqe->lease_ms;
	op->call.deadline = deadline;
	if (from)
		submit_enter(op, from->uring);
	err = submit_get_crcs(op, sqe);
	if (!err)
		err = from && from->pieces ? from->pieces(op, from) : submit_get_pieces(op, sqe);
	if (!err)
		err = oc->start(op);
	if (err) {
		if (from)
			atomic_dec(&from->uring->left);
		kvctx_op_put_pieces(op);
		op->spare = *spare;
		*spare = op;
	}
	return err;
}

/* Have the caller's memory for the CRCs of a LOAD there. */
static int submit_fault_in_crcs(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	u32 size = kvc_chunk_size(s->pool->core);
	u64 nr = (sqe->offset % size + sqe->length - 1) / size + 1;

	if (fatal_signal_pending(current) || fault_in_writeable(u64_to_user_ptr(sqe->crcs), nr * sizeof(u32)))
		return -EFAULT;
	return 0;
}

/* The result of an operation that ends here, or -EIOCBQUEUED: it will be told. */
static s32 submit_one(struct kvctx_session *s, const struct kvctx_sqe *sqe, ktime_t now, struct kvctx_from *from,
		      struct kvctx_op **spare)
{
	const struct submit_opcode *oc = submit_opcode(sqe);
	ktime_t deadline = KTIME_MAX;
	s32 res;

	res = submit_sqe_check(s, sqe, oc);
	if (res)
		return res;
	if (sqe->timeout_ns) {
		deadline = ktime_add_safe(now, ns_to_ktime(min_t(u64, sqe->timeout_ns, KTIME_MAX)));
		if (ktime_get() >= deadline)
			return -ETIME;
	}
	if (oc->now)
		return oc->now(s, sqe);
	do {
		res = submit_start(s, sqe, oc, deadline, from, spare);
		if (!res)
			return -EIOCBQUEUED;
	} while (res == -ERESTART && !submit_fault_in_crcs(s, sqe));
	return res == -ERESTART ? -EFAULT : res;
}

/* One operation whose result goes to from->uring, or is returned; otherwise -EIOCBQUEUED. */
s32 kvctx_submit_sqe(struct kvctx_session *s, const struct kvctx_sqe *sqe, struct kvctx_from *from)
{
	struct kvctx_op *unused = NULL;
	s32 res = submit_one(s, sqe, ktime_get(), from, &unused);

	kvctx_op_discard_all(unused);
	return res;
}

/* Take up to @nr operations. Returns how many, or the reason why none. */
static long submit_some(struct kvctx_session *s, const struct kvctx_sqe __user *user, u32 nr, ktime_t now,
			struct kvctx_from *from)
{
	struct kvctx_sqe sqes[SQE_BATCH];
	struct kvctx_op *spare;
	u32 room, got, i;
	s32 res;

	room = kvctx_cq_reserve(s, min_t(u32, nr, SQE_BATCH), &spare);
	if (!room)
		return -EAGAIN;
	got = (room * sizeof(*sqes) - copy_from_user(sqes, user, room * sizeof(*sqes))) / sizeof(*sqes);
	for (i = 0; i < got; i++) {
		res = submit_one(s, &sqes[i], now, from, &spare);
		if (res != -EIOCBQUEUED)
			kvctx_cq_post(s, sqes[i].user_data, res, 0, NULL);
	}
	kvctx_op_discard_all(spare);
	if (got < room)
		kvctx_cq_unreserve(s, room - got);
	return got ? (long)got : -EFAULT;
}

/* @from: the io_uring command that hands them over; NULL: the ioctl */
long kvctx_submit(struct kvctx_session *s, const struct kvctx_submit *arg, struct kvctx_from *from)
{
	const struct kvctx_sqe __user *user = u64_to_user_ptr(arg->sqes);
	ktime_t now = ktime_get();
	u64 timeout_ns = arg->timeout_ns;
	struct blk_plug plug;
	u32 done = 0;
	long ret = 0;

	if (arg->reserved || !arg->nr || arg->nr > KVCTX_BATCH_MAX || (arg->timeout_ns && !arg->wait_nr))
		return -EINVAL;
	blk_start_plug(&plug);
	/* requests are then allocated so many at a time */
	plug.nr_ios = min_t(u32, arg->nr, PLUG_IOS);
	while (done < arg->nr) {
		ret = submit_some(s, user + done, arg->nr - done, now, from);
		if (ret < 0)
			break;
		done += ret;
		if (fatal_signal_pending(current))
			break;
		cond_resched();
	}
	blk_finish_plug(&plug);
	if (!done)
		return ret;
	if (arg->wait_nr)
		kvctx_cq_wait(s, arg->wait_nr, &timeout_ns);
	return done;
}
