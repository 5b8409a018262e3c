// SPDX-License-Identifier: GPL-2.0
/*
 * SUBMIT: from the caller's operations to operations under way.
 *
 * Each operation is copied once and validated from the copy (session/sqe.c). An operation that is refused has done
 * nothing, and completes with the reason like any other: every operation that SUBMIT takes gives exactly one
 * completion.
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

/* Who serves an opcode; what is valid says session/sqe.c. One of the two */
struct submit_opcode {
	int (*start)(struct kvctx_op *op);
	s32 (*now)(struct kvctx_session *s, const struct kvctx_sqe *sqe);
};

/* What begins, of that which moves pages: a tenant's pace may have it wait before */
static const struct kvctx_op_kind submit_paced[KVCTX_OPS] = {
	[KVCTX_OP_STORE]	= { .attempt = kvctx_store_start },
	[KVCTX_OP_LOAD]		= { .attempt = kvctx_load_start },
	[KVCTX_OP_PREFETCH]	= { .attempt = kvctx_prefetch_start },
	[KVCTX_OP_GET]		= { .attempt = kvctx_prefetch_start },
};

static s32 submit_query(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;

	return kvc_query(s->pool->core, s->domain, kvctx_key_bytes(&key));
}

static const struct submit_opcode submit_opcodes[KVCTX_OPS] = {
	[KVCTX_OP_STORE]	= { .start = kvctx_store_start },
	[KVCTX_OP_LOAD]		= { .start = kvctx_load_start },
	[KVCTX_OP_DELETE]	= { .start = kvctx_delete_start },
	[KVCTX_OP_QUERY]	= { .now = submit_query },
	[KVCTX_OP_PREFETCH]	= { .start = kvctx_prefetch_start },
	[KVCTX_OP_GET]		= { .start = kvctx_prefetch_start },
	[KVCTX_OP_PUT]		= { .now = kvctx_put },
	[KVCTX_OP_LEASE]	= { .now = kvctx_lease },
	[KVCTX_OP_RELEASE]	= { .now = kvctx_release },
	[KVCTX_OP_FLUSH]	= { .start = kvctx_flush_op_start },
	[KVCTX_OP_MATCH]	= { .start = kvctx_match_start },
	[KVCTX_OP_CANCEL]	= { .now = kvctx_cancel },
};

/* Resolve @nr of the caller's segments; adds their bytes to @sum. */
static int submit_add_pieces(struct kvctx_op *op, const struct kvctx_seg *segs, u32 nr, u64 *sum)
{
	struct kvctx_piece *piece;
	struct kvctx_mem *mem;

	for (; nr; nr--, segs++) {
		if (!segs->length)
			return -EINVAL;
		piece = &op->mem.user[op->mem.nr];
		mem = op->mem.nr ? piece[-1].mem : NULL;
		if (!mem || mem->id != segs->mem)
			mem = kvctx_mem_get(op->session, segs->mem, false);
		if (IS_ERR(mem))
			return PTR_ERR(mem);
		op->mem.p2p |= mem->foreign;
		*piece = (struct kvctx_piece){ .mem = mem, .offset = segs->offset, .length = segs->length };
		op->mem.nr++;
		if (segs->offset > mem->length || segs->length > mem->length - segs->offset)
			return -EFAULT;
		*sum += segs->length;
	}
	return 0;
}

/* The one segment that the operation names itself */
static int submit_get_piece(struct kvctx_op *op, const struct kvctx_sqe *sqe)
{
	struct kvctx_seg seg = { .offset = sqe->segs, .length = sqe->length, .mem = sqe->mem };
	u64 sum = 0;

	return sqe->length ? submit_add_pieces(op, &seg, 1, &sum) : 0;
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
	err = submit_add_pieces(op, segs, nr, &sum);
	if (err)
		return err;
	return sum == sqe->length ? 0 : -EMSGSIZE;
}

static int submit_copy(void **to, u64 from, size_t bytes)
{
	*to = kvmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!*to)
		return -ENOMEM;
	return copy_from_user(*to, u64_to_user_ptr(from), bytes) ? -EFAULT : 0;
}

/* LOAD gets its CRCs when the page was found; those of a STORE, and the keys of a MATCH, are copied now. */
static int submit_get_arrays(struct kvctx_op *op, const struct kvctx_sqe *sqe)
{
	u32 nr;

	if (!(sqe->crcs | sqe->nr_keys) || sqe->opcode == KVCTX_OP_LOAD) {
		op->call.crcs_to = sqe->crcs;
		return 0;
	}
	if (sqe->crcs) {
		nr = DIV_ROUND_UP(op->call.length, kvc_chunk_size(op->session->pool->core));
		return submit_copy((void **)&op->call.crcs, sqe->crcs, nr * sizeof(*op->call.crcs));
	}
	op->call.nr_keys = sqe->nr_keys;
	return submit_copy((void **)&op->call.keys, sqe->keys, sqe->nr_keys * sizeof(*op->call.keys));
}

/* Apart, as few have a pace */
static noinline int submit_pace(struct kvctx_op *op)
{
	int err = 0;

	/* that can be done now only */
	if (op->call.crcs_to)
		err = kvctx_load_tell(op);
	if (err)
		return err;
	op->kind = &submit_paced[op->call.opcode];
	return kvctx_pace(op);
}

/* 0: taken over, and maybe ended */
static int submit_start(struct kvctx_session *s, const struct kvctx_sqe *sqe, u32 opcode, ktime_t now, u64 deadline,
			struct kvctx_from *from, struct kvctx_op **spare)
{
	struct kvctx_op *op = kvctx_op_alloc(s, spare);
	int err;

	if (!op)
		return -ENOMEM;
	op->call.user_data = sqe->user_data;
	op->call.flags = sqe->flags;
	op->call.opcode = opcode;
	op->call.prio = kvctx_prio_of(&kvctx_rules[opcode], sqe->prio, kvctx_session_urgent(s));
	memcpy(op->call.key, &sqe->key, sizeof(op->call.key));
	kvctx_key_bytes((struct kvctx_key *)op->call.key);
	op->call.offset = sqe->offset;
	op->call.length = sqe->length;
	op->call.depth = sqe->depth;
	op->call.lease_ms = sqe->lease_ms;
	op->call.since = now;
	op->call.deadline = deadline;
	if (from) {
		/* the command counts the operations that are to report to it */
		op->to.uring = from->uring;
		op->to.done = from->uring->done;
		atomic_inc(&from->uring->left);
	}
	err = submit_get_arrays(op, sqe);
	if (!err)
		err = from && from->pieces ? from->pieces(op, from) : submit_get_pieces(op, sqe);
	if (!err) {
		os_trace_op(op_submitted, &op->call, -1, 0);
		if (unlikely(READ_ONCE(*s->paced)) && submit_paced[opcode].attempt && (!from || from->may_wait))
			err = submit_pace(op);
		else
			err = submit_opcodes[opcode].start(op);
	}
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
	u64 deadline = OS_NEVER;
	u32 opcode = sqe->opcode;
	s32 res;

	if (opcode >= KVCTX_OPS)
		return -EINVAL;
	opcode = array_index_nospec(opcode, KVCTX_OPS);
	res = kvctx_sqe_check(sqe, &kvctx_rules[opcode], &s->rights);
	if (res)
		return res;
	if (sqe->timeout_ns) {
		deadline = ktime_add_safe(now, ns_to_ktime(min_t(u64, sqe->timeout_ns, KTIME_MAX)));
		if (os_now() >= deadline)
			return -ETIME;
	}
	if (unlikely(s->cipher) && kvctx_rules[opcode].keyed && !kvctx_cipher_valid(s->cipher))
		return -ENOKEY;
	if (submit_opcodes[opcode].now)
		return submit_opcodes[opcode].now(s, sqe);
	do {
		res = submit_start(s, sqe, opcode, now, deadline, from, spare);
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
	if (res != -EIOCBQUEUED) {
		os_trace(op_immediate, s, sqe, res);
		kvctx_tally_refused(s->tally, sqe->opcode, res);
	}
	return res;
}

/* How many of them can be read? Where not all can, one copy may end earlier than it has to. */
static u32 submit_copy_sqes(struct kvctx_sqe *sqes, const struct kvctx_sqe __user *user, u32 nr)
{
	u32 got = 0;

	if (likely(!copy_from_user(sqes, user, nr * sizeof(*sqes))))
		return nr;
	while (got < nr && !copy_from_user(&sqes[got], &user[got], sizeof(*sqes)))
		got++;
	return got;
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
	got = submit_copy_sqes(sqes, user, room);
	for (i = 0; i < got; i++) {
		res = submit_one(s, &sqes[i], now, from, &spare);
		if (res != -EIOCBQUEUED) {
			os_trace(op_immediate, s, &sqes[i], res);
			kvctx_tally_refused(s->tally, sqes[i].opcode, res);
			kvctx_cq_post(s, sqes[i].user_data, res, 0, NULL);
		}
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
	struct kvctx_sending sending;
	u32 done = 0;
	long ret = 0;

	ret = kvctx_submit_check(arg);
	if (ret)
		return ret;
	kvctx_sending_begin(&sending, s->pool);
	/* requests are then allocated so many at a time */
	sending.plug.nr_ios = min_t(u32, arg->nr, PLUG_IOS);
	while (done < arg->nr) {
		ret = submit_some(s, user + done, arg->nr - done, now, from);
		if (ret < 0)
			break;
		done += ret;
		if (fatal_signal_pending(current))
			break;
		cond_resched();
	}
	kvctx_sending_end(&sending);
	if (!done)
		return ret;
	if (arg->wait_nr)
		kvctx_cq_wait(s, arg->wait_nr, &timeout_ns);
	return done;
}
