// SPDX-License-Identifier: LGPL-2.1-or-later
#include "request.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

namespace kvctx_nixl {

Metadata::Metadata(const std::string &name) : nixlBackendMD(true), name(name)
{
	kvctx_key_from_bytes(&key, name.data(), name.size(), 0);
}

nixl_status_t status_of(int error)
{
	switch (error) {
	case 0:
		return NIXL_SUCCESS;
	case -ENOENT:	// also a page that failed verification: it has been dropped, so it is as absent as the other
	case -EBADMSG:
		return NIXL_ERR_NOT_FOUND;
	case -ERANGE:
		return NIXL_ERR_MISMATCH;
	case -EACCES:
	case -EPERM:
	case -EDQUOT:
		return NIXL_ERR_NOT_ALLOWED;
	case -ECANCELED:
		return NIXL_ERR_CANCELED;
	case -EINVAL:
	case -E2BIG:
	case -EFAULT:
		return NIXL_ERR_INVALID_PARAM;
	case -EREMOTEIO:
	case -EOPNOTSUPP:
		return NIXL_ERR_NOT_SUPPORTED;
	default:
		return NIXL_ERR_BACKEND;
	}
}

namespace {

const Metadata &meta(const nixlMetaDesc &descriptor)
{
	return *static_cast<const Metadata *>(descriptor.metadataP);
}

// Builds the operations of one request, run by run
class Planner {
public:
	Planner(Request &request, nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
		const nixl_meta_dlist_t &remote, const Limits &limits)
		: request(request), writes(operation == NIXL_WRITE), local(local), remote(remote), limits(limits)
	{
	}

	std::string build()
	{
		std::vector<size_t> order(local.descCount());

		std::iota(order.begin(), order.end(), 0);
		std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) { return before(a, b); });
		request.segments.reserve(order.size());	// operations point into it: it must not move
		for (size_t i : order) {
			if (std::string why = add(i); !why.empty())
				return why;
		}
		return "";
	}

private:
	Request &request;
	const bool writes;
	const nixl_meta_dlist_t &local, &remote;
	const Limits limits;
	const Metadata *object = nullptr;	// of the run that is being built
	uint64_t end = 0;			// where that ends in the object

	bool before(size_t a, size_t b) const
	{
		int order = std::memcmp(&meta(remote[a]).key, &meta(remote[b]).key, sizeof(kvctx_key));

		return order ? order < 0 : remote[a].addr < remote[b].addr;
	}

	// Put descriptor @i behind the run, or begin another with it
	std::string add(size_t i)
	{
		const nixlMetaDesc &theirs = remote[i];
		const Metadata &name = meta(theirs);
		bool same = object && !std::memcmp(&object->key, &name.key, sizeof(kvctx_key));

		if (!theirs.len || theirs.len != local[i].len)
			return "a descriptor of no bytes, or of different lengths on both sides";
		if (!same || theirs.addr != end) {
			if (writes && same)
				return "\"" + name.name + "\" would be written in parts that leave a gap or overlap";
			if (writes && theirs.addr)
				return "\"" + name.name + "\" would be written from byte " +
				       std::to_string(theirs.addr) + " on: an object is written as a whole";
			begin(theirs.addr, name);
		}
		return extend(local[i]);
	}

	void begin(uint64_t offset, const Metadata &name)
	{
		kvctx_sqe &sqe = request.operations.emplace_back();
		const kvctx_seg *first = request.segments.data() + request.segments.size();

		if (writes) {
			kvctx_prep_store(&sqe, &name.key, first, 0, 0, 0);
			kvctx_sqe_set_flags(&sqe, KVCTX_OP_REPLACE);
		} else {
			kvctx_prep_load(&sqe, &name.key, first, 0, offset, 0);
		}
		kvctx_sqe_set_data(&sqe, reinterpret_cast<uintptr_t>(&request));
		object = &name;
		end = offset;
	}

	std::string extend(const nixlMetaDesc &ours)
	{
		kvctx_sqe &sqe = request.operations.back();
		const std::shared_ptr<Memory> &memory = meta(ours).memory;
		uint64_t at = ours.addr - memory->base;

		if (end + ours.len > limits.page_bytes)
			return "\"" + object->name + "\" is longer than " + std::to_string(limits.page_bytes) + " bytes";
		if (sqe.nr_segs && follows(request.segments.back(), memory->id, at)) {
			request.segments.back().length += ours.len;
		} else {
			if (sqe.nr_segs == limits.segments)
				return "\"" + object->name + "\" is in more than " + std::to_string(limits.segments) +
				       " pieces of memory";
			request.segments.push_back({.offset = at, .mem = memory->id, .length = uint32_t(ours.len)});
			sqe.nr_segs++;
		}
		sqe.length += ours.len;
		end += ours.len;
		keep(memory);
		return "";
	}

	static bool follows(const kvctx_seg &seg, uint32_t mem, uint64_t at)
	{
		return seg.mem == mem && seg.offset + seg.length == at;
	}

	void keep(const std::shared_ptr<Memory> &memory)
	{
		auto &all = request.memories;

		if (std::find(all.begin(), all.end(), memory) == all.end())
			all.push_back(memory);
	}
};

} // namespace

std::string Request::plan(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			  const Limits &limits)
{
	if (!local.descCount() || local.descCount() != remote.descCount())
		return "no descriptors, or not as many of memory as of objects";
	return Planner(*this, operation, local, remote, limits).build();
}

} // namespace kvctx_nixl
