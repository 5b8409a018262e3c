// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The backend: what NIXL's agent calls, in terms of one session of kvctx.
 *
 * Memory (DRAM_SEG, and VRAM_SEG where the session takes memory of PCI peers) is pinned when the agent registers it.
 * Registering an object (OBJ_SEG) only remembers its name, which is metaInfo, or the decimal devId where that is empty.
 * Transfers go between this process's memory and objects, so there are no remote agents and no notifications.
 *
 * Threads: those of the agent, any number.
 */
#ifndef KVCTX_NIXL_ENGINE_H
#define KVCTX_NIXL_ENGINE_H

#include "transfers.h"

namespace kvctx_nixl {

class Engine : public nixlBackendEngine {
public:
	// Opens the session; getInitErr() tells whether that failed
	explicit Engine(const nixlBackendInitParams *params);
	~Engine() override;

	bool supportsRemote() const override { return false; }
	bool supportsLocal() const override { return true; }
	bool supportsNotif() const override { return false; }
	nixl_mem_list_t getSupportedMems() const override;

	nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out) override;
	nixl_status_t deregisterMem(nixlBackendMD *meta) override;
	nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output) override;
	nixl_status_t unloadMD(nixlBackendMD *input) override;
	nixl_status_t connect(const std::string &agent) override;
	nixl_status_t disconnect(const std::string &agent) override;

	nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args) const override;
	nixl_status_t postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args) const override;
	nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;
	nixl_status_t queryMem(const nixl_reg_dlist_t &descs, std::vector<nixl_query_resp_t> &resp) const override;

private:
	kvctx *ctx = nullptr;
	std::unique_ptr<Transfers> transfers;	// nullptr when the session could not be opened

	std::string parameter(const std::string &name, const std::string &otherwise = "") const;
	std::string path() const;
	bool peers() const { return kvctx_get_info(ctx)->features & KVCTX_FEAT_P2P; }
	std::string open();
	nixl_status_t pin(const nixlBlobDesc &mem, nixlBackendMD *&out);
};

} // namespace kvctx_nixl

#endif
