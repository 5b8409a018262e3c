// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What NIXL's agent looks for in libplugin_NAME.so. The name is KVCTX, or what the build was told: consumers of NIXL
 * have names of backends built in.
 */
#include <syslog.h>

#include "backend/backend_plugin.h"
#include "engine.h"

namespace {

// Why a pool is refused, and the like
void hear(void *, int priority, const char *text)
{
	if (priority <= LOG_ERR)
		NIXL_ERROR << text;
	else if (priority <= LOG_WARNING)
		NIXL_WARN << text;
}

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	kvctx_set_log(hear, nullptr);
	return nixlBackendPluginCreator<kvctx_nixl::Engine>::create(
		NIXL_PLUGIN_API_VERSION, KVCTX_NIXL_NAME, KVCTX_VERSION,
		{{"path", ""}, {"keyspace", "nixl"}, {"max_bytes", "0"}, {"entries", "1024"}},
		{DRAM_SEG, VRAM_SEG, OBJ_SEG});
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
	kvctx_set_log(nullptr, nullptr);
}
