/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of user space (USDT, provider "kvctx"): the events of kmod/trace.h under the same names. Arguments:
 *
 *   stages of an operation   op, user_data, opcode, length, member, result; behind these of op_submitted, op_completed
 *                            and op_immediate: pool's name, tenant's slot. The op of op_immediate is 0
 *   other events             as in kmod/trace.h, without ns
 *
 * A probe is one instruction that does nothing until somebody attaches. Where <sys/sdt.h> is not there, there are none.
 */
#ifndef KVE_TRACE_H
#define KVE_TRACE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#endif
#endif

#ifdef STAP_PROBEV
#define KVE_TRACE(event, ...)		STAP_PROBEV(kvctx, event, __VA_ARGS__)
#else
#define KVE_TRACE(event, ...)		((void)0)
#endif

#define KVE_TRACE_OP(stage, req, member, result) \
	KVE_TRACE(stage, req, (req)->user_data, (req)->opcode, (req)->length, member, result)

/* The same where the session is known */
#define KVE_TRACE_SESSION(stage, op, sqe, session, result) \
	KVE_TRACE(stage, op, (sqe)->user_data, (sqe)->opcode, (sqe)->length, -1, result, (session)->pool->name, \
		  (session)->slot)

#endif
