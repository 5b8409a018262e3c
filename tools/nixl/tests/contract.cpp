// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The plugin, built with the fakes, does what NIXL's agent takes for granted, and refuses what it cannot do.
 *
 *	contract PLUGIN PATH FOLDER [HELD FILES]
 *
 * PATH is a tenant of the pool in FOLDER, which is new and this process's alone. HELD is one of a pool on a disk of
 * selftests/vm/volatile_fs.c; FILES has its process id in "pid" and what it has said in "said". Without it what needs
 * that is skipped. Prints a line for each test and ends with "contract: N passed, N failed, N skipped"; exit status 1
 * when any failed. agent.py tries more, in the agent itself.
 */
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>

#include <sys/mman.h>

#include "agent.h"

namespace {

constexpr std::chrono::seconds WATCHDOG(60);

struct Skip : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Fixture {
	const Plugin &plugin;
	const std::string path, folder, held, files, daemon, daemon_pid;	// "": there is none

	nixl_b_params_t params() const { return {{"path", path}, {"entries", "32"}}; }
};

Bytes noise(size_t len)
{
	static std::mt19937_64 random;
	Bytes bytes(len);

	for (uint8_t &byte : bytes)
		byte = uint8_t(random());
	return bytes;
}

Names names(const std::string &prefix, size_t nr)
{
	Names all;

	for (size_t i = 0; i < nr; i++)
		all.push_back(prefix + "/" + std::to_string(i));
	return all;
}

// @memory in equal parts, an object each
std::vector<Piece> parts(Bytes &memory, const Names &objects)
{
	size_t len = memory.size() / objects.size();
	std::vector<Piece> pieces;

	for (size_t i = 0; i < objects.size(); i++)
		pieces.push_back({&memory[i * len], len, objects[i]});
	return pieces;
}

void same(const Bytes &got, const Bytes &want)
{
	expect("bytes are equal", got == want, true);
}

std::string repeat(const std::string &word, size_t nr)
{
	std::string text;

	for (size_t i = 0; i < nr; i++)
		text += (i ? " " : "") + word;
	return text;
}

void test_what_an_agent_asks_first(const Fixture &f)
{
	Agent a(f.plugin, f.params());

	expect("version of the interface", f.plugin->api_version, NIXL_PLUGIN_API_VERSION);
	expect("name", std::string(f.plugin->get_plugin_name()), "KVCTX");
	expect("it has a version", std::strlen(f.plugin->get_plugin_version()) > 0, true);
	expect("an option", f.plugin->get_backend_options().at("keyspace"), "nixl");
	expect("kinds of the plugin", f.plugin->get_backend_mems() == nixl_mem_list_t{DRAM_SEG, VRAM_SEG, OBJ_SEG}, true);
	expect("kinds of the session", a->getSupportedMems() == nixl_mem_list_t{DRAM_SEG, OBJ_SEG}, true);
	expect("type", a->getType(), "KVCTX");
	expect("local", a->supportsLocal(), true);
	expect("remote", a->supportsRemote(), false);
	expect("notifications", a->supportsNotif(), false);
}

void test_100_objects_in_one_request(const Fixture &f)
{
	const Names keys = names("hundred", 100), absent = names("absent", 100);
	Bytes src = noise(100 * 5000), dst(src.size());
	Agent a(f.plugin, f.params());	// of so few entries that most have to wait
	Registered from(a, src), to(a, dst);

	expect("write", transfer(a, NIXL_WRITE, from, parts(src, keys)), NIXL_SUCCESS);
	expect("those are here", sizes(a, keys), repeat("5000", 100));
	expect("others are not", sizes(a, absent), repeat("-", 100));
	expect("read", transfer(a, NIXL_READ, to, parts(dst, keys)), NIXL_SUCCESS);
	same(dst, src);
}

void test_another_agent_finds_it(const Fixture &f)
{
	const Names keys = names("later", 8);
	Bytes src = noise(8 * 65536), dst(src.size());
	nixl_b_params_t params = f.params();

	{
		Agent a(f.plugin, params);
		Registered from(a, src);

		expect("write", transfer(a, NIXL_WRITE, from, parts(src, keys)), NIXL_SUCCESS);
	}
	{
		Agent a(f.plugin, params);
		Registered to(a, dst);

		expect("read", transfer(a, NIXL_READ, to, parts(dst, keys)), NIXL_SUCCESS);
		same(dst, src);
	}
	params["keyspace"] = "other";
	expect("not in another keyspace", sizes(Agent(f.plugin, params), keys), repeat("-", 8));
}

void test_absent_objects_are_errors(const Fixture &f)
{
	const Names keys = names("some", 2);
	Bytes memory = noise(8192);
	Agent a(f.plugin, f.params());
	Registered reg(a, memory);

	expect("nothing is here", transfer(a, NIXL_READ, reg, parts(memory, keys)), NIXL_ERR_NOT_FOUND);
	expect("write one", transfer(a, NIXL_WRITE, reg, {{&memory[0], 4096, keys[0]}}), NIXL_SUCCESS);
	expect("read both", transfer(a, NIXL_READ, reg, parts(memory, keys)), NIXL_ERR_NOT_FOUND);
	expect("read that", transfer(a, NIXL_READ, reg, {{&memory[0], 4096, keys[0]}}), NIXL_SUCCESS);
	expect("sizes", sizes(a, keys), "4096 -");
}

void test_pieces_of_one_object_become_one_page(const Fixture &f)
{
	const std::string key = "scattered";
	Bytes src = noise(20000), dst(14000), want(14000), whole(14000);
	Agent a(f.plugin, f.params());
	Registered from(a, src), to(a, dst);

	// in the object's order: the middle, the end, the beginning of the memory; told in another order
	std::copy_n(&src[5000], 3000, &whole[0]);
	std::copy_n(&src[10000], 10000, &whole[3000]);
	std::copy_n(&src[0], 1000, &whole[13000]);
	expect("write", transfer(a, NIXL_WRITE, from, {{&src[0], 1000, key, 13000}, {&src[5000], 3000, key, 0},
						       {&src[10000], 10000, key, 3000}}), NIXL_SUCCESS);
	expect("one page", sizes(a, {key}), "14000");
	expect("read in one piece", transfer(a, NIXL_READ, to, {{&dst[0], 14000, key}}), NIXL_SUCCESS);
	same(dst, whole);

	std::fill(dst.begin(), dst.end(), 0);
	std::copy_n(&whole[10], 1600, &want[0]);
	std::copy_n(&whole[9000], 500, &want[2000]);
	want[5000] = want[6000] = whole[13999];
	expect("read in others, with a gap, the end twice",
	       transfer(a, NIXL_READ, to, {{&dst[0], 700, key, 10}, {&dst[700], 900, key, 710}, {&dst[2000], 500, key, 9000},
					   {&dst[5000], 1, key, 13999}, {&dst[6000], 1, key, 13999}}), NIXL_SUCCESS);
	same(dst, want);
	expect("behind its end", transfer(a, NIXL_READ, to, {{&dst[0], 100, key, 13901}}), NIXL_ERR_MISMATCH);
}

void test_partial_writes_are_refused(const Fixture &f)
{
	const std::string key = "partial";
	Bytes src = noise(8192), dst(src.size());
	Agent a(f.plugin, f.params());
	Registered from(a, src), to(a, dst);
	const struct {
		const char *what, *word;
		std::vector<Piece> pieces;
	} refused[] = {
		{"not from the beginning", "as a whole", {{&src[0], 4096, key, 4096}}},
		{"with a gap", "gap or overlap", {{&src[0], 1000, key}, {&src[0], 1000, key, 2000}}},
		{"twice the same bytes", "gap or overlap", {{&src[0], 1000, key}, {&src[0], 1000, key, 500}}},
		{"no bytes", "no bytes", {{&src[0], 0, key}}},
		{"nothing", "no descriptors", {}},
	};

	expect("write", transfer(a, NIXL_WRITE, from, {{&src[0], 8192, key}}), NIXL_SUCCESS);
	for (const auto &r : refused) {
		Transfer request(a, NIXL_WRITE, from, r.pieces);
		Heard heard;

		expect(r.what, request.prepare(), NIXL_ERR_INVALID_PARAM);
		heard.expect_word(r.what, r.word);
	}
	expect("read", transfer(a, NIXL_READ, to, {{&dst[0], 8192, key}}), NIXL_SUCCESS);
	same(dst, src);
}

void test_sides_that_do_not_fit_are_refused(const Fixture &f)
{
	Bytes memory = noise(8192);
	Agent a(f.plugin, f.params());
	Registered reg(a, memory);
	Transfer fits(a, NIXL_READ, reg, {{&memory[0], 4096, "sides"}});
	nixl_meta_dlist_t longer(DRAM_SEG), more(DRAM_SEG);
	nixlBackendReqH *handle = nullptr;
	Heard heard;

	longer.addDesc({uintptr_t(&memory[0]), 4097, 0, reg.metadata()});
	more.addDesc(fits.local[0]);
	more.addDesc(fits.local[0]);
	for (const auto &[local, remote] : {std::pair(&fits.local, &fits.local), std::pair(&fits.remote, &fits.remote),
					    std::pair(&fits.remote, &fits.local), std::pair(&longer, &fits.remote),
					    std::pair(&more, &fits.remote)})
		expect("preparation", a->prepXfer(NIXL_READ, *local, *remote, "tester", handle), NIXL_ERR_INVALID_PARAM);
	expect("there is no request", handle, nullptr);
}

void test_overwriting_replaces(const Fixture &f)
{
	const std::string key = "again";
	Bytes src, dst(8192);
	Agent a(f.plugin, f.params());
	Registered to(a, dst);

	for (int i = 0; i < 3; i++) {
		src = noise(8192);
		Registered from(a, src);

		expect("write", transfer(a, NIXL_WRITE, from, {{&src[0], 8192, key}}), NIXL_SUCCESS);
		expect("read", transfer(a, NIXL_READ, to, {{&dst[0], 8192, key}}), NIXL_SUCCESS);
		same(dst, src);
	}
	expect("write fewer", transfer(a, NIXL_WRITE, to, {{&dst[0], 100, key}}), NIXL_SUCCESS);
	expect("fewer are there", sizes(a, {key}), "100");
	expect("read as many as before", transfer(a, NIXL_READ, to, {{&dst[0], 8192, key}}), NIXL_ERR_MISMATCH);
}

void test_a_request_can_be_posted_again(const Fixture &f)
{
	const Names keys = names("repost", 4);
	Bytes src(4 * 4096), dst(src.size());
	Agent a(f.plugin, f.params());
	Registered from(a, src), to(a, dst);
	Transfer put(a, NIXL_WRITE, from, parts(src, keys)), get(a, NIXL_READ, to, parts(dst, keys));

	expect("preparation", put.prepare(), NIXL_SUCCESS);
	expect("preparation", get.prepare(), NIXL_SUCCESS);
	for (int i = 0; i < 3; i++) {
		Bytes fresh = noise(src.size());

		std::copy(fresh.begin(), fresh.end(), src.begin());
		expect("write", put.run(), NIXL_SUCCESS);
		expect("read", get.run(), NIXL_SUCCESS);
		same(dst, fresh);
	}
	expect("memory of a request that has ended can be deregistered", from.end(), NIXL_SUCCESS);
	expect("release behind that", put.release(), NIXL_SUCCESS);
}

void test_names_of_objects(const Fixture &f)
{
	Bytes memory = noise(4096);
	Agent a(f.plugin, f.params());
	Registered reg(a, memory), object(a, {0, 4096, 4711, ""}, OBJ_SEG);
	nixl_meta_dlist_t local(DRAM_SEG), remote(OBJ_SEG);
	nixlBackendReqH *handle = nullptr;
	nixl_reg_dlist_t files(FILE_SEG);
	std::vector<nixl_query_resp_t> found;
	nixl_status_t status;

	local.addDesc({uintptr_t(&memory[0]), 4096, 0, reg.metadata()});
	remote.addDesc({0, 4096, 4711, object.metadata()});
	expect("preparation", a->prepXfer(NIXL_WRITE, local, remote, "tester", handle), NIXL_SUCCESS);
	for (status = a->postXfer(NIXL_WRITE, local, remote, "tester", handle); status == NIXL_IN_PROG;)
		status = a->checkXfer(handle);
	expect("write", status, NIXL_SUCCESS);
	expect("release", a->releaseReqH(handle), NIXL_SUCCESS);
	expect("the number is the name of one without", sizes(a, {"4711", "471"}), "4096 -");
	expect("a name of any length", sizes(a, {std::string(100000, 'x')}), "-");
	expect("only objects have names", a->queryMem(files, found), NIXL_ERR_NOT_SUPPORTED);
	expect("no names", sizes(a, {}), "");
}

void test_other_kinds_of_memory_are_refused(const Fixture &f)
{
	Agent a(f.plugin, f.params());
	Bytes area(4096);

	for (const auto &[kind, word] : {std::pair(BLK_SEG, "pages have names"), std::pair(FILE_SEG, "are no files"),
					 std::pair(VRAM_SEG, "kernel module")}) {
		nixlBackendMD *md = nullptr;
		Heard heard;

		expect(word, a->registerMem({uintptr_t(&area[0]), area.size(), 0, ""}, kind, md), NIXL_ERR_NOT_SUPPORTED);
		heard.expect_word("the reason", word);
		expect("there is no registration", md, nullptr);
	}
}

void test_memory_that_is_not_there_is_refused(const Fixture &f)
{
	Agent a(f.plugin, f.params());
	void *nothing = mmap(nullptr, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	nixlBackendMD *md = nullptr;
	Heard heard;

	expect("registration", a->registerMem({uintptr_t(nothing), 65536, 0, ""}, DRAM_SEG, md), NIXL_ERR_INVALID_PARAM);
	heard.expect_word("the reason", "cannot be registered");
	munmap(nothing, 65536);
}

void test_damage_on_media_is_an_error(const Fixture &f)
{
	const Names keys = names("spoilt", 3);
	const std::string member = f.folder + "/member0";
	Bytes memory = noise(3 * 65536), medium(std::filesystem::file_size(member));
	std::fstream file(member, std::ios::binary | std::ios::in | std::ios::out);
	Agent a(f.plugin, f.params());
	Registered reg(a, memory);

	expect("write", transfer(a, NIXL_WRITE, reg, parts(memory, keys)), NIXL_SUCCESS);
	file.read(reinterpret_cast<char *>(medium.data()), std::streamsize(medium.size()));
	auto at = std::search(medium.begin(), medium.end(), std::boyer_moore_searcher(&memory[66000], &memory[66064]));
	expect("the page is on the medium", at != medium.end(), true);
	file.seekp(at - medium.begin());
	file << "spoilt" << std::flush;
	expect("read", transfer(a, NIXL_READ, reg, parts(memory, keys)), NIXL_ERR_NOT_FOUND);
	expect("it is gone, the others are not", sizes(a, keys), "65536 - 65536");
}

// Post and release at once, until one was seen in flight
void release_in_flight(const Agent &a, nixl_xfer_op_t op, const Registered &reg, const std::vector<Piece> &pieces)
{
	for (int i = 0; i < 100; i++) {
		Transfer request(a, op, reg, pieces);

		expect("preparation", request.prepare(), NIXL_SUCCESS);
		bool flying = request.post() == NIXL_IN_PROG;
		expect("release", request.release(), NIXL_SUCCESS);
		if (flying)
			return;
	}
	throw Failure("no request was seen in flight");
}

void test_release_in_flight(const Fixture &f)
{
	const Names keys = names("released", 40);
	Bytes memory = noise(40 << 18);
	const Bytes still(memory.size(), 0x5a);
	Agent a(f.plugin, f.params());
	Registered reg(a, memory);

	expect("write", transfer(a, NIXL_WRITE, reg, parts(memory, keys)), NIXL_SUCCESS);
	for (nixl_xfer_op_t op : {NIXL_READ, NIXL_WRITE, NIXL_READ})
		release_in_flight(a, op, reg, parts(memory, keys));
	expect("deregistration, which waits", reg.end(), NIXL_SUCCESS);
	memory = still;
	std::this_thread::sleep_for(std::chrono::milliseconds(200));
	same(memory, still);
	Registered again(a, memory);
	expect("the session goes on", transfer(a, NIXL_WRITE, again, parts(memory, keys)), NIXL_SUCCESS);
}

void test_released_with_the_agent(const Fixture &f)
{
	const Names keys = names("abandoned", 40);
	Bytes memory = noise(40 << 18);
	nixlBackendMD *md = nullptr;

	{
		Agent a(f.plugin, f.params());
		Registered reg(a, memory);

		release_in_flight(a, NIXL_WRITE, reg, parts(memory, keys));
	}
	Agent a(f.plugin, f.params());
	expect("another session goes on",
	       a->registerMem({uintptr_t(&memory[0]), memory.size(), 0, ""}, DRAM_SEG, md), NIXL_SUCCESS);
	expect("deregistration", a->deregisterMem(md), NIXL_SUCCESS);
}

void test_threads_share_an_agent(const Fixture &f)
{
	Agent a(f.plugin, f.params());
	std::vector<std::thread> threads;
	std::vector<std::string> failures(4);

	auto work = [&a](int nr) {
		const Names keys = names("thread" + std::to_string(nr), 20);
		Bytes src(20 * 9000), dst(src.size());
		Registered from(a, src), to(a, dst);

		for (int round = 0; round < 10; round++) {
			std::fill(src.begin(), src.end(), uint8_t(nr * 10 + round));
			expect("write", transfer(a, NIXL_WRITE, from, parts(src, keys)), NIXL_SUCCESS);
			expect("sizes", sizes(a, keys), repeat("9000", 20));
			expect("read", transfer(a, NIXL_READ, to, parts(dst, keys)), NIXL_SUCCESS);
			same(dst, src);
		}
	};
	for (int nr = 0; nr < 4; nr++)
		threads.emplace_back([&, nr] {
			try {
				work(nr);
			} catch (const std::exception &e) {
				failures[size_t(nr)] = e.what();
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	for (const std::string &failure : failures)
		expect("failure", failure, "");
}

void test_parameters(const Fixture &f)
{
	const std::string made = f.folder + "/../made";
	const struct {
		nixl_b_params_t params;
		const char *word;
	} refused[] = {
		{{{"bucket", "kv"}}, "no path"},
		{{{"path", "/nowhere/kv0/default"}}, "/nowhere"},
		{{{"path", f.path}, {"entries", "many"}}, "whole numbers"},
		{{{"path", f.path}, {"max_bytes", "-1"}}, "whole numbers"},
	};

	for (const auto &r : refused) {
		Heard heard;

		expect(r.word, Agent(f.plugin, r.params).good(), false);
		heard.expect_word("the reason", r.word);
	}
	expect("a bucket", Agent(f.plugin, {{"bucket", f.path}, {"endpoint_override", ""}}).good(), true);
	setenv("KVCTX_NIXL_PATH", f.path.c_str(), 1);
	expect("the environment", Agent(f.plugin, {{"bucket", "kv"}}).good(), true);
	unsetenv("KVCTX_NIXL_PATH");
	expect("a pool is made", Agent(f.plugin, {{"path", made + "/default"}, {"max_bytes", "16777216"}}).good(), true);
	expect("it is there", Agent(f.plugin, {{"path", made + "/default"}}).good(), true);
}

// A process does not answer from the beginning to let_go(), which a watchdog calls if nobody else does
class Held {
public:
	Held(pid_t pid, int hold, int let_go, std::function<bool()> holds) : holds(holds), pid(pid), let_go_by(let_go)
	{
		tell(hold, true);
		watchdog = std::thread([this] { watch(); });
	}
	Held(const Held &) = delete;
	~Held()
	{
		let_go();
		{
			std::lock_guard guard(lock);

			over = true;
		}
		ends.notify_one();
		watchdog.join();
	}

	const std::function<bool()> holds;

	void let_go()
	{
		std::lock_guard guard(lock);

		if (holds())
			tell(let_go_by, false);
	}

private:
	const pid_t pid;
	const int let_go_by;
	std::thread watchdog;
	std::mutex lock;	// of what follows, and let_go()
	std::condition_variable ends;
	bool over = false;

	void watch()
	{
		std::unique_lock guard(lock);

		if (!ends.wait_for(guard, WATCHDOG, [this] { return over; }) && holds())
			tell(let_go_by, false);
	}

	void tell(int signal, bool held) const
	{
		if (kill(pid, signal))
			throw Failure("it is gone");
		while (holds() != held)
			std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
};

pid_t pid_in(const std::string &path)
{
	pid_t pid = 0;

	std::ifstream(path) >> pid;
	return pid;
}

Held hold_disk(const Fixture &f)
{
	return Held(pid_in(f.files + "/pid"), SIGUSR1, SIGUSR2, [path = f.files + "/said"] {
		std::ifstream file(path);
		std::string line, last;

		while (std::getline(file, line))
			last = line;
		return last == "held";
	});
}

Held stop_kvctxd(const Fixture &f)
{
	pid_t pid = pid_in(f.daemon_pid);

	return Held(pid, SIGSTOP, SIGCONT, [path = "/proc/" + std::to_string(pid) + "/stat"] {
		std::ifstream file(path);
		std::string line;

		std::getline(file, line);
		return line.find(") T ") != std::string::npos;
	});
}

// Nothing ends while the disk is held: a call that waited for that would return when the watchdog has let go, which is seen
void test_release_while_the_disk_does_not_answer(const Fixture &f)
{
	const Names keys = names("held", 200);
	Bytes memory = noise(200 << 16);

	if (f.held.empty())
		throw Skip("there is no disk that can be held");
	Agent a(f.plugin, {{"path", f.held}, {"entries", "128"}});
	Registered reg(a, memory);
	expect("write", transfer(a, NIXL_WRITE, reg, parts(memory, keys)), NIXL_SUCCESS);
	Held held = hold_disk(f);
	for (nixl_xfer_op_t op : {NIXL_READ, NIXL_WRITE, NIXL_READ}) {
		Transfer request(a, op, reg, parts(memory, keys));

		expect("preparation", request.prepare(), NIXL_SUCCESS);
		expect("post", request.post(), NIXL_IN_PROG);
		expect("state", request.check(), NIXL_IN_PROG);
		expect("another post", request.post(), NIXL_ERR_REPOST_ACTIVE);
		expect("release", request.release(), NIXL_SUCCESS);
	}
	expect("the disk is still held", held.holds(), true);
	// as long as it may write to the memory that cannot be deregistered
	std::thread later([&held] {
		std::this_thread::sleep_for(std::chrono::milliseconds(500));
		held.let_go();
	});
	nixl_status_t status = reg.end();
	bool waited = !held.holds();

	later.join();
	expect("deregistration", status, NIXL_SUCCESS);
	expect("it has waited", waited, true);
}

// Another thread waits for kvctxd meanwhile: to deregister memory
void test_release_while_kvctxd_does_not_answer(const Fixture &f)
{
	const Names keys = names("stopped", 8);
	Bytes memory = noise(8 << 16), other = noise(8 << 16);
	nixl_status_t status = NIXL_ERR_BACKEND;

	if (f.daemon.empty())
		throw Skip("there is no kvctxd");
	Agent a(f.plugin, {{"path", f.daemon}, {"entries", "128"}});
	Registered reg(a, memory), leaving(a, other);
	expect("write", transfer(a, NIXL_WRITE, reg, parts(memory, keys)), NIXL_SUCCESS);
	Transfer stays(a, NIXL_READ, reg, parts(memory, keys)), leaves(a, NIXL_READ, leaving, parts(other, keys));
	expect("preparation", stays.prepare(), NIXL_SUCCESS);
	expect("preparation", leaves.prepare(), NIXL_SUCCESS);
	Held held = stop_kvctxd(f);
	expect("post", stays.post(), NIXL_IN_PROG);
	expect("post", leaves.post(), NIXL_IN_PROG);
	expect("release", leaves.release(), NIXL_SUCCESS);
	std::thread deregisters([&] { status = leaving.end(); });
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	nixl_status_t released = stays.release();
	bool waited = !held.holds();
	held.let_go();
	deregisters.join();
	expect("release", released, NIXL_SUCCESS);
	expect("it has waited", waited, false);
	expect("deregistration", status, NIXL_SUCCESS);
	expect("deregistration", reg.end(), NIXL_SUCCESS);
}

const struct {
	const char *what;
	void (*run)(const Fixture &);
} tests[] = {
#define TEST(name) {#name, test_##name}
	TEST(what_an_agent_asks_first),
	TEST(100_objects_in_one_request),
	TEST(another_agent_finds_it),
	TEST(absent_objects_are_errors),
	TEST(pieces_of_one_object_become_one_page),
	TEST(partial_writes_are_refused),
	TEST(sides_that_do_not_fit_are_refused),
	TEST(overwriting_replaces),
	TEST(a_request_can_be_posted_again),
	TEST(names_of_objects),
	TEST(other_kinds_of_memory_are_refused),
	TEST(memory_that_is_not_there_is_refused),
	TEST(damage_on_media_is_an_error),
	TEST(release_in_flight),
	TEST(released_with_the_agent),
	TEST(threads_share_an_agent),
	TEST(parameters),
	TEST(release_while_the_disk_does_not_answer),
	TEST(release_while_kvctxd_does_not_answer),
#undef TEST
};

// What became of one: 'p', 'f' or 's'
char run(const std::string &name, void (*test)(const Fixture &), const Fixture &f)
{
	std::string what = name;

	std::replace(what.begin(), what.end(), '_', ' ');
	try {
		test(f);
	} catch (const Skip &why) {
		std::cout << "skipped " << what << ": " << why.what() << std::endl;
		return 's';
	} catch (const std::exception &e) {
		std::cout << "not ok " << what << ": " << e.what() << std::endl;
		return 'f';
	}
	std::cout << "ok " << what << std::endl;
	return 'p';
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 8) {
		std::cerr << "usage: contract PLUGIN PATH FOLDER HELD FILES SOCKET PID-FILE\n";
		return 2;
	}
	Plugin plugin(argv[1]);
	const Fixture f{plugin, argv[2], argv[3], argv[4], argv[5], argv[6], argv[7]};
	std::map<char, int> counts;

	for (const auto &test : tests)
		counts[run(test.what, test.run, f)]++;
	std::cout << "contract: " << counts['p'] << " passed, " << counts['f'] << " failed, " << counts['s'] << " skipped"
		  << std::endl;
	return counts['f'] != 0;
}
