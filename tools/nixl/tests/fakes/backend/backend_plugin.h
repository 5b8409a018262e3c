// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a plugin gives the agent that loads it: the rest of the interface that backend_engine.h has.
 */
#ifndef KVCTX_NIXL_FAKE_PLUGIN_H
#define KVCTX_NIXL_FAKE_PLUGIN_H

#include "backend/backend_engine.h"

#define NIXL_PLUGIN_API_VERSION 1
#define NIXL_PLUGIN_EXPORT __attribute__((visibility("default")))

struct nixlBackendPlugin {
	int api_version;
	nixlBackendEngine *(*create_engine)(const nixlBackendInitParams *);
	void (*destroy_engine)(nixlBackendEngine *);
	const char *(*get_plugin_name)();
	const char *(*get_plugin_version)();
	nixl_b_params_t (*get_backend_options)();
	nixl_mem_list_t (*get_backend_mems)();
};

template<class Engine> struct nixlBackendPluginCreator {
	static nixlBackendPlugin *create(int api, const char *name, const char *version, const nixl_b_params_t &options,
					 const nixl_mem_list_t &mems)
	{
		static const char *const its_name = name, *const its_version = version;
		static const nixl_b_params_t its_options = options;
		static const nixl_mem_list_t its_mems = mems;
		static nixlBackendPlugin plugin = {
			.api_version = api,
			.create_engine = [](const nixlBackendInitParams *p) -> nixlBackendEngine * { return new Engine(p); },
			.destroy_engine = [](nixlBackendEngine *engine) { delete engine; },
			.get_plugin_name = [] { return its_name; },
			.get_plugin_version = [] { return its_version; },
			.get_backend_options = [] { return its_options; },
			.get_backend_mems = [] { return its_mems; },
		};

		return &plugin;
	}
};

extern "C" {
NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init();
NIXL_PLUGIN_EXPORT void nixl_plugin_fini();
}

#endif
