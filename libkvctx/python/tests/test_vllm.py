# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx.vllm against small fakes of vLLM's classes (fakes/vllm), and tensors that are plain memory.

A page in these tests is a chunk of two blocks, a block two layers of 4,096 and 2,048 bytes.
"""
import ctypes
import errno
import os
import signal
import sys
import textwrap
import threading
import time
from array import array
from types import SimpleNamespace

import pytest
from conftest import python, until
from kvctxd import Daemon

import kvctx

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "fakes"))
if "vllm" not in sys.modules:
    import vllm as fake
    if hasattr(fake, "install"):
        fake.install()
import vllm as fake  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(fake, "install"), reason="vLLM itself is here: see engines/vllm.sh")

BLOCKS, SIZES = 16, (4096, 2048)
CHUNK = 2 * sum(SIZES)
STAGES = SimpleNamespace(rank=0, world_size=1, tp_size=1, pp_size=2, pcp_size=1, dcp_size=1)


def key(n, group=0):
    return fake.make_offload_key(bytes([n]) * 32, group)


class Tensor:
    """The blocks of a layer: int8, (BLOCKS, size), with room behind each block."""

    def __init__(self, size):
        self.size, self.memory = size, bytearray((size + 64) * BLOCKS)
        self.device = SimpleNamespace(type="cpu")

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def stride(self, dim):
        return self.size + 64

    def element_size(self):
        return 1

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=self.data_ptr, nbytes=lambda: len(self.memory))

    def block(self, b, value=None):
        at = b * (self.size + 64)
        if value is not None:
            self.memory[at:at + self.size] = bytes([value]) * self.size
        return set(self.memory[at:at + self.size])


class KvCaches:
    def __init__(self, groups=1):
        self.tensors = [SimpleNamespace(tensor=Tensor(size)) for size in SIZES]
        refs = [SimpleNamespace(tensor_idx=n, page_size_bytes=size) for n, size in enumerate(SIZES)]
        self.group_data_refs = [refs] * groups

    def fill(self, block, value):
        for t in self.tensors:
            t.tensor.block(block, value)

    def values(self, block):
        return set().union(*(t.tensor.block(block) for t in self.tensors))


def config(path, **changes):
    groups = changes.pop("groups", 1)
    rank, world, events = changes.pop("rank", 0), changes.pop("world", 1), changes.pop("events", False)
    c = SimpleNamespace(
        groups=[SimpleNamespace(group_id=g, tokens_per_block=16, layer_names=("a", "b")) for g in range(groups)],
        worker_kv_bytes_per_block=sum(SIZES), enable_kv_cache_events=events, extra_config={"path": path},
        model=SimpleNamespace(name="m", dtype="bfloat16"), kv_cache_layout="LBHNC",
        cache=SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=2), canonical_layout=False, replicated_layout=False,
        parallel=SimpleNamespace(rank=rank, world_size=world, tp_size=world, pp_size=1, pcp_size=1, dcp_size=1))
    c.extra_config.update(changes.pop("extra", {}))
    for name, value in changes.items():
        setattr(c, name, value)
    return c


def gpu(blocks, first=0, sizes=None, indices=None):
    """A GPULoadStoreSpec; array has tolist(), as numpy's arrays have."""
    return SimpleNamespace(block_ids=array("i", blocks), group_sizes=sizes or [len(blocks)],
                           block_indices=indices or [first])


class Engine:
    """Manager and worker of one spec, and what vLLM's scheduler does with them."""

    def __init__(self, path, **changes):
        from kvctx.vllm import KvctxOffloadingSpec
        self.caches = changes.pop("caches", None) or KvCaches(changes.get("groups", 1))
        self.spec = KvctxOffloadingSpec(config(path, **changes))
        self.worker, self.manager = self.spec.get_worker(self.caches), self.spec.get_manager()
        self.jobs = 0

    def lookup(self, keys, request="r"):
        """Results, after as many steps as it takes: few, where kvctxd does not have to be waited for."""
        context, waits = fake.ReqContext(request), self.manager._link.session is None or self.backend() == "daemon"
        end, steps = time.monotonic() + 60, 0
        while time.monotonic() < end if waits else steps < 3:
            found = [self.manager.lookup(k, context) for k in keys]
            if fake.LookupResult.RETRY not in found:
                return found
            self.step()
            steps += 1
            time.sleep(0.01 if waits else 0)
        raise AssertionError("no answer")

    def backend(self):
        return self.manager._link.session.info.backend

    def step(self):
        self.manager.on_schedule_end(None)

    def store(self, keys, place, request="r"):
        context = fake.ReqContext(request, {k: 32 * (n + 1) for n, k in enumerate(keys)})
        output = self.manager.prepare_store(keys, context)
        self.jobs += 1
        assert self.worker.submit_store(self.jobs, place, output.store_spec)
        result = self.finish()
        self.manager.complete_store(output.keys_to_store, context)
        return result

    def load(self, keys, place, request="r"):
        context = fake.ReqContext(request)
        pages = self.manager.prepare_load(keys, context)
        self.jobs += 1
        assert self.worker.submit_load(self.jobs, pages, place)
        result = self.finish()
        self.manager.complete_load(keys, context)
        return result

    def finish(self):
        self.worker.wait({self.jobs})
        (result,) = self.worker.get_finished()
        assert result.job_id == self.jobs
        return result

    def end(self):
        self.worker.shutdown()
        self.manager.shutdown()


@pytest.fixture
def path(pool):
    return os.path.join(pool.path, "default")


@pytest.fixture
def make(path):
    engines = []

    def make(**changes):
        engines.append(Engine(path, **changes))
        return engines[-1]

    yield make
    for engine in engines:
        engine.end()


@pytest.fixture
def clock(monkeypatch):
    """By .now, seconds, answers are late: it goes on when the test says so."""
    from kvctx.vllm import announcer, asker, finder
    clock = SimpleNamespace(now=1000.0)
    for module in announcer, asker, finder:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


HIT, MISS, RETRY = fake.LookupResult.HIT, fake.LookupResult.MISS, fake.LookupResult.RETRY


def test_stored_by_one_engine_and_loaded_by_another(make):
    one, keys = make(), [key(1), key(2)]
    assert one.lookup(keys) == [MISS, MISS]
    for b in range(4):
        one.caches.fill(b, 10 + b)
    result = one.store(keys, gpu([0, 1, 2, 3]))
    assert (result.success, result.transfer_size) == (True, 2 * CHUNK)
    two = make()
    assert two.manager.lookup(keys[0], fake.ReqContext("x")) is RETRY, "nothing waits in a lookup"
    assert two.lookup(keys + [key(3)], "x") == [HIT, HIT, MISS]
    assert two.load(keys, gpu([9, 5, 7, 2]), "x").success
    assert [two.caches.values(b) for b in (9, 5, 7, 2)] == [{10}, {11}, {12}, {13}]
    assert two.caches.values(3) == {0}


def test_part_of_a_chunk_is_loaded(make):
    one = make()
    for b in range(4):
        one.caches.fill(b, 10 + b)
    one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    assert one.load([key(1), key(2)], gpu([8, 9, 10], first=1)).success
    assert [one.caches.values(b) for b in (8, 9, 10)] == [{11}, {12}, {13}]
    assert one.load([key(1)], gpu([12], first=0)).success, "the first half"
    assert one.caches.values(12) == {10}


def test_part_of_a_chunk_is_not_stored(make):
    one = make()
    result = one.store([key(1), key(2)], gpu([1, 2, 3], first=1))
    assert (result.success, result.transfer_size) == (True, CHUNK)
    assert one.lookup([key(1), key(2)]) == [MISS, HIT]


def test_groups_have_pages_of_their_own(make):
    one = make(groups=2)
    for b in range(4):
        one.caches.fill(b, 10 + b)
    keys = [key(1, 0), key(1, 1)]
    assert one.store(keys, gpu([0, 1, 2, 3], sizes=[2, 2], indices=[0, 0])).success
    assert one.load(keys, gpu([4, 5, 6, 7], sizes=[2, 2], indices=[0, 0])).success
    assert [one.caches.values(b) for b in range(4, 8)] == [{10}, {11}, {12}, {13}]
    wrong = one.load([key(1, 1), key(1, 0)], gpu([4, 5, 6, 7], sizes=[2, 2], indices=[0, 0]))
    assert not wrong.success, "keys that do not fit the blocks move nothing"


@pytest.mark.parametrize("changes", [
    {"kv_cache_layout": "BLHNC"}, {"world": 2}, {"extra": {"keyspace": "other weights"}},
    {"model": SimpleNamespace(name="m", dtype="fp8")},
    {"cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1)}])
def test_another_layout_finds_nothing(make, changes):
    make().store([key(1)], gpu([0, 1]))
    assert make(**changes).lookup([key(1)]) == [MISS]
    assert make().lookup([key(1)]) == [HIT]


def test_another_partition_of_layers_finds_nothing(make, monkeypatch):
    """Which layers a stage of a pipeline has is also for the user to say, and a page does not tell."""
    make(parallel=STAGES).store([key(1)], gpu([0, 1]))
    assert make(parallel=STAGES).lookup([key(1)]) == [HIT]
    monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", "1,3")
    assert make(parallel=STAGES).lookup([key(1)]) == [MISS]


def shaped(stages=2, **changes):
    """Changes of config() for an engine with KvctxConnector and such a VllmConfig."""
    from kvctx.vllm import KvctxConnector
    transfer = SimpleNamespace(kv_connector_extra_config={}, kv_load_failure_policy="recompute")
    changes = {"parallel_config": fake.ParallelConfig(stages), **changes}
    KvctxConnector(fake.VllmConfig(transfer, **changes), None, SimpleNamespace(kv_cache_groups=[None]))
    return {"extra": transfer.kv_connector_extra_config, **({"parallel": STAGES} if stages > 1 else {})}


def overriding(theta):
    def override(config):
        config.values["rope_theta"] = theta
        return config
    return override


EAGLE = fake.SpeculativeConfig("eagle3", fake.ModelConfig("draft", 1))


@pytest.mark.parametrize("changes", [
    {"speculative_config": EAGLE},
    {"speculative_config": fake.SpeculativeConfig("eagle3", fake.ModelConfig("draft", 2))},
    {"speculative_config": fake.SpeculativeConfig("eagle3", fake.ModelConfig("another", 1))},
    {"speculative_config": fake.SpeculativeConfig("eagle3", fake.ModelConfig("draft", 1), "fp8")},
    {"speculative_config": fake.SpeculativeConfig("suffix")},
    {"model_config": fake.ModelConfig(layers=5)},
    {"model_config": fake.ModelConfig(hf_overrides={"num_hidden_layers": 4})},
    {"model_config": fake.ModelConfig(hf_overrides=overriding(1e6))}])
def test_stages_with_other_layers_find_nothing(make, changes):
    """No stage of a pipeline knows the others' layers: a draft model's are the last one's."""
    make(**shaped()).store([key(1)], gpu([0, 1]))
    assert make(**shaped(**changes)).lookup([key(1)]) == [MISS]
    assert make(**shaped()).lookup([key(1)]) == [HIT]
    make(**shaped(**changes)).store([key(2)], gpu([0, 1]))
    assert make(**shaped(**changes)).lookup([key(2)]) == [HIT], "the same in every process"


def test_overrides_of_a_model_count_without_stages_too(make):
    make(**shaped(1)).store([key(1)], gpu([0, 1]))
    other = fake.ModelConfig(hf_overrides={"rope_theta": 1e6})
    assert make(**shaped(1, model_config=other)).lookup([key(1)]) == [MISS]
    assert make(**shaped(1, speculative_config=fake.SpeculativeConfig("suffix"))).lookup([key(1)]) == [HIT], (
        "layers tell")


@pytest.mark.parametrize("changes,found", [({"quantization": "fp8"}, MISS), ({"revision": "v2"}, MISS),
                                           ({"revision": "main"}, HIT)])
def test_other_weights_of_a_model_of_the_same_name_find_nothing(make, changes, found):
    make(**shaped(1)).store([key(1)], gpu([0, 1]))
    assert make(**shaped(1, model_config=fake.ModelConfig(**changes))).lookup([key(1)]) == [found]
    assert make(**shaped(1)).lookup([key(1)]) == [HIT]


def test_functions_that_override_are_told_apart_by_what_they_do(make):
    make(**shaped(1, model_config=fake.ModelConfig(hf_overrides=overriding(1e5)))).store([key(1)], gpu([0, 1]))
    for theta, found in ((1e6, MISS), (1e5, HIT)):
        other = fake.ModelConfig(hf_overrides=overriding(theta))
        assert make(**shaped(1, model_config=other)).lookup([key(1)]) == [found]


def test_page_of_another_length_is_dropped_and_stored_anew(make, monkeypatch):
    """vLLM's own connector does not tell of layers, so a stage's page may be longer than it should be, or shorter."""
    right = make(parallel=STAGES)
    monkeypatch.setattr(sys.modules[__name__], "SIZES", (4096, 2048, 1024))
    longer = make(parallel=STAGES)
    monkeypatch.setattr(sys.modules[__name__], "SIZES", (4096,))
    shorter = make(parallel=STAGES)
    keys = [key(n) for n in range(4)]
    for one, value, n in ((right, 10, 0), (longer, 20, 1), (right, 30, 2), (shorter, 40, 3)):
        one.caches.fill(0, value)
        one.caches.fill(1, value)
        one.store([keys[n]], gpu([0, 1]))
    right.worker.failures_wanted = True
    assert right.lookup(keys) == [HIT] * 4
    right.load(keys, gpu([4, 5, 6, 7, 8, 9, 10, 11]))
    assert right.worker.failed_loads() == {right.jobs: {6, 7, 10, 11}}
    assert [right.caches.values(b) for b in range(4, 12)] == [{10}] * 2 + [{0}] * 2 + [{30}] * 2 + [{0}] * 2
    assert right.lookup(keys, "s") == [HIT, MISS, HIT, MISS], "dropped"
    right.store([keys[1]], gpu([0, 1]))
    right.load([keys[1]], gpu([6], first=1))
    assert right.worker.failed_loads() == {} and right.caches.values(6) == {30}, "a part of it, too"


def test_page_that_has_gone_is_told_where_lengths_are_compared(make):
    one = make(parallel=STAGES)
    one.worker.failures_wanted = True
    one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    lose(one, key(2))
    one.load([key(1), key(2)], gpu([4, 5, 6, 7]))
    assert one.worker.failed_loads() == {one.jobs: {6, 7}}


def test_server_goes_where_lengths_are_compared(daemon):
    one = Engine(os.path.join(daemon.pool.path, "default"), parallel=STAGES)
    one.worker.failures_wanted = True
    one.store([key(1)], gpu([0, 1]))
    assert one.load([key(1)], gpu([2, 3])).success and one.worker.failed_loads() == {}
    daemon.end(9)
    one.load([key(1)], gpu([4, 5]))
    assert one.worker.failed_loads() == {one.jobs: {4, 5}} and one.worker._link.session is None
    one.load([key(1)], gpu([4, 5]))
    assert one.worker.failed_loads() == {one.jobs: {4, 5}}
    one.end()


@pytest.mark.parametrize("what", ["submit_query", "submit_load_packed", "cut", "lost"])
def test_job_ends_whatever_fails_where_lengths_are_compared(make, monkeypatch, what):
    """Also in the session's thread, where nobody hears of what is raised."""
    from kvctx.vllm.transfers import Part

    def fails(*_, **__):
        raise MemoryError

    one, keys = make(parallel=STAGES), [key(1), key(2)]
    one.worker.failures_wanted = True
    one.store(keys, gpu([0, 1, 2, 3]))
    if what == "cut":
        lose(one, key(2))
    monkeypatch.setattr({"cut": Part, "lost": one.worker._link}.get(what, kvctx.Session), what, fails)
    if what == "lost":
        monkeypatch.setattr(kvctx.Session, "submit_query", lambda *_: kvctx.operation.done(lambda: [-errno.ENODEV] * 2))
    pages = one.manager.prepare_load(keys, fake.ReqContext("r"))
    one.worker.submit_load(77, pages, gpu([4, 5, 6, 7]))
    job = one.worker._transfers._jobs[77]
    assert job.done.wait(20), "it never ends"
    one.worker.get_finished()
    assert one.worker.failed_loads() == {77: {4, 5, 6, 7}}


def test_chunk_is_there_when_all_ranks_have_it(make):
    one, two = make(world=2, rank=0), make(world=2, rank=1)
    one.store([key(1)], gpu([0, 1]))
    assert one.lookup([key(1)]) == [MISS]
    two.store([key(1)], gpu([0, 1]))
    assert one.lookup([key(1)], "later") == [HIT]


def test_rank_0_stores_for_all_where_they_are_alike(make):
    one, two = make(world=2, replicated_layout=True), make(world=2, rank=1, replicated_layout=True)
    one.caches.fill(0, 7)
    one.store([key(1)], gpu([0, 1]))
    assert two.lookup([key(1)]) == [HIT]
    assert two.load([key(1)], gpu([4, 5])).success and two.caches.values(4) == {7}


@pytest.mark.process
def test_found_stays_until_loaded(tmp_path):
    """In a pool for some chunks, one that was found outlives many that are stored after it, and one that was loaded,
    or that nobody waits for any more, does not."""
    kvctx.create_pool(tmp_path / "small", 20 << 18, segment_bytes=1 << 18)
    one = Engine(os.path.join(tmp_path, "small", "default"))
    with kvctx.Session(one.spec._options.path, keyspace=one.spec._described) as s:
        one.caches.fill(0, 7)
        one.store([key(0)], gpu([0, 1]))
        s.store([f"between {n}" for n in range(25)], [bytes(CHUNK)] * 25)  # segments are kept as a whole
        one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
        for n in range(3):
            assert one.lookup([key(n)], f"request {n}") == [HIT]
        one.manager.on_request_finished(fake.ReqContext("request 1"))
        assert one.load([key(2)], gpu([6, 7]), "request 2").success
        for n in range(1000):
            s.store([f"other {n}"], [bytes(CHUNK)])
            s.match([f"other {m}" for m in range(n - 40, n + 1)])  # used as much as those that were found
    assert [one.lookup([key(n)], "later")[0] for n in (1, 2)] == [MISS, MISS]
    assert one.load([key(0)], gpu([8, 9]), "request 0").success and one.caches.values(8) == {7}
    one.end()


def lose(engine, k):
    """Drop the page of a chunk behind an engine's back."""
    from kvctx.vllm.keys import page_keys
    engine.worker._link.session.delete(page_keys([k], [0])).check()


def test_load_that_fails_ends_the_job_of_a_stock_connector(make):
    one = make()
    one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    lose(one, key(1))
    assert not one.load([key(1), key(2)], gpu([4, 5, 6, 7])).success
    assert one.worker.failed_loads() == {}


class GpuCaches:
    """As KvCaches, of a device; of two groups each has a layer."""

    def __init__(self, device, groups=1):
        tensors = [device.rows(BLOCKS, size, 64) for size in SIZES]
        device.PeerSession.begin(tensors)
        self.tensors = [SimpleNamespace(tensor=t) for t in tensors]
        refs = [SimpleNamespace(tensor_idx=n, page_size_bytes=size) for n, size in enumerate(SIZES)]
        self.group_data_refs = [refs] if groups == 1 else [[r] for r in refs]

    def fill(self, block, value):
        for t in self.tensors:
            t.tensor.values[block] = value

    def values(self):
        """One number a block, where it has it in all places; the room behind blocks has nothing."""
        assert not any(t.tensor.storage[:, -64:].any() for t in self.tensors)
        found = [set().union(*(t.tensor.values[b].tolist() for t in self.tensors)) for b in range(BLOCKS)]
        return [v.pop() if len(v) == 1 else v for v in found]


@pytest.fixture
def device(monkeypatch):
    """fakes/device.py in the place of torch and of the module's sessions."""
    pytest.importorskip("numpy")
    import device
    monkeypatch.setitem(sys.modules, "torch", device.torch())
    monkeypatch.delitem(sys.modules, "kvctx.vllm.staging", raising=False)
    monkeypatch.setattr("kvctx.vllm.link.Session", device.PeerSession)
    yield device
    assert not any(s.peers for s in device.PeerSession.sessions if not s.closed), "a session is left"
    assert "kvctx-staging" not in [thread.name for thread in threading.enumerate()]
    sys.modules.pop("kvctx.vllm.staging")


@pytest.fixture
def gpu_engine(device, path):
    """An engine with its tensors on a device, one chunk's room in host memory, and 1 to 8 in its blocks 0 to 7."""
    engines = []

    def make(peer_memory=True, path=path, **changes):
        extra = {"peer_memory": peer_memory, "staging_bytes": CHUNK, **changes.pop("extra", {})}
        one = Engine(path, caches=GpuCaches(device, changes.get("groups", 1)), extra=extra, **changes)
        engines.append(one)
        one.worker.failures_wanted = True
        one.peers, one.host = device.PeerSession, one.worker._staging._host.values
        for b in range(8):
            one.caches.fill(b, b + 1)
        return one

    yield make
    for one in engines:
        one.end()
        assert not len(one.worker._transfers)


FOUR, STORED, LOADED = [key(n) for n in range(4)], list(range(8)), list(range(8, 16))
DIRECT = [(load, n) for load in (False, True) for n in range(4)]


@pytest.fixture(params=[(1, 1 << 20), (2, 1 << 20), (3, 1), (9, 1 << 20), (16, CHUNK), (17, 1 << 20),
                        (40, 2 * CHUNK), (40, 1 << 20)])
def staged_engine(gpu_engine, monkeypatch, request):
    """A gpu_engine without peer memory, with room for so many chunks; the device moves so many bytes at a time."""
    room, at_once = request.param
    one = gpu_engine(peer_memory=False, extra={"staging_bytes": room * CHUNK})
    monkeypatch.setattr("kvctx.vllm.staging._AT_ONCE", at_once)
    return one


def test_chunks_of_a_gpu_pass_through_host_memory(staged_engine):
    one = staged_engine
    assert one.store(FOUR, gpu(STORED)).transfer_size == one.load(FOUR, gpu(LOADED)).transfer_size == 4 * CHUNK
    assert one.caches.values() == list(range(1, 9)) * 2
    assert not one.peers.went and not any(s.peers for s in one.peers.sessions), "nobody asked for it"
    assert one.host.any()


def test_parts_of_chunks_pass_through_host_memory(staged_engine):
    one = staged_engine
    one.store(FOUR, gpu(STORED))
    assert one.load(FOUR, gpu([15, 14, 13, 12, 11, 10], first=1)).transfer_size == 3 * CHUNK
    assert one.caches.values()[8:] == [0, 0, 7, 6, 5, 4, 3, 2]
    lose(one, key(1))
    one.load(FOUR, gpu(LOADED))
    assert one.worker.failed_loads() == {one.jobs: {10, 11}}
    assert one.caches.values()[8:] == [1, 2, 7, 6, 5, 6, 7, 8]


def test_chunks_of_several_groups_pass_through_host_memory(gpu_engine):
    """What lies in neighbouring slots may be of several groups, which have other layers."""
    one = gpu_engine(peer_memory=False, groups=2, extra={"staging_bytes": 40 * CHUNK})
    both = [key(0), key(1), key(0, 1), key(1, 1)]
    size = one.store(both, gpu([0, 1, 2, 3, 4, 5, 6, 7], sizes=[4, 4], indices=[0, 0])).transfer_size
    assert size == 4 * sum(SIZES)
    one.load(both, gpu(LOADED, sizes=[4, 4], indices=[0, 0]))
    first, second = (t.tensor.values[8:] for t in one.caches.tensors)
    assert (first[:4, 0].tolist(), second[4:, 0].tolist()) == ([1, 2, 3, 4], [5, 6, 7, 8])
    assert not first[4:].any() and not second[:4].any()


def note_calls(monkeypatch, went, what, *names):
    """Of these methods' calls went has the names, in order."""
    for name in names:
        monkeypatch.setattr(what, name, lambda *args, name=name, call=getattr(what, name): (
            went.append(name), call(*args))[1])


@pytest.mark.parametrize("load", [False, True])
def test_device_copies_chunks_while_kvctx_moves_others(gpu_engine, monkeypatch, load):
    """With room for two chunks the second is under way before the first is waited for, and the third is not."""
    one, went = gpu_engine(peer_memory=False, extra={"staging_bytes": 2 * CHUNK}), []
    if load:
        one.store(FOUR, gpu(STORED))
    staging = one.worker._staging
    note_calls(monkeypatch, went, staging, "_gather", "_scatter", "_call", "_await")
    (one.load if load else one.store)(FOUR, gpu(STORED))
    begin, end = (["_call"], ["_await", "_scatter"]) if load else (["_gather", "_call"], ["_await"])
    assert went == begin + begin + (end + begin) * 2 + end + end


@pytest.mark.parametrize("load,broken", [(False, "index_select"), (True, "index_copy_")])
def test_device_that_fails_ends_a_job_when_all_is_done(gpu_engine, device, monkeypatch, load, broken):
    """Nothing of the job is under way when it ends, and the next one is not disturbed."""
    one = gpu_engine(peer_memory=False, extra={"staging_bytes": 2 * CHUNK})
    one.store(FOUR, gpu(STORED))
    staging, calls, went = one.worker._staging, [], []
    note_calls(monkeypatch, went, staging, "_take_off", "_await", "_synchronize")
    note_calls(monkeypatch, went, one.worker._transfers, "complete")

    def fail(tensor, dim, *rest, call=getattr(device.Tensor, broken)):
        calls.append(1)
        if len(calls) == 2:  # of the first chunk's layers the second
            raise RuntimeError("the device says no")
        return call(tensor, dim, *rest)

    monkeypatch.setattr(device.Tensor, broken, fail)
    keys = FOUR if load else [key(n + 4) for n in range(4)]
    result = (one.load if load else one.store)(keys, gpu(LOADED if load else STORED))
    nr = 2 if load else 1
    assert result.transfer_size == 0
    assert went == ["_take_off"] * nr + ["_await"] * nr + ["_synchronize", "complete"]
    assert one.worker.failed_loads() == ({one.jobs: set(LOADED)} if load else {})
    assert one.load(FOUR, gpu(LOADED)).transfer_size == 4 * CHUNK
    assert one.worker.failed_loads() == {} and one.caches.values() == list(range(1, 9)) * 2


def test_chunks_of_a_gpu_move_without_host_memory(gpu_engine):
    one = gpu_engine()
    assert one.worker._link.session.peers == one.peers.memory, "registered, each once"
    assert one.store(FOUR, gpu(STORED)).transfer_size == one.load(FOUR, gpu(LOADED)).transfer_size == 4 * CHUNK
    assert one.worker.failed_loads() == {}
    assert one.caches.values() == list(range(1, 9)) * 2
    assert one.peers.went == DIRECT and not one.host.any()


@pytest.mark.parametrize("stored", [{}, {1: errno.EREMOTEIO, 2: errno.EREMOTEIO}, {0: errno.EPERM, 3: errno.EREMOTEIO}])
@pytest.mark.parametrize("loaded", [{}, {1: errno.EREMOTEIO, 3: errno.EREMOTEIO}, {n: errno.EPERM for n in range(4)}])
def test_chunks_without_a_path_are_staged(gpu_engine, stored, loaded):
    """Of one job, some directly and some through host memory; either way they can be loaded in either."""
    one = gpu_engine()
    one.peers.aside = {n: -e for n, e in stored.items()}
    assert one.store(FOUR, gpu(STORED)).transfer_size == 4 * CHUNK
    one.peers.aside = {n: -e for n, e in loaded.items()}
    assert one.load(FOUR, gpu(LOADED)).transfer_size == 4 * CHUNK
    assert one.worker.failed_loads() == {}
    assert one.caches.values() == list(range(1, 9)) * 2
    assert one.peers.went == [(load, n) for load, n in DIRECT if n not in (loaded if load else stored)]


def test_part_of_a_chunk_without_a_path_is_staged(gpu_engine):
    one = gpu_engine()
    one.store(FOUR[:3], gpu([0, 1, 2, 3, 4, 5]))
    one.peers.aside = {0: -errno.EREMOTEIO}
    assert one.load(FOUR[:3], gpu([10, 11, 12, 13], first=1)).transfer_size == 2 * CHUNK
    assert one.caches.values()[8:] == [0, 0, 2, 3, 4, 5, 0, 0]
    one.peers.aside = {2: -errno.EREMOTEIO}
    assert one.load(FOUR[:3], gpu([8, 9, 14, 15], first=1)).success
    assert one.caches.values()[8:] == [2, 3, 2, 3, 4, 5, 4, 5]


def test_chunks_that_fail_on_their_way_to_a_gpu_are_not_staged(gpu_engine):
    """They would fail again; and one that is staged may fail there."""
    one = gpu_engine()
    one.store(FOUR, gpu(STORED))
    one.peers.aside = {0: -errno.EBADMSG, 1: -errno.EREMOTEIO, 3: -errno.EREMOTEIO}
    lose(one, key(3))
    one.host[:] = 0
    one.load([key(0), key(2)], gpu([8, 9, 10, 11]))
    assert not one.host.any() and one.worker.failed_loads() == {one.jobs: {8, 9}}
    one.load(FOUR, gpu(LOADED))
    assert one.worker.failed_loads() == {one.jobs: {8, 9, 14, 15}}
    assert one.caches.values()[8:] == [0, 0, 3, 4, 5, 6, 0, 0]


def test_lengths_are_compared_before_chunks_move_to_a_gpu(gpu_engine):
    one = gpu_engine(parallel=STAGES)
    one.store(FOUR, gpu(STORED))
    from kvctx.vllm.keys import page_keys
    one.worker._link.session.store(page_keys([key(1)], [0]), [bytes(CHUNK + 512)], replace=True)
    one.peers.aside = {2: -errno.EREMOTEIO}
    one.load(FOUR, gpu(LOADED))
    assert one.worker.failed_loads() == {one.jobs: {10, 11}}
    assert one.caches.values()[8:] == [1, 2, 0, 0, 5, 6, 7, 8]


def test_memory_of_a_gpu_that_is_out_of_reach(gpu_engine, device, monkeypatch, caplog):
    """Of its tensors all are registered, or none."""
    begin = device.PeerSession.begin

    def refuse(tensors):
        begin(tensors)
        device.PeerSession.refused = [max(device.PeerSession.memory)]

    monkeypatch.setattr(device.PeerSession, "begin", refuse)
    one = gpu_engine()
    assert one.worker._link.session.peers == [] and "out of reach" in caplog.text
    one.store(FOUR, gpu(STORED))
    assert one.load(FOUR, gpu(LOADED)).transfer_size == 4 * CHUNK
    assert one.caches.values() == list(range(1, 9)) * 2 and not one.peers.went


@pytest.mark.process
def test_memory_of_a_gpu_is_registered_with_the_module_only(gpu_engine, monkeypatch, caplog):
    """Who else serves a pool would read it as the host's."""
    monkeypatch.setattr("kvctx.vllm.link.Session", kvctx.Session)
    monkeypatch.setattr(kvctx.Session, "register", lambda s, buffer, register=kvctx.Session.register: (
        seen.append(buffer), register(s, buffer))[1])
    seen = []
    one = gpu_engine()
    assert "module" in caplog.text and not set(seen).intersection(one.peers.memory)
    one.store(FOUR, gpu(STORED))
    assert one.load(FOUR, gpu(LOADED)).success and one.caches.values() == list(range(1, 9)) * 2


def test_memory_of_a_gpu_is_registered_anew_when_the_server_is_back(gpu_engine, daemon):
    one = gpu_engine(path=os.path.join(daemon.pool.path, "default"))
    one.store(FOUR, gpu(STORED))
    one.worker._link.flush()
    old = one.worker._link.session
    daemon.end(9)
    one.load(FOUR, gpu(LOADED))
    assert one.worker.failed_loads() == {one.jobs: set(LOADED)} and one.worker._link.session is None
    daemon.start()
    until(lambda: one.worker._link.session, "a session with the server that is back")
    assert old.closed and one.worker._link.session.peers == one.peers.memory
    one.peers.went.clear()
    one.peers.aside = {1: -errno.EREMOTEIO}
    assert one.load(FOUR, gpu(LOADED)).success and one.worker.failed_loads() == {}
    assert one.caches.values() == list(range(1, 9)) * 2
    assert one.peers.went == [(True, 0), (True, 2), (True, 3)]


def test_chunks_of_a_gpu_wait_for_its_stream(gpu_engine, device, monkeypatch):
    one = gpu_engine()
    monkeypatch.setattr(device.Event, "pending", threading.Event())
    output = one.manager.prepare_store(FOUR, fake.ReqContext("r"))
    one.worker.submit_store(1, gpu(STORED), output.store_spec)
    time.sleep(0.1)
    assert not one.peers.went and not list(one.worker.get_finished()), "the blocks are not computed yet"
    device.Event.pending.set()
    one.worker.wait({1})
    assert [r.success for r in one.worker.get_finished()] == [True] and one.peers.went == DIRECT[:4]


class Connected:
    """KvctxConnector of a worker."""

    def __init__(self, path, groups=1):
        from kvctx.vllm import KvctxConnector
        self.engine = Engine(path, groups=groups)
        fake.OffloadingConnector.spec_class = self.engine.spec
        transfer = SimpleNamespace(kv_connector_extra_config={"path": path}, kv_load_failure_policy="recompute")
        self.transfer = transfer
        self.connector = KvctxConnector(fake.VllmConfig(transfer), None,
                                        SimpleNamespace(kv_cache_groups=[None] * groups))
        self.connector.register_kv_caches(self.engine.caches)

    def load(self, keys, place):
        pages = self.engine.manager.prepare_load(keys, fake.ReqContext("r"))
        job = SimpleNamespace(req_id="r", src_spec=pages, dst_spec=place)
        self.connector._connector_metadata = SimpleNamespace(load_jobs={77: job})
        self.connector.start_load_kv(None)
        self.engine.worker.wait({77})
        return self.connector.get_transfer_results(set())


def test_connector_has_failed_blocks_recomputed(path):
    c = Connected(path)
    assert c.transfer.kv_connector_extra_config["spec_name"] == "KvctxOffloadingSpec"
    c.engine.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    lose(c.engine, key(2))
    results = c.load([key(1), key(2)], gpu([4, 5, 6, 7]))
    assert (results.finished_recving, results.failed_recving) == ({"r"}, set())
    assert c.connector.get_block_ids_with_load_errors() == {6, 7}
    assert c.connector.get_block_ids_with_load_errors() == set(), "told once"
    c.engine.end()


def test_connector_has_whole_requests_recomputed_where_block_ids_are_not_unique(path):
    c = Connected(path, groups=2)
    results = c.load([key(1, 0), key(1, 1)], gpu([4, 5, 6, 7], sizes=[2, 2], indices=[0, 0]))
    assert (results.finished_recving, results.failed_recving) == ({"r"}, {"r"})
    assert c.connector.get_block_ids_with_load_errors() == set()
    c.engine.end()


def test_request_whose_loads_keep_failing_is_computed(make):
    one, context = make(), fake.ReqContext("r")
    one.store([key(1)], gpu([0, 1]))
    one.manager.on_new_request(context)
    for _ in range(3):
        assert one.lookup([key(1)]) == [HIT]
        one.load([key(1)], gpu([4, 5]))
    assert one.lookup([key(1)]) == [MISS]
    assert one.lookup([key(1)], "another") == [HIT]


def test_reset_forgets_what_was_stored(make):
    """vLLM resets the cache when weights change."""
    one = make()
    one.caches.fill(0, 7)
    one.store([key(1)], gpu([0, 1]))
    one.manager.reset_cache()
    assert one.lookup([key(1)]) == [MISS]
    one.caches.fill(0, 8)
    one.store([key(1)], gpu([0, 1]))
    assert one.lookup([key(1)], "s") == [HIT]
    one.load([key(1)], gpu([4, 5]), "s")
    assert one.caches.values(4) == {8}
    assert make().lookup([key(1)]) == [HIT], "an engine that starts anew has the weights of before"


def test_chunk_on_its_way_is_not_stored_twice(make):
    one, context = make(), fake.ReqContext("r")
    first = one.manager.prepare_store([key(1)], context)
    assert first.keys_to_store == [key(1)]
    assert one.manager.prepare_store([key(1), key(2)], fake.ReqContext("s")).keys_to_store == [key(2)]
    assert one.manager.lookup(key(1), fake.ReqContext("s")) is fake.LookupResult.HIT_PENDING


def test_events(make):
    one = make(events=True)
    one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    assert one.manager.has_pending_work() and not one.manager.take_events()
    one.step()
    (event,) = one.manager.take_events()
    assert (event.keys, event.removed, event.medium) == ([key(1), key(2)], False, fake.Medium.STORAGE)
    assert not one.manager.has_pending_work()
    one.store([key(1)], gpu([0, 1]))
    one.manager.complete_store([key(9)], fake.ReqContext("r"))
    one.step()
    assert not one.manager.take_events(), "neither what was announced nor what kvctx does not have"


def test_events_of_what_has_gone(make, monkeypatch):
    one = make(events=True)
    one.store([key(n) for n in range(4)], gpu(list(range(8))))
    one.step()
    one.manager.take_events()
    lose(one, key(2))
    time.sleep(0.05)
    one.step()
    (event,) = one.manager.take_events()
    assert (event.keys, event.removed) == ([key(2)], True), "told by kvctx"
    session = one.manager._link.session
    told = session.events
    monkeypatch.setattr(session, "events", lambda: told()._replace(events=[], lost=1))
    lose(one, key(3))
    time.sleep(0.05)
    one.step()
    (event,) = one.manager.take_events()
    assert (event.keys, event.removed) == ([key(3)], True), "found out, when events were lost"
    monkeypatch.setattr(session, "info", session.info._replace(features=()))
    lose(one, key(1))
    one.step()
    assert one.lookup([key(1)], "s") == [MISS]
    (event,) = one.manager.take_events()
    assert (event.keys, event.removed) == ([key(1)], True), "found out by a request"
    one.manager.reset_cache()
    (event,) = one.manager.take_events()
    assert (event.keys, event.removed) == ([key(0)], True)


def test_events_of_chunks_with_several_pages(make):
    """One a rank: a chunk is there when all are, and has gone with the first of them."""
    from kvctx.vllm.keys import page_keys
    one, two = make(world=2, rank=0, events=True), make(world=2, rank=1)

    def announced():
        time.sleep(0.05)
        one.step()
        return [(e.keys, e.removed) for e in one.manager.take_events()]

    keys = [key(1), key(2)]
    one.store(keys, gpu([0, 1, 2, 3]))
    assert not announced()
    two.store(keys, gpu([0, 1, 2, 3]))
    one.manager.complete_store(keys, fake.ReqContext("r"))
    assert announced() == [(keys, False)]
    session = one.worker._link.session
    session.delete(page_keys([key(2)], [1])).check()
    assert announced() == [([key(2)], True)]
    session.delete(page_keys([key(2)], [0]) + page_keys([key(1)], [0])).check()
    assert announced() == [([key(1)], True)]


def test_events_of_what_came_back(make):
    """Gone and stored again between two answers: it is there."""
    one = make(events=True)
    one.store([key(1)], gpu([0, 1]))
    one.step()
    one.manager.take_events()
    lose(one, key(1))
    one.store([key(1)], gpu([0, 1]))
    time.sleep(0.05)
    one.step()
    assert not one.manager.take_events()


def test_events_that_were_lost_are_made_up_for_in_parts(make, monkeypatch):
    one = make(events=True)
    one.store([key(n) for n in range(4)], gpu(list(range(8))))
    one.step()
    one.manager.take_events()
    session, asked = one.manager._link.session, []
    told, match = session.events, session.match
    lost = iter([1])
    monkeypatch.setattr("kvctx.vllm.announcer._AUDIT", 3)
    monkeypatch.setattr(session, "events", lambda: told()._replace(events=[], lost=next(lost, 0)))
    monkeypatch.setattr(session, "match", lambda pages, **how: asked.append(len(pages)) or match(pages, **how))
    for n in range(4):
        lose(one, key(n))
    gone, end = [], time.monotonic() + 30
    while len(gone) < 4 and time.monotonic() < end:
        time.sleep(0.03)
        one.step()
        gone += [k for e in one.manager.take_events() if e.removed for k in e.keys]
    assert sorted(gone) == sorted(key(n) for n in range(4))
    ranks = max(asked) // 3
    assert asked == [3 * ranks, ranks]


def test_nothing_is_announced_while_the_server_is_gone(daemon):
    one = Engine(os.path.join(daemon.pool.path, "default"), events=True)
    daemon.end(9)
    assert one.lookup([key(1)]) == [MISS]
    one.manager.complete_store([key(1)], fake.ReqContext("r"))
    assert not one.manager.has_pending_work(), "no steps for its sake"
    one.end()


def test_lookups_behind_a_call_that_hangs_do_not_wait(daemon, clock):
    one = Engine(os.path.join(daemon.pool.path, "default"))
    context, asker = fake.ReqContext("r"), one.manager._asker
    with Stopped(daemon):
        for n in range(20):
            one.manager.lookup(key(n), context)
            one.manager.on_schedule_end(None)
            until(lambda: asker._since is not None, "the first call")
            clock.now += 0.5
        assert asker._queue.qsize() < 10
    one.end()


def test_asker_without_threads(daemon, monkeypatch, clock):
    def start(self):
        raise RuntimeError("can't start new thread")
    one = Engine(os.path.join(daemon.pool.path, "default"))
    monkeypatch.setattr(threading.Thread, "start", start)
    assert one.lookup([key(1)]) == [MISS]
    monkeypatch.undo()
    one.store([key(2)], gpu([0, 1]))
    assert one.lookup([key(2)]) == [HIT]
    one.end()


def test_server_goes_and_comes_back(daemon, clock):
    one = Engine(os.path.join(daemon.pool.path, "default"))
    one.worker.failures_wanted = True
    one.caches.fill(0, 7)
    one.store([key(1)], gpu([0, 1]))
    assert one.lookup([key(1)]) == [HIT]
    one.worker._link.flush()
    daemon.end(9)
    assert one.load([key(1)], gpu([4, 5])).success
    assert one.worker.failed_loads() == {one.jobs: {4, 5}}
    assert one.lookup([key(1)], "s") == [MISS]
    assert one.manager.prepare_store([key(2)], fake.ReqContext("s")) is None
    daemon.start()
    until(lambda: one.worker._link.session and one.manager._link.session, "sessions with the server that is back")
    assert one.lookup([key(1)], "t") == [HIT]
    assert one.load([key(1)], gpu([6, 7]), "t").success and one.worker.failed_loads() == {}
    assert one.caches.values(6) == {7}
    one.end()


@pytest.mark.process
def test_member_that_is_lost_costs_its_pages_only(lossy):
    """The session may be what keeps the pool attached: without it nobody could open another."""
    one = Engine(os.path.join(lossy.path, "default"))
    one.worker.failures_wanted = True
    keys, session = [key(1), key(2)], one.worker._link.session
    one.store(keys, gpu([0, 1, 2, 3]))
    for n in range(2):
        assert one.load(keys, gpu([4, 5, 6, 7]), f"request {n}").success
        assert one.worker.failed_loads() == {one.jobs: {4, 5}}
        assert one.worker._link.session is session and not session.closed
    assert one.lookup([key(2)], "s") == [HIT]
    one.end()


def test_answer_that_does_not_come_is_a_miss(clock):
    from kvctx.vllm import finder
    silent = SimpleNamespace(stuck=lambda seconds: False,
                             ask=lambda session, call: SimpleNamespace(add_done_callback=lambda fn: None))
    f = finder.Finder(SimpleNamespace(session=object()), silent, lambda keys: keys, 1.0)
    assert f.lookup(b"k", "r") is None
    f.flush()
    assert f.lookup(b"k", "r") is None
    clock.now += 1.9
    assert f.lookup(b"k", "r") is None
    clock.now += 0.2
    assert f.lookup(b"k", "r") is False
    f.finish("r")
    assert not len(f)


class Stopped:
    """A daemon that does not answer for a minute."""

    def __init__(self, daemon):
        self.process = daemon.process
        self.end = threading.Timer(60, self.process.send_signal, [signal.SIGCONT])

    def __enter__(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        self.end.start()
        return self

    def __exit__(self, *_):
        self.end.cancel()
        self.end.join()
        self.process.send_signal(signal.SIGCONT)

    def meanwhile(self, call, *arguments):
        """Its result. Had it waited for the daemon, that would have gone on before."""
        result = call(*arguments)
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            assert f.read().rsplit(")", 1)[1].split()[0] == "T", "it has waited for the daemon"
        return result


def gives_up(stopped, clock, asked, n, context):
    """A lookup is asked again for two seconds, and misses then."""
    for seconds in 0, 0, 1.9:
        clock.now += seconds
        assert stopped.meanwhile(asked.lookup, key(n), context) is RETRY
        stopped.meanwhile(asked.on_schedule_end, None)
    clock.now += 0.2
    assert stopped.meanwhile(asked.lookup, key(n), context) is MISS


def test_nothing_waits_for_a_server_that_is_stopped(daemon, clock):
    """Lookups, ends of leases and events: a miss after two seconds, and all is as before when it goes on."""
    one = Engine(os.path.join(daemon.pool.path, "default"), events=True)
    m, context = one.manager, fake.ReqContext("s")
    one.store([key(1), key(2)], gpu([0, 1, 2, 3]))
    assert one.lookup([key(1)]) == [HIT]
    while m.has_pending_work():
        one.step()
    assert [e.removed for e in m.take_events()] == [False]
    with Stopped(daemon) as stopped:
        stopped.meanwhile(m.on_request_finished, fake.ReqContext("r"))  # ends a lease
        clock.now += 0.03
        stopped.meanwhile(m.on_schedule_end, None)  # asks what has gone
        assert not m.has_pending_work(), "nobody waits to hear that"
        m.complete_store([key(2)], context)  # to be announced
        assert m.has_pending_work()
        gives_up(stopped, clock, m, 2, context)
        assert not m.has_pending_work(), "no more steps for its sake alone"
        stopped.meanwhile(m.reset_cache)
    one.store([key(3)], gpu([0, 1]))
    requests = iter(range(1 << 30))
    until(lambda: one.lookup([key(3)], f"request {next(requests)}") == [HIT], "an answer: other calls wait first")
    while m.has_pending_work():
        one.step()
    assert [key(3)] in [e.keys for e in m.take_events()]
    assert [t.name for t in threading.enumerate()].count("kvctx-asker") == 1
    one.end()
    assert "kvctx-asker" not in [t.name for t in threading.enumerate()]


def test_tier_does_not_wait_for_a_server_that_is_stopped(daemon, clock):
    t, _ = tier(os.path.join(daemon.pool.path, "default"))
    context = fake.ReqContext("r")
    with Stopped(daemon) as stopped:
        gives_up(stopped, clock, t, 1, context)
        stopped.meanwhile(t.submit_store, job(1, [key(1)], [1], False))
    t.drain_jobs()
    assert [r.success for r in t.get_finished_jobs()] == [True]
    t.shutdown()


def test_questions_that_nobody_waits_for_any_more_are_not_asked():
    from kvctx.vllm.finder import _match
    asked = []
    session = SimpleNamespace(match=lambda keys, lease, all: asked.append(keys))
    _match(session, "old", 1.0, time.monotonic())
    _match(session, "new", 1.0, time.monotonic() + 60)
    assert asked == ["new"]


def test_asker_in_a_child_and_at_the_end(daemon):
    """A child of fork() has no thread to ask, and gets an error; nobody waits for it when the interpreter ends."""
    done = python(textwrap.dedent("""
        import os, sys
        import kvctx
        from kvctx.vllm.asker import Asker
        session, asker = kvctx.Session(sys.argv[1], keyspace="tests"), Asker()
        session.store("k", b"x").check()
        assert asker.ask(session, lambda: session.match("k")).result(30).count == 1
        child = os.fork()
        if not child:
            try:
                asker.ask(session, lambda: session.match("k")).result(30)
            except kvctx.Error as e:
                asker.close()
                asker.close()
                os._exit(e.errno)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert asker.ask(session, lambda: 1 // 0).exception(30)
        assert asker.ask(session, lambda: session.match("k")).result(30).count == 1
        """), daemon.path)
    assert (done.stdout.split(), done.returncode) == ([str(errno.EBADF)], 0), done.stderr


@pytest.mark.process
def test_options(path, tmp_path):
    from kvctx.vllm import KvctxOffloadingSpec
    for extra, words in (({"path": "here"}, "absolute"), ({"lease_seconds": 100}, "lease_seconds")):
        with pytest.raises(ValueError, match=words):
            KvctxOffloadingSpec(config(path, extra=extra))
    with pytest.raises(ValueError, match="canonical_layout"):
        KvctxOffloadingSpec(config(path, canonical_layout=True))
    with pytest.raises(RuntimeError, match="no such"):
        KvctxOffloadingSpec(config(os.path.join(tmp_path, "none", "default"))).get_manager()
    made = os.path.join(tmp_path, "new", "kv1", "default")
    manager = KvctxOffloadingSpec(config(made, extra={"pool_bytes": 64 << 20})).get_manager()
    assert os.path.isdir(os.path.dirname(made))
    manager.shutdown()


@pytest.mark.process
def test_tier_does_not_wait_to_submit_more_than_is_copied_at_once():
    daemon = Daemon(256 << 20)
    try:
        before = set(threading.enumerate())
        t, memory = tier(daemon.path, 64, 1 << 20)
        keys = [key(n) for n in range(64)]
        with Stopped(daemon) as stopped:
            stopped.meanwhile(t.submit_store, job(1, keys, range(64), False))
        t.drain_jobs()
        assert [(r.success, r.transfer_bytes) for r in t.get_finished_jobs()] == [(True, 64 << 20)]
        t.shutdown()
        assert "kvctx-transfers" not in [thread.name for thread in set(threading.enumerate()) - before]
    finally:
        daemon.remove()


def tier(path, rows=8, row=4096, **options):
    from kvctx.vllm import KvctxTier
    memory, events = bytearray(rows * row), options.pop("events", True)
    spec = SimpleNamespace(config=config(path), kv_events_config=SimpleNamespace(enable_kv_cache_events=events))
    return KvctxTier(spec, memoryview(memory).cast("B", (rows, row)), "KvctxTier", path=path, **options), memory


def job(n, keys, rows, load):
    return fake.TransferJob(n, keys, rows, load, fake.ReqContext("r"))


def test_tier_whose_chunks_are_too_long(path):
    with pytest.raises(ValueError, match="is the most"):
        tier(path, 1, 256 << 20)


def test_tier(path):
    t, memory = tier(path, enable_kv_events=True, locality="LOCAL")
    context = fake.ReqContext("r")
    memory[4096:8192], memory[8192:12288] = b"a" * 4096, b"b" * 4096
    t.submit_store(job(1, [key(1), key(2)], [1, 2], False))
    t.drain_jobs()
    (result,) = t.get_finished_jobs()
    assert (result.job_id, result.success, result.transfer_bytes) == (1, True, 8192)
    assert t.has_pending_work() and not t.take_events()
    t.on_schedule_end(None)
    assert t.take_events() == [told([key(1), key(2)], False)] and not t.has_pending_work()
    keys = [key(1), key(2), key(3)]
    assert [t.lookup(k, context) for k in keys] == [RETRY] * 3
    t.on_schedule_end(None)
    assert [t.lookup(k, context) for k in keys] == [HIT, HIT, MISS]
    t.submit_load(job(2, keys, [5, 6, 7], True))
    t.drain_jobs()
    (result,) = t.get_finished_jobs()
    assert (result.success, result.successful_keys) == (False, keys[:2])
    assert memory[5 * 4096:7 * 4096] == b"a" * 4096 + b"b" * 4096
    assert t.lookup(key(3), context) is MISS
    t.on_request_finished(context)
    t.shutdown()
    t._primary_kv_view.release()  # as vLLM does
    memory.extend(b"nobody holds it any more")


def told(keys, removed):
    """What a KvctxTier announces."""
    return fake.OffloadingEvent(keys, fake.Medium.STORAGE, removed, fake.Locality.LOCAL, "KvctxTier", True)


def stored(t, n, keys, rows):
    """Of a tier, at the end of the step that hears of it."""
    t.submit_store(job(n, keys, rows, False))
    t.drain_jobs()
    assert [r.success for r in t.get_finished_jobs()] == [True]
    t.on_schedule_end(None)


def test_tier_tells_what_has_gone(path, monkeypatch):
    from kvctx.vllm.keys import page_keys
    t, _ = tier(path, enable_kv_events=True, locality="LOCAL")
    keys, session = [key(n) for n in range(4)], t._link.session
    stored(t, 1, keys, range(4))
    assert t.take_events() == [told(keys, False)]
    stored(t, 2, keys[:1], [0])
    assert not t.take_events(), "it was announced"
    session.delete(page_keys(keys[2:3], [0])).check()
    time.sleep(0.05)
    t.on_schedule_end(None)
    assert t.take_events() == [told(keys[2:3], True)] and not t.take_events()
    stored(t, 3, keys[2:3], [2])
    assert t.take_events() == [told(keys[2:3], False)], "it is back"
    monkeypatch.setattr(session, "info", session.info._replace(features=()))
    session.delete(page_keys(keys[1:2], [0])).check()
    t.on_schedule_end(None)
    assert not t.take_events(), "by a server that tells nothing"
    t.submit_load(job(4, keys[:2], [5, 6], True))
    t.drain_jobs()
    assert [r.successful_keys for r in t.get_finished_jobs()] == [keys[:1]]
    for n in range(2):
        t.lookup(keys[1], fake.ReqContext("r"))
        t.on_schedule_end(None)
    assert t.take_events() == [told(keys[1:2], True)], "found out by a request"
    t.shutdown()


@pytest.mark.process
def test_tier_tells_evictions(tmp_path):
    """In a pool for some chunks, of which many are stored: what was announced and not revoked is what is there."""
    from kvctx.vllm.keys import page_keys
    kvctx.create_pool(tmp_path / "small", 20 << 18, segment_bytes=1 << 18)
    t, _ = tier(os.path.join(tmp_path, "small", "default"), 8, 1 << 16, enable_kv_events=True, locality="LOCAL")
    keys, here, gone = [key(n) for n in range(200)], set(), 0
    for n in range(25):
        stored(t, n, keys[8 * n:8 * n + 8], range(8))
        for event in t.take_events():
            assert here.isdisjoint(event.keys) is not event.removed, "told once"
            here = here.difference(event.keys) if event.removed else here.union(event.keys)
            gone += len(event.keys) if event.removed else 0
        time.sleep(0.03)
    t.on_schedule_end(None)
    for event in t.take_events():
        here = here.difference(event.keys) if event.removed else here.union(event.keys)
    assert gone > 100
    assert here == {k for k, n in zip(keys, t._link.session.query(page_keys(keys, [0]))) if n >= 0}
    t.shutdown()


@pytest.mark.parametrize("on,engine", [(False, True), (True, False)])
def test_tier_announces_when_both_want_it(path, on, engine):
    t, _ = tier(path, enable_kv_events=on, events=engine)
    stored(t, 1, [key(1)], [1])
    assert not t.has_pending_work() and not list(t.take_events())
    t.shutdown()


def test_tier_catches_up_when_the_server_is_back(daemon, clock):
    from kvctx.vllm.keys import page_keys
    t, _ = tier(os.path.join(daemon.pool.path, "default"), enable_kv_events=True, locality="LOCAL")
    stored(t, 1, [key(1), key(2)], [1, 2])
    while t.has_pending_work():
        t.on_schedule_end(None)
    assert t.take_events() == [told([key(1), key(2)], False)]
    t._link.flush()
    daemon.end(9)
    t.submit_store(job(2, [key(3)], [3], False))
    t.drain_jobs()
    assert [r.success for r in t.get_finished_jobs()] == [False]
    assert not t.has_pending_work(), "no steps for its sake"
    daemon.start()
    with kvctx.Session(os.path.join(daemon.pool.path, "default"), keyspace=t._link._described) as s:
        s.delete(page_keys([key(2)], [0])).check()
    events = []

    def told_more():
        clock.now += 0.03
        t.on_schedule_end(None)
        events.extend(t.take_events())
        return events

    until(told_more, "what has gone")
    assert events == [told([key(2)], True)], "nobody told this session: it was asked for"
    t.shutdown()


def test_errors_in_words():
    from kvctx.vllm.link import errno_counts
    assert errno_counts([4096, -errno.EBADMSG, -errno.ENOENT, -errno.EBADMSG]) == "EBADMSG 2, ENOENT 1"
