// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the plugin touches of NIXL's interface of backends, small: the names, types and values of v1.4.0, declared anew,
 * so that `make check` compiles the plugin and tries it without NIXL. A plugin that was built with this is for
 * contract.cpp alone: classes have another layout than NIXL's. signatures.h holds for both.
 */
#ifndef KVCTX_NIXL_FAKE_ENGINE_H
#define KVCTX_NIXL_FAKE_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/nixl_log.h"

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };

enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };

// Not those that the plugin never returns
enum nixl_status_t {
	NIXL_IN_PROG = 1,
	NIXL_SUCCESS = 0,
	NIXL_ERR_INVALID_PARAM = -2,
	NIXL_ERR_BACKEND = -3,
	NIXL_ERR_NOT_FOUND = -4,
	NIXL_ERR_MISMATCH = -5,
	NIXL_ERR_NOT_ALLOWED = -6,
	NIXL_ERR_REPOST_ACTIVE = -7,
	NIXL_ERR_NOT_SUPPORTED = -9,
	NIXL_ERR_CANCELED = -11,
};

using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;

struct nixlBasicDesc {
	uintptr_t addr;
	size_t len;
	uint64_t devId;

	nixlBasicDesc(const uintptr_t &addr, const size_t &len, const uint64_t &id) : addr(addr), len(len), devId(id) {}
};

// Of a registration or a query
struct nixlBlobDesc : nixlBasicDesc {
	std::string metaInfo;

	nixlBlobDesc(const uintptr_t &addr, const size_t &len, const uint64_t &id, const std::string &info)
		: nixlBasicDesc(addr, len, id), metaInfo(info)
	{
	}
};

// What a backend keeps beside a registration
class nixlBackendMD {
public:
	explicit nixlBackendMD(bool secret) : isPrivateMD(secret) {}
	virtual ~nixlBackendMD() = default;

protected:
	bool isPrivateMD;
};

// Of a transfer
struct nixlMetaDesc : nixlBasicDesc {
	nixlBackendMD *metadataP;

	nixlMetaDesc(uintptr_t addr, size_t len, uint64_t id, nixlBackendMD *metadata)
		: nixlBasicDesc(addr, len, id), metadataP(metadata)
	{
	}
};

template<class T> class nixlDescList {
public:
	explicit nixlDescList(const nixl_mem_t &type) : type(type) {}
	virtual ~nixlDescList() = default;

	nixl_mem_t getType() const { return type; }
	int descCount() const { return int(descs.size()); }
	void addDesc(const T &desc) { descs.push_back(desc); }
	const T &operator[](size_t index) const { return descs[index]; }
	typename std::vector<T>::const_iterator begin() const { return descs.begin(); }
	typename std::vector<T>::const_iterator end() const { return descs.end(); }

private:
	nixl_mem_t type;
	std::vector<T> descs;
};

using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;
using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;

struct nixlBackendReqH {
	virtual ~nixlBackendReqH() = default;
};

// Nothing of these is looked at
struct nixlBackendOptionalArgs {
	bool hasNotif = false;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

struct nixlBackendInitParams {
	std::string localAgent;
	std::string type;
	nixl_b_params_t *customParams = nullptr;
};

class nixlBackendEngine {
public:
	explicit nixlBackendEngine(const nixlBackendInitParams *params)
		: type(params->type), given(*params->customParams)
	{
	}
	nixlBackendEngine(const nixlBackendEngine &) = delete;
	nixlBackendEngine &operator=(const nixlBackendEngine &) = delete;
	virtual ~nixlBackendEngine() = default;

	bool getInitErr() const noexcept { return initErr; }
	const std::string &getType() const noexcept { return type; }

	virtual bool supportsRemote() const = 0;
	virtual bool supportsLocal() const = 0;
	virtual bool supportsNotif() const = 0;
	virtual nixl_mem_list_t getSupportedMems() const = 0;

	virtual nixl_status_t registerMem(const nixlBlobDesc &, const nixl_mem_t &, nixlBackendMD *&) = 0;
	virtual nixl_status_t deregisterMem(nixlBackendMD *) = 0;
	virtual nixl_status_t loadLocalMD(nixlBackendMD *, nixlBackendMD *&) { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t unloadMD(nixlBackendMD *) = 0;
	virtual nixl_status_t connect(const std::string &) = 0;
	virtual nixl_status_t disconnect(const std::string &) = 0;

	virtual nixl_status_t prepXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
				       const std::string &, nixlBackendReqH *&, const nixl_opt_b_args_t * = nullptr) const = 0;
	virtual nixl_status_t postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
				       const std::string &, nixlBackendReqH *&, const nixl_opt_b_args_t * = nullptr) const = 0;
	virtual nixl_status_t checkXfer(nixlBackendReqH *) const = 0;
	virtual nixl_status_t releaseReqH(nixlBackendReqH *) const = 0;
	virtual nixl_status_t queryMem(const nixl_reg_dlist_t &, std::vector<nixl_query_resp_t> &) const
	{
		return NIXL_ERR_NOT_SUPPORTED;
	}

protected:
	bool initErr = false;

	nixl_status_t getInitParam(const std::string &name, std::string &value) const
	{
		auto found = given.find(name);

		if (found == given.end())
			return NIXL_ERR_INVALID_PARAM;
		value = found->second;
		return NIXL_SUCCESS;
	}

private:
	const std::string type;
	const nixl_b_params_t given;
};

#endif
