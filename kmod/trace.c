// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints of trace.h. They see the structures of all floors, and call none of their functions.
 */
#include "data/op.h"

static const struct kvctx_session *kvctx_req_session(const struct kvctx_req *req)
{
	return container_of(req, struct kvctx_op, call)->session;
}

#define CREATE_TRACE_POINTS
#include "trace.h"
