// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An agent for tests: loads the plugin by its entry points, keeps what it returns beside descriptors, and calls the
 * backend in the order in which NIXL's agent does.
 *
 * A *piece* is one descriptor of a request: so many bytes of memory, and where in which object they are or belong.
 */
#ifndef KVCTX_NIXL_TEST_AGENT_H
#define KVCTX_NIXL_TEST_AGENT_H

#include <dlfcn.h>

#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "signatures.h"

using Bytes = std::vector<uint8_t>;
using Names = std::vector<std::string>;

struct Failure : std::runtime_error {
	using std::runtime_error::runtime_error;
};

template<class A, class B> void expect(const std::string &what, const A &got, const B &want)
{
	if (got == want)
		return;
	std::ostringstream text;

	text << what << ": " << got << ", not " << want;
	throw Failure(text.str());
}

// What the plugin says while this lives, which is passed on behind it
class Heard {
public:
	Heard() : former(std::cerr.rdbuf(said.rdbuf())) {}
	Heard(const Heard &) = delete;
	~Heard()
	{
		std::cerr.rdbuf(former);
		std::cerr << said.str();
	}

	void expect_word(const std::string &what, const std::string &word) const
	{
		if (said.str().find(word) == std::string::npos)
			throw Failure(what + ": \"" + said.str() + "\" does not say \"" + word + "\"");
	}

private:
	std::ostringstream said;
	std::streambuf *former;
};

class Plugin {
public:
	explicit Plugin(const char *path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL))
	{
		if (!handle)
			throw Failure(dlerror());
		table = reinterpret_cast<decltype(&nixl_plugin_init)>(symbol("nixl_plugin_init"))();
	}
	Plugin(const Plugin &) = delete;
	~Plugin()
	{
		reinterpret_cast<decltype(&nixl_plugin_fini)>(symbol("nixl_plugin_fini"))();
		dlclose(handle);
	}

	const nixlBackendPlugin *operator->() const { return table; }

private:
	void *const handle;
	nixlBackendPlugin *table;

	void *symbol(const char *name) const
	{
		void *found = dlsym(handle, name);

		return found ? found : throw Failure(dlerror());
	}
};

struct Piece {
	uint8_t *at;
	size_t len;
	std::string name;
	size_t offset = 0;
};

class Agent {
public:
	Agent(const Plugin &plugin, nixl_b_params_t params) : plugin(plugin)
	{
		nixlBackendInitParams init;

		init.localAgent = "tester";
		init.type = plugin->get_plugin_name();
		init.customParams = &params;
		engine = plugin->create_engine(&init);
		if (engine && !engine->getInitErr())
			expect("connect to itself", engine->connect("tester"), NIXL_SUCCESS);
	}
	Agent(const Agent &) = delete;
	~Agent()
	{
		if (good())
			engine->disconnect("tester");
		plugin->destroy_engine(engine);
	}

	bool good() const { return engine && !engine->getInitErr(); }
	nixlBackendEngine *operator->() const { return engine; }

private:
	const Plugin &plugin;
	nixlBackendEngine *engine;
};

// A registration
class Registered {
public:
	Registered(const Agent &agent, const nixlBlobDesc &desc, nixl_mem_t kind) : agent(agent)
	{
		expect("registration", agent->registerMem(desc, kind, given), NIXL_SUCCESS);
		expect("its local use", agent->loadLocalMD(given, md), NIXL_SUCCESS);
	}
	Registered(const Agent &agent, Bytes &memory)
		: Registered(agent, {uintptr_t(memory.data()), memory.size(), 0, ""}, DRAM_SEG)
	{
	}
	Registered(const Registered &) = delete;
	~Registered() { end(); }

	nixlBackendMD *metadata() const { return md; }

	nixl_status_t end()
	{
		if (!given)
			return NIXL_SUCCESS;
		if (md != given)
			agent->unloadMD(md);
		return agent->deregisterMem(std::exchange(given, nullptr));
	}

private:
	const Agent &agent;
	nixlBackendMD *given = nullptr, *md = nullptr;
};

// A request of pieces of one registered memory, with a registration of each object
class Transfer {
public:
	nixl_meta_dlist_t local{DRAM_SEG}, remote{OBJ_SEG};

	Transfer(const Agent &agent, nixl_xfer_op_t op, const Registered &memory, const std::vector<Piece> &pieces)
		: agent(agent), op(op)
	{
		for (const Piece &piece : pieces) {
			std::unique_ptr<Registered> &object = objects[piece.name];

			if (!object)
				object = std::make_unique<Registered>(
					agent, nixlBlobDesc(0, piece.len, objects.size(), piece.name), OBJ_SEG);
			local.addDesc({uintptr_t(piece.at), piece.len, 0, memory.metadata()});
			remote.addDesc({piece.offset, piece.len, 0, object->metadata()});
		}
	}
	Transfer(const Transfer &) = delete;
	~Transfer() { release(); }

	nixl_status_t prepare() { return agent->prepXfer(op, local, remote, "tester", handle); }
	nixl_status_t post() { return agent->postXfer(op, local, remote, "tester", handle); }
	nixl_status_t check() { return agent->checkXfer(handle); }
	nixl_status_t release() { return handle ? agent->releaseReqH(std::exchange(handle, nullptr)) : NIXL_SUCCESS; }

	// Post and see what becomes of it
	nixl_status_t run()
	{
		nixl_status_t status = post();

		for (; status == NIXL_IN_PROG; status = check())
			std::this_thread::yield();
		return status;
	}

private:
	const Agent &agent;
	const nixl_xfer_op_t op;
	std::map<std::string, std::unique_ptr<Registered>> objects;
	nixlBackendReqH *handle = nullptr;
};

inline nixl_status_t transfer(const Agent &agent, nixl_xfer_op_t op, const Registered &memory,
			      const std::vector<Piece> &pieces)
{
	Transfer request(agent, op, memory, pieces);

	expect("preparation", request.prepare(), NIXL_SUCCESS);
	return request.run();
}

// "SIZE" of each object, "-" of one that is absent
inline std::string sizes(const Agent &agent, const Names &names)
{
	nixl_reg_dlist_t descs(OBJ_SEG);
	std::vector<nixl_query_resp_t> found;
	std::string text;

	for (const std::string &name : names)
		descs.addDesc({0, 0, 0, name});
	expect("query", agent->queryMem(descs, found), NIXL_SUCCESS);
	expect("answers", found.size(), names.size());
	for (const nixl_query_resp_t &one : found)
		text += (text.empty() ? "" : " ") + (one ? one->at("size") : "-");
	return text;
}

#endif
