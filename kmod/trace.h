/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: stages of operations, and what reclaim does. libkvctx/engine/os/trace.h has the same names as probes of
 * user space, and selftests/probes compares the lists.
 *
 * What is the same everywhere
 *   pool, tenant  name, and slot in the superblock
 *   op            tells operations in flight apart, as nothing that callers choose does; used again when it has ended
 *   member        -1: none, or not known at that stage
 *   result        of that stage: 0, or what CQEs have
 *   ns            monotonic clock
 *
 * Stages, of which an operation passes some, in this order (data/op.h has its states)
 *   op_immediate  SUBMIT answered it: refused, or of a kind that moves no bytes. No other stage, but for op_submitted
 *                 of one that was refused when it was started
 *   op_submitted  it was understood, and is started
 *   op_paced      its tenant has as many in flight, or moved as many bytes, as it may
 *   op_parked     there is no space for it
 *   op_queued     it waits for its turn at a member
 *   op_sent       its bytes go to the device, or come from there
 *   op_answered   the device is through with them, and so are the checksums of a STORE
 *   op_completed  result is its caller's
 *
 * They cost one branch that is patched in when they are enabled: their arguments are pointers, which are followed then.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvctx

#if !defined(KVCTX_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KVCTX_TRACE_H

#include <linux/tracepoint.h>

struct kvctx_req;
struct kvctx_session;
struct kvctx_sqe;

#define show_opcode(opcode) __print_symbolic(opcode, \
	{ KVCTX_OP_STORE, "STORE" }, { KVCTX_OP_LOAD, "LOAD" }, { KVCTX_OP_DELETE, "DELETE" }, \
	{ KVCTX_OP_QUERY, "QUERY" }, { KVCTX_OP_PREFETCH, "PREFETCH" }, { KVCTX_OP_GET, "GET" }, \
	{ KVCTX_OP_PUT, "PUT" }, { KVCTX_OP_LEASE, "LEASE" }, { KVCTX_OP_RELEASE, "RELEASE" }, \
	{ KVCTX_OP_FLUSH, "FLUSH" }, { KVCTX_OP_MATCH, "MATCH" }, { KVCTX_OP_CANCEL, "CANCEL" })

DECLARE_EVENT_CLASS(kvctx_stage,
		    TP_PROTO(const struct kvctx_req *req, s32 member, s32 result),
		    TP_ARGS(req, member, result),
		    TP_STRUCT__entry(__string(pool, kvctx_req_session(req)->pool->name)
				     __field(u32, tenant)
				     __field(const void *, op)
				     __field(u64, user_data)
				     __field(u32, opcode)
				     __field(u32, length)
				     __field(s32, member)
				     __field(s32, result)
				     __field(u64, ns)),
		    TP_fast_assign(__assign_str(pool);
				   __entry->tenant = kvctx_req_session(req)->tenant->slot;
				   __entry->op = req;
				   __entry->user_data = req->user_data;
				   __entry->opcode = req->opcode;
				   __entry->length = req->length;
				   __entry->member = member;
				   __entry->result = result;
				   __entry->ns = ktime_get_ns();),
		    TP_printk("pool=%s tenant=%u op=%p opcode=%s user_data=%#llx length=%u member=%d result=%d ns=%llu",
			      __get_str(pool), __entry->tenant, __entry->op, show_opcode(__entry->opcode),
			      __entry->user_data, __entry->length, __entry->member, __entry->result, __entry->ns)
);

#define KVCTX_STAGE(name) \
	DEFINE_EVENT(kvctx_stage, name, TP_PROTO(const struct kvctx_req *req, s32 member, s32 result), \
		     TP_ARGS(req, member, result))

KVCTX_STAGE(op_submitted);
KVCTX_STAGE(op_paced);
KVCTX_STAGE(op_parked);
KVCTX_STAGE(op_queued);
KVCTX_STAGE(op_sent);
KVCTX_STAGE(op_answered);
KVCTX_STAGE(op_completed);

TRACE_EVENT(op_immediate,
	    TP_PROTO(const struct kvctx_session *s, const struct kvctx_sqe *sqe, s32 result),
	    TP_ARGS(s, sqe, result),
	    TP_STRUCT__entry(__string(pool, s->pool->name)
			     __field(u32, tenant)
			     __field(u64, user_data)
			     __field(u32, opcode)
			     __field(u64, length)
			     __field(s32, result)
			     __field(u64, ns)),
	    TP_fast_assign(__assign_str(pool);
			   __entry->tenant = s->tenant->slot;
			   __entry->user_data = sqe->user_data;
			   __entry->opcode = sqe->opcode;
			   __entry->length = sqe->length;
			   __entry->result = result;
			   __entry->ns = ktime_get_ns();),
	    TP_printk("pool=%s tenant=%u opcode=%s user_data=%#llx length=%llu result=%d ns=%llu", __get_str(pool),
		      __entry->tenant, show_opcode(__entry->opcode), __entry->user_data, __entry->length,
		      __entry->result, __entry->ns)
);

/* Reclaim of a segment: chosen, its pages out of the index, free again after its last reader. @bytes: of live pages */
DECLARE_EVENT_CLASS(kvctx_segment,
		    TP_PROTO(const char *name, u32 member, u32 segment, u64 bytes),
		    TP_ARGS(name, member, segment, bytes),
		    TP_STRUCT__entry(__string(pool, name)
				     __field(u32, member)
				     __field(u32, segment)
				     __field(u64, bytes)
				     __field(u64, ns)),
		    TP_fast_assign(__assign_str(pool);
				   __entry->member = member;
				   __entry->segment = segment;
				   __entry->bytes = bytes;
				   __entry->ns = ktime_get_ns();),
		    TP_printk("pool=%s member=%u segment=%u bytes=%llu ns=%llu", __get_str(pool), __entry->member,
			      __entry->segment, __entry->bytes, __entry->ns)
);

#define KVCTX_SEGMENT(event) \
	DEFINE_EVENT(kvctx_segment, event, TP_PROTO(const char *name, u32 member, u32 segment, u64 bytes), \
		     TP_ARGS(name, member, segment, bytes))

KVCTX_SEGMENT(victim_chosen);
KVCTX_SEGMENT(victim_emptied);
KVCTX_SEGMENT(segment_freed);

/* A page on @segment of @member: copied, or not (result), to @to; or out of the index, then @to is -1 */
DECLARE_EVENT_CLASS(kvctx_page,
		    TP_PROTO(const char *name, u32 tenant, u32 member, u32 segment, s32 to, u32 length, s32 result),
		    TP_ARGS(name, tenant, member, segment, to, length, result),
		    TP_STRUCT__entry(__string(pool, name)
				     __field(u32, tenant)
				     __field(u32, member)
				     __field(u32, segment)
				     __field(s32, to)
				     __field(u32, length)
				     __field(s32, result)
				     __field(u64, ns)),
		    TP_fast_assign(__assign_str(pool);
				   __entry->tenant = tenant;
				   __entry->member = member;
				   __entry->segment = segment;
				   __entry->to = to;
				   __entry->length = length;
				   __entry->result = result;
				   __entry->ns = ktime_get_ns();),
		    TP_printk("pool=%s tenant=%u member=%u segment=%u to=%d length=%u result=%d ns=%llu",
			      __get_str(pool), __entry->tenant, __entry->member, __entry->segment, __entry->to,
			      __entry->length, __entry->result, __entry->ns)
);

#define KVCTX_PAGE(event) \
	DEFINE_EVENT(kvctx_page, event, \
		     TP_PROTO(const char *name, u32 tenant, u32 member, u32 segment, s32 to, u32 length, s32 result), \
		     TP_ARGS(name, tenant, member, segment, to, length, result))

KVCTX_PAGE(page_moved);
KVCTX_PAGE(page_evicted);

TRACE_EVENT(member_lost,
	    TP_PROTO(const char *name, u32 member),
	    TP_ARGS(name, member),
	    TP_STRUCT__entry(__string(pool, name)
			     __field(u32, member)
			     __field(u64, ns)),
	    TP_fast_assign(__assign_str(pool);
			   __entry->member = member;
			   __entry->ns = ktime_get_ns();),
	    TP_printk("pool=%s member=%u ns=%llu", __get_str(pool), __entry->member, __entry->ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
