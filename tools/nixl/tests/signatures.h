// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the plugin takes for granted of NIXL's interface, recorded of v1.4.0. It compiles with the fakes, and, in
 * `make check-connectors NIXL_SRC=DIR`, with NIXL's own headers: then the fakes are right about what stands here.
 */
#ifndef KVCTX_NIXL_SIGNATURES_H
#define KVCTX_NIXL_SIGNATURES_H

#include <type_traits>

#include "backend/backend_plugin.h"

#define SAME(what, ...) static_assert(std::is_same_v<decltype(what), __VA_ARGS__>, #what)
#define METHOD(name, ...) SAME(&nixlBackendEngine::name, nixl_status_t (nixlBackendEngine::*)__VA_ARGS__)

static_assert(DRAM_SEG == 0 && VRAM_SEG == 1 && BLK_SEG == 2 && OBJ_SEG == 3 && FILE_SEG == 4);
static_assert(NIXL_READ == 0 && NIXL_WRITE == 1);
static_assert(NIXL_IN_PROG == 1 && NIXL_SUCCESS == 0 && NIXL_ERR_INVALID_PARAM == -2 && NIXL_ERR_BACKEND == -3 &&
	      NIXL_ERR_NOT_FOUND == -4 && NIXL_ERR_MISMATCH == -5 && NIXL_ERR_NOT_ALLOWED == -6 &&
	      NIXL_ERR_REPOST_ACTIVE == -7 && NIXL_ERR_NOT_SUPPORTED == -9 && NIXL_ERR_CANCELED == -11);

static_assert(std::is_same_v<nixl_mem_list_t, std::vector<nixl_mem_t>>);
static_assert(std::is_same_v<nixl_b_params_t, std::unordered_map<std::string, std::string>>);
static_assert(std::is_same_v<nixl_query_resp_t, std::optional<nixl_b_params_t>>);
static_assert(std::is_same_v<nixl_reg_dlist_t, nixlDescList<nixlBlobDesc>>);
static_assert(std::is_same_v<nixl_meta_dlist_t, nixlDescList<nixlMetaDesc>>);
static_assert(std::is_base_of_v<nixlBasicDesc, nixlBlobDesc> && std::is_base_of_v<nixlBasicDesc, nixlMetaDesc>);
static_assert(std::has_virtual_destructor_v<nixlBackendMD> && std::has_virtual_destructor_v<nixlBackendReqH> &&
	      std::has_virtual_destructor_v<nixlBackendEngine>);
static_assert(std::is_constructible_v<nixlBackendMD, bool>);

SAME(nixlBasicDesc::addr, uintptr_t);
SAME(nixlBasicDesc::len, size_t);
SAME(nixlBasicDesc::devId, uint64_t);
SAME(nixlBlobDesc::metaInfo, std::string);
SAME(nixlMetaDesc::metadataP, nixlBackendMD *);
SAME(nixlBackendInitParams::localAgent, std::string);
SAME(nixlBackendInitParams::type, std::string);
SAME(nixlBackendInitParams::customParams, nixl_b_params_t *);
SAME(&nixl_meta_dlist_t::getType, nixl_mem_t (nixl_meta_dlist_t::*)() const);
SAME(&nixl_meta_dlist_t::descCount, int (nixl_meta_dlist_t::*)() const);
SAME(std::declval<const nixl_meta_dlist_t &>()[0], const nixlMetaDesc &);
SAME(*std::declval<const nixl_reg_dlist_t &>().begin(), const nixlBlobDesc &);

SAME(&nixlBackendEngine::getInitErr, bool (nixlBackendEngine::*)() const noexcept);
SAME(&nixlBackendEngine::getType, const std::string &(nixlBackendEngine::*)() const noexcept);
SAME(&nixlBackendEngine::supportsRemote, bool (nixlBackendEngine::*)() const);
SAME(&nixlBackendEngine::supportsLocal, bool (nixlBackendEngine::*)() const);
SAME(&nixlBackendEngine::supportsNotif, bool (nixlBackendEngine::*)() const);
SAME(&nixlBackendEngine::getSupportedMems, nixl_mem_list_t (nixlBackendEngine::*)() const);
METHOD(registerMem, (const nixlBlobDesc &, const nixl_mem_t &, nixlBackendMD *&));
METHOD(deregisterMem, (nixlBackendMD *));
METHOD(loadLocalMD, (nixlBackendMD *, nixlBackendMD *&));
METHOD(unloadMD, (nixlBackendMD *));
METHOD(connect, (const std::string &));
METHOD(disconnect, (const std::string &));
METHOD(prepXfer, (const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &, const std::string &,
		  nixlBackendReqH *&, const nixl_opt_b_args_t *) const);
METHOD(postXfer, (const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &, const std::string &,
		  nixlBackendReqH *&, const nixl_opt_b_args_t *) const);
METHOD(checkXfer, (nixlBackendReqH *) const);
METHOD(releaseReqH, (nixlBackendReqH *) const);
METHOD(queryMem, (const nixl_reg_dlist_t &, std::vector<nixl_query_resp_t> &) const);

static_assert(NIXL_PLUGIN_API_VERSION == 1);
SAME(nixlBackendPlugin::api_version, int);
SAME(nixlBackendPlugin::create_engine, nixlBackendEngine *(*)(const nixlBackendInitParams *));
SAME(nixlBackendPlugin::destroy_engine, void (*)(nixlBackendEngine *));
SAME(nixlBackendPlugin::get_plugin_name, const char *(*)());
SAME(nixlBackendPlugin::get_plugin_version, const char *(*)());
SAME(nixlBackendPlugin::get_backend_options, nixl_b_params_t (*)());
SAME(nixlBackendPlugin::get_backend_mems, nixl_mem_list_t (*)());
SAME(nixl_plugin_init, nixlBackendPlugin *());
SAME(nixl_plugin_fini, void());

#undef METHOD
#undef SAME

#endif
