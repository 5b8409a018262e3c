// SPDX-License-Identifier: LGPL-2.1-or-later
#include "engine.h"

#include <charconv>
#include <cerrno>
#include <cstdlib>

#include <sys/stat.h>

namespace kvctx_nixl {

namespace {

// A whole number, or nullopt when @text is none
template<class T> std::optional<T> number(const std::string &text)
{
	T value{};
	auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);

	if (error != std::errc() || end != text.data() + text.size())
		return std::nullopt;
	return value;
}

std::string directory(const std::string &path)
{
	return path.substr(0, path.find_last_of('/'));
}

} // namespace

Engine::Engine(const nixlBackendInitParams *params) : nixlBackendEngine(params)
{
	if (std::string why = open(); !why.empty()) {
		NIXL_ERROR << why;
		initErr = true;
		return;
	}
	struct stat st;

	transfers = std::make_unique<Transfers>(ctx, !stat(path().c_str(), &st) && S_ISSOCK(st.st_mode));
}

// The agent has released every request; kvctx_close() waits for what is still in flight, then nothing points to those
// that were released there
Engine::~Engine()
{
	kvctx_close(ctx);
}

std::string Engine::parameter(const std::string &name, const std::string &otherwise) const
{
	std::string value;

	return getInitParam(name, value) == NIXL_SUCCESS && !value.empty() ? value : otherwise;
}

/*
 * Consumers that know only the object store named OBJ let a user say no more than what that has: the bucket stands for
 * the path there.
 */
std::string Engine::path() const
{
	std::string bucket = parameter("bucket");
	const char *environment = std::getenv("KVCTX_NIXL_PATH");

	if (std::string given = parameter("path"); !given.empty())
		return given;
	if (bucket.starts_with('/'))
		return bucket;
	return environment ? environment : "";
}

// Returns an empty text, or why there is no session
std::string Engine::open()
{
	std::string where = path();
	auto bytes = number<uint64_t>(parameter("max_bytes", "0"));
	auto entries = number<uint32_t>(parameter("entries", "1024"));
	kvctx_params params{};
	int rc;

	if (where.empty())
		return "no path: give the parameter \"path\", a bucket that begins with '/', or KVCTX_NIXL_PATH";
	if (!bytes || !entries)
		return "max_bytes and entries are whole numbers";
	if (*bytes) {
		kvctx_pool_params pool{};

		pool.size = sizeof(pool);
		pool.bytes = *bytes;
		rc = kvctx_pool_create(directory(where).c_str(), &pool);
		if (rc)
			return directory(where) + ": no pool could be made: " + kvctx_strerror(rc);
	}
	params.size = sizeof(params);
	params.cq_entries = *entries;
	kvctx_keyspace_from_string(params.keyspace, parameter("keyspace", "nixl").c_str());
	rc = kvctx_open(where.c_str(), O_RDWR, &params, &ctx);
	return rc ? where + ": " + kvctx_strerror(rc) : "";
}

nixl_mem_list_t Engine::getSupportedMems() const
{
	nixl_mem_list_t kinds = {DRAM_SEG, OBJ_SEG};

	if (ctx && peers())
		kinds.push_back(VRAM_SEG);
	return kinds;
}

nixl_status_t Engine::registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out)
{
	switch (kind) {
	case OBJ_SEG:
		out = new Metadata(mem.metaInfo.empty() ? std::to_string(mem.devId) : mem.metaInfo);
		return NIXL_SUCCESS;
	case DRAM_SEG:
		return pin(mem, out);
	case VRAM_SEG:
		if (peers())
			return pin(mem, out);
		NIXL_ERROR << "VRAM_SEG is refused: only the kernel module moves pages to and from PCI peers, on a "
			      "kernel that can, and it does not serve this session or cannot";
		return NIXL_ERR_NOT_SUPPORTED;
	case BLK_SEG:
		NIXL_ERROR << "BLK_SEG is refused: pages have names, and where they are on a device changes: use OBJ_SEG";
		return NIXL_ERR_NOT_SUPPORTED;
	default:
		NIXL_ERROR << "FILE_SEG is refused: pages have names and are no files: use OBJ_SEG";
		return NIXL_ERR_NOT_SUPPORTED;
	}
}

nixl_status_t Engine::pin(const nixlBlobDesc &mem, nixlBackendMD *&out)
{
	uint32_t id;
	int rc = kvctx_mem_register(ctx, reinterpret_cast<void *>(mem.addr), mem.len, &id);

	if (rc) {
		NIXL_ERROR << mem.len << " bytes of memory cannot be registered: " << kvctx_strerror(rc);
		return status_of(rc);
	}
	out = new Metadata(std::make_shared<Memory>(id, mem.addr));
	return NIXL_SUCCESS;
}

// The caller frees the memory next, whatever this returns: so it waits for what moves
nixl_status_t Engine::deregisterMem(nixlBackendMD *meta)
{
	std::unique_ptr<Metadata> mine(static_cast<Metadata *>(meta));
	int rc;

	if (!mine->memory)
		return NIXL_SUCCESS;
	transfers->retire(*mine->memory);
	rc = kvctx_mem_unregister(ctx, mine->memory->id);
	if (rc)
		NIXL_ERROR << "memory cannot be unregistered: " << kvctx_strerror(rc);
	return status_of(rc);
}

// For a transfer inside the agent both sides are what registerMem() made, which owns it
nixl_status_t Engine::loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output)
{
	output = input;
	return NIXL_SUCCESS;
}

nixl_status_t Engine::unloadMD(nixlBackendMD *)
{
	return NIXL_SUCCESS;
}

nixl_status_t Engine::connect(const std::string &)
{
	return NIXL_SUCCESS;
}

nixl_status_t Engine::disconnect(const std::string &)
{
	return NIXL_SUCCESS;
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &, nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *) const
{
	const kvctx_info &info = *kvctx_get_info(ctx);
	auto request = std::make_unique<Request>();
	std::string why;

	if ((local.getType() != DRAM_SEG && local.getType() != VRAM_SEG) || remote.getType() != OBJ_SEG)
		why = "transfers go between memory, the local side, and objects, the remote side";
	else
		why = request->plan(operation, local, remote, {info.page_len_max, info.segs_max});
	if (!why.empty()) {
		NIXL_ERROR << why;
		return NIXL_ERR_INVALID_PARAM;
	}
	handle = request.release();
	return NIXL_SUCCESS;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
			       const std::string &, nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const
{
	return transfers->post(*static_cast<Request *>(handle));
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const
{
	return transfers->check(*static_cast<Request *>(handle));
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const
{
	transfers->release(std::unique_ptr<Request>(static_cast<Request *>(handle)));
	return NIXL_SUCCESS;
}

nixl_status_t Engine::queryMem(const nixl_reg_dlist_t &descs, std::vector<nixl_query_resp_t> &resp) const
{
	const size_t nr = descs.descCount(), most = kvctx_get_info(ctx)->match_max;
	std::vector<kvctx_key> keys;
	std::vector<uint64_t> present((most + 63) / 64);
	std::vector<uint32_t> lens(nr);

	if (descs.getType() != OBJ_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	for (const nixlBlobDesc &desc : descs)
		keys.push_back(Metadata(desc.metaInfo.empty() ? std::to_string(desc.devId) : desc.metaInfo).key);
	for (size_t at = 0; at < nr; at += most) {
		uint32_t some = uint32_t(std::min(nr - at, most));
		int64_t rc = kvctx_match_all(ctx, &keys[at], some, present.data(), &lens[at], 0, nullptr);

		if (rc < 0) {
			NIXL_ERROR << "objects cannot be looked up: " << kvctx_strerror(int(rc));
			return status_of(int(rc));
		}
	}
	resp.clear();
	for (uint32_t len : lens)	// 0 is that of no page
		resp.push_back(len ? nixl_query_resp_t(nixl_b_params_t{{"size", std::to_string(len)}}) : std::nullopt);
	return NIXL_SUCCESS;
}

} // namespace kvctx_nixl
