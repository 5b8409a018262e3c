/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations of a kvctx session as commands of the caller's own io_uring.
 *
 * kvctx_prep_store() and so on fill an operation, these helpers make it an entry of a ring that the
 * caller made with liburing, submits and reaps. They are part of the program that uses them and need
 * liburing 2.3 or later; the library does not. Only the kernel takes such
 * commands, and its module has to have KVCTX_FEAT_URING; without that bit in kvctx_get_info() they
 * complete with -EOPNOTSUPP. The operation is the caller's variable here, cleared before it is filled.
 *
 *	struct kvctx_sqe op = { .user_data = 1 };
 *	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
 *
 *	kvctx_prep_load_at(&op, &key, KVCTX_MEM_ARENA, at, 0, length);
 *	err = kvctx_uring_prep(sqe, kvctx_fd(ctx), &op);
 *
 * Two kinds of entries
 *   one operation	kvctx_uring_prep(), kvctx_uring_prep_fixed(): the ring has IORING_SETUP_SQE128.
 *			The ring's completion is the operation's; the handle has no part in it
 *   a batch		kvctx_uring_prep_submit(): any ring. Each operation completes in the handle,
 *			which has to know before: kvctx_expect()
 *
 * As with liburing's own helpers, IOSQE_* flags are set after an entry was filled. With
 * IOSQE_FIXED_FILE @fd is the number of a registered file. Arena, registrations and leases stay those
 * of the handle; a session does not end before its commands have.
 */
#ifndef KVCTX_URING_H
#define KVCTX_URING_H

#include <liburing.h>
#include <errno.h>

#include "kvctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For the helpers: the command in an entry; compilers take its array of no length for its end */
static inline void *__kvctx_uring_cmd(struct io_uring_sqe *sqe)
{
	return (uint8_t *)sqe + offsetof(struct io_uring_sqe, cmd);
}

/*
 * For the helpers: what a command has for depth, lease_ms and lease. Its opcode uses one of them at
 * most, and the others would be lost. -EINVAL then, and when the opcode is none.
 */
static inline int __kvctx_uring_arg(const struct kvctx_sqe *op, uint32_t *arg)
{
	uint32_t depth = op->depth, ms = op->lease_ms, lease = op->lease;

	*arg = 0;
	switch (op->opcode) {
	case KVCTX_OP_STORE:
		*arg = depth;
		depth = 0;
		break;
	case KVCTX_OP_PREFETCH:
	case KVCTX_OP_LEASE:
	case KVCTX_OP_GET:
		*arg = ms;
		ms = 0;
		break;
	case KVCTX_OP_RELEASE:
	case KVCTX_OP_PUT:
		*arg = lease;
		lease = 0;
		break;
	case KVCTX_OP_LOAD:
	case KVCTX_OP_DELETE:
	case KVCTX_OP_QUERY:
	case KVCTX_OP_FLUSH:
		break;
	default:
		return -EINVAL;
	}
	return depth | ms | lease ? -EINVAL : 0;
}

/* For the helpers: can a command say what the operation says? */
static inline int __kvctx_uring_check(const struct kvctx_sqe *op, uint32_t *arg)
{
	if (op->crcs || op->keys || op->nr_keys || op->offset > UINT32_MAX || op->length > UINT32_MAX)
		return -EOPNOTSUPP;
	if (op->reserved2)
		return -EINVAL;
	return __kvctx_uring_arg(op, arg);
}

/* For the helpers: both halves of an entry */
static inline void __kvctx_uring_fill(struct io_uring_sqe *sqe, int fd, const struct kvctx_sqe *op,
				      uint64_t addr, uint32_t arg)
{
	struct kvctx_uring_op *u = (struct kvctx_uring_op *)__kvctx_uring_cmd(sqe);

	/* of 128 bytes; the command's fields fill the others */
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = KVCTX_URING_OP;
	sqe->user_data = op->user_data;
	u->opcode = op->opcode;
	u->prio = op->prio;
	u->nr_segs = op->nr_segs;
	u->flags = op->flags;
	u->key = op->key;
	u->addr = addr;
	u->timeout_ns = op->timeout_ns;
	u->offset = (uint32_t)op->offset;
	u->length = (uint32_t)op->length;
	u->arg = arg;
	u->mem = op->mem;
}

/**
 * kvctx_uring_prep() - make an operation an entry of a ring
 * @sqe: entry of a ring with IORING_SETUP_SQE128; both halves are written, whatever they held
 * @fd: kvctx_fd(), or the number of a registered file when IOSQE_FIXED_FILE is set afterwards
 * @op: the operation, with its flags, priority and time limit; copied
 *
 * The ring's completion carries the operation's user_data, any value, and its result;
 * kvctx_uring_cqe_flags() has the flags. A scatter list has to stay until the ring has taken the entry:
 * when io_uring_submit() has returned, and with a polling thread, a link or a drain when the entry has
 * completed. kvctx_prep_load_at() and kvctx_prep_store_at() need none.
 *
 * When it fails the entry is as it was: fill it with something else, as io_uring_prep_nop().
 *
 * Context: MT-Safe: only @sqe is written.
 *
 * Return: 0, or
 *
 * * -EINVAL: an unknown opcode, or a number that is another one's
 * * -EOPNOTSUPP: what a command has no room for: CRCs, an offset or a length of 4 GiB. Use
 *	kvctx_uring_prep_submit()
 */
static inline int kvctx_uring_prep(struct io_uring_sqe *sqe, int fd, const struct kvctx_sqe *op)
{
	uint32_t arg;
	int err;

	err = __kvctx_uring_check(op, &arg);
	if (err)
		return err;
	__kvctx_uring_fill(sqe, fd, op, op->segs, arg);
	return 0;
}

/**
 * kvctx_uring_prep_fixed() - make an operation on the ring's registered memory an entry of it
 * @sqe: entry of a ring with IORING_SETUP_SQE128; both halves are written, whatever they held
 * @fd: as in kvctx_uring_prep()
 * @op: a STORE or LOAD whose scatter list is NULL, with 0 entries; copied
 * @addr: where its bytes are, or go to
 * @buf_index: number of the buffer, of io_uring_register_buffers(), that they lie in
 *
 * As kvctx_uring_prep(), without a registration in the handle.
 *
 * Context: MT-Safe: only @sqe is written.
 *
 * Return: 0, or
 *
 * * -EINVAL: another opcode, a scatter list, a memory id, or a number that is another opcode's
 * * -EOPNOTSUPP: CRCs, an offset or a length of 4 GiB
 */
static inline int kvctx_uring_prep_fixed(struct io_uring_sqe *sqe, int fd,
					 const struct kvctx_sqe *op, const void *addr,
					 uint16_t buf_index)
{
	uint32_t arg;
	int err;

	err = __kvctx_uring_check(op, &arg);
	if (err)
		return err;
	if ((op->opcode != KVCTX_OP_STORE && op->opcode != KVCTX_OP_LOAD) || op->nr_segs || op->segs ||
	    op->mem)
		return -EINVAL;
	__kvctx_uring_fill(sqe, fd, op, (uintptr_t)addr, arg);
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	sqe->buf_index = buf_index;
	return 0;
}

/**
 * kvctx_uring_prep_submit() - make a batch of operations an entry of a ring
 * @sqe: entry of any ring; its first 64 bytes are written, user_data is 0 until the caller sets it
 * @fd: as in kvctx_uring_prep()
 * @ops: the operations, with all that kvctx_submit() takes, and user_data below KVCTX_USER_DATA_END
 * @nr: how many, 1 to batch_max
 *
 * Call kvctx_expect() with @nr before the entry is submitted. Each operation taken completes in the
 * handle: kvctx_take(). The ring's completion comes after all of these. Its result is the number of
 * operations taken, from the front, or -EAGAIN when there was no room for one. Tell kvctx_expect()
 * about the rest: it may be tried again, when completions have been taken.
 *
 * @ops, scatter lists and CRCs have to stay as the scatter list of kvctx_uring_prep().
 *
 * Context: MT-Safe: only @sqe is written.
 */
static inline void kvctx_uring_prep_submit(struct io_uring_sqe *sqe, int fd,
					   const struct kvctx_sqe *ops, uint32_t nr)
{
	struct kvctx_uring_submit *b = (struct kvctx_uring_submit *)__kvctx_uring_cmd(sqe);

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = KVCTX_URING_SUBMIT;
	b->sqes = (uintptr_t)ops;
	b->nr = nr;
}

/**
 * kvctx_uring_cqe_flags() - what happened to an operation
 * @cqe: completion of kvctx_uring_prep() or kvctx_uring_prep_fixed(), in a ring with
 *	IORING_SETUP_CQE32; other rings have no room for it
 *
 * Context: MT-Safe.
 *
 * Return: KVCTX_CQE_*.
 */
static inline uint32_t kvctx_uring_cqe_flags(const struct io_uring_cqe *cqe)
{
	return (uint32_t)cqe->big_cqe[0];
}

#ifdef __cplusplus
}
#endif

#endif
