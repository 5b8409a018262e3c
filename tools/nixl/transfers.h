// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Requests on their way.
 *
 * There is no thread here: whoever calls post(), check(), release() or retire() takes what has completed, for
 * everybody, and all but release() submit what did not fit before. An operation carries the address of its request as
 * user_data, so one kvctx_cancel() means all of them.
 *
 * A request that is released in flight is cancelled: what waits for space or for its turn ends, what the device has
 * goes on. Nobody waits for that; and as kvctxd answers to who cancels, where it serves only retire() does. The request
 * moves to the released ones and is freed by whoever takes its last completion; its memory cannot be deregistered
 * before, retire() sees to that.
 *
 * Threads: any. One lock guards all members but one, the progress of every request, and Memory's two. Who has it may
 * wait for the socket of a kvctxd that does not read, so release() only tries to take it, and leaves its request to
 * whoever has it next.
 */
#ifndef KVCTX_NIXL_TRANSFERS_H
#define KVCTX_NIXL_TRANSFERS_H

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "request.h"

namespace kvctx_nixl {

class Transfers {
public:
	// @answers: whoever serves @ctx answers to a cancel, as kvctxd does, and may take its time
	Transfers(kvctx *ctx, bool answers) : ctx(ctx), answers(answers), batch(kvctx_get_info(ctx)->batch_max) {}

	// Begin @request. NIXL_IN_PROG, or what became of it
	nixl_status_t post(Request &request);

	// NIXL_IN_PROG, or, when nothing of @request moves any more, what became of it
	nixl_status_t check(Request &request);

	// Its owner wants no more of @request, which may be in flight. Does not wait, for other threads neither
	void release(std::unique_ptr<Request> request);

	// Wait until no request uses @memory. None can begin to any more
	void retire(Memory &memory);

private:
	kvctx *const ctx;
	const bool answers;
	const uint32_t batch;
	std::mutex lock;
	std::deque<Request *> waiting;	// with operations that are not submitted, in the order of post()
	std::unordered_map<Request *, std::shared_ptr<Request>> released;
	std::mutex left_lock;		// innermost
	std::vector<std::unique_ptr<Request>> left;	// by their owners, and not yet looked at

	void advance();
	void adopt();
	void take();
	void submit();
	void complete(Request &request, const kvctx_cqe &cqe);
	void give_up(Request &request, int error);
	void settle(Request &request);
};

} // namespace kvctx_nixl

#endif
