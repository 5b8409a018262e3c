// SPDX-License-Identifier: LGPL-2.1-or-later
#include "transfers.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_set>

namespace kvctx_nixl {

namespace {

constexpr uint64_t RETIRE_POLL_NS = 1000000;

// -errno of a completion: a page that was not written is no success, its reader would not find it
int error_of(const kvctx_cqe &cqe)
{
	if (cqe.res < 0)
		return cqe.res;
	return cqe.flags & KVCTX_CQE_UNADMITTED ? -EDQUOT : 0;
}

const char *text_of(int error)
{
	return error == -EDQUOT ? "the pool's write budget is spent, nothing was written" : kvctx_strerror(error);
}

nixl_status_t outcome(const Request &request)
{
	return request.active ? NIXL_IN_PROG : status_of(request.error);
}

uint64_t name_of(const Request &request)
{
	return reinterpret_cast<uintptr_t>(&request);
}

bool uses(const Request &request, const Memory &memory)
{
	return std::any_of(request.memories.begin(), request.memories.end(),
			   [&](const auto &one) { return one.get() == &memory; });
}

} // namespace

nixl_status_t Transfers::post(Request &request)
{
	std::lock_guard guard(lock);

	if (request.active)
		return NIXL_ERR_REPOST_ACTIVE;
	for (const auto &memory : request.memories) {
		if (memory->leaving)
			return NIXL_ERR_INVALID_PARAM;
	}
	for (const auto &memory : request.memories)
		memory->users++;
	request.expected = request.operations.size();
	request.submitted = request.completed = request.failed = 0;
	request.error = 0;
	request.active = true;
	waiting.push_back(&request);
	advance();
	return outcome(request);
}

nixl_status_t Transfers::check(Request &request)
{
	std::lock_guard guard(lock);

	advance();
	return outcome(request);
}

void Transfers::release(std::unique_ptr<Request> request)
{
	{
		std::lock_guard guard(left_lock);

		left.push_back(std::move(request));
	}
	if (std::unique_lock guard(lock, std::try_to_lock); guard)
		adopt();
}

// Take what has completed, and look after the requests that were left
void Transfers::adopt()
{
	std::vector<std::unique_ptr<Request>> requests;

	{
		std::lock_guard guard(left_lock);

		requests.swap(left);
	}
	take();
	for (auto &request : requests) {
		Request *one = request.get();

		if (!one->active)
			continue;
		released.emplace(one, std::move(request));
		waiting.erase(std::remove(waiting.begin(), waiting.end(), one), waiting.end());
		if (!answers && one->submitted > one->completed)
			kvctx_cancel(ctx, name_of(*one));
		give_up(*one, -ECANCELED);
	}
}

void Transfers::retire(Memory &memory)
{
	std::unique_lock guard(lock);
	std::unordered_set<std::shared_ptr<Request>> cancelled;	// which keeps their addresses from being used again

	memory.leaving = true;
	for (advance(); memory.users; advance()) {
		std::vector<uint64_t> names;

		for (auto &[request, owned] : released) {
			if (answers && uses(*request, memory) && cancelled.insert(owned).second)
				names.push_back(name_of(*request));
		}
		guard.unlock();
		for (uint64_t name : names)
			kvctx_cancel(ctx, name);
		kvctx_wait(ctx, 1, RETIRE_POLL_NS);
		guard.lock();
	}
}

void Transfers::advance()
{
	adopt();
	submit();
}

void Transfers::take()
{
	std::array<kvctx_cqe, 64> cqes;
	unsigned int nr;

	while ((nr = kvctx_take(ctx, cqes.data(), cqes.size())) > 0) {
		for (unsigned int i = 0; i < nr; i++)
			complete(*reinterpret_cast<Request *>(uintptr_t(cqes[i].user_data)), cqes[i]);
	}
}

void Transfers::submit()
{
	while (!waiting.empty()) {
		Request &first = *waiting.front();
		size_t left = first.expected - first.submitted;
		int nr = left ? kvctx_submit_sqes(ctx, &first.operations[first.submitted],
						  uint32_t(std::min<size_t>(left, batch))) : 0;

		if (left && (nr == -EAGAIN || nr == 0))
			return;	// until something has completed
		if (nr > 0)
			first.submitted += nr;
		if (nr < 0 || first.submitted == first.expected)
			waiting.pop_front();
		if (nr < 0)
			give_up(first, nr);
	}
}

void Transfers::complete(Request &request, const kvctx_cqe &cqe)
{
	int error = error_of(cqe);

	if (error) {
		request.failed++;
		if (!request.error)
			request.error = error;
	}
	request.completed++;
	settle(request);
}

// What was not submitted never will be
void Transfers::give_up(Request &request, int error)
{
	size_t never = request.expected - request.submitted;

	if (never && !request.error)
		request.error = error;
	request.failed += never;
	request.expected = request.submitted;
	settle(request);
}

// After each change of @request, which may be gone on return
void Transfers::settle(Request &request)
{
	if (request.completed < request.expected || !request.active)
		return;
	request.active = false;
	for (const auto &memory : request.memories)
		memory->users--;
	if (released.erase(&request))
		return;
	if (request.error && request.error != -ENOENT)
		NIXL_WARN << request.failed << " of " << request.operations.size() << " operations failed, the first: "
			  << text_of(request.error);
}

} // namespace kvctx_nixl
