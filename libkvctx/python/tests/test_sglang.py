# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx.sglang keeps SGLang's contract for storages of its hierarchical cache (fakes/sglang.py)."""
import errno
import hashlib
import logging
import os
import signal
import sys
import threading
import time
import types
from array import array

import pytest
from fakes import sglang as fake

import kvctx
from kvctx.errors import error

fake.install()
from kvctx import sglang  # noqa: E402

KV, MAMBA, SWA, DRAFT = fake.PoolName
LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake.torch())


@pytest.fixture
def make(pool):
    """make(host pool, options and fields of the configuration) -> a storage on a pool of this process."""
    made = []

    def storage(host=None, path=None, others=(), v1=1, **how):
        options = {k: how.pop(k) for k in ("keyspace", "timeout", "max_bytes", "entries") if k in how}
        extra = {"backend_name": "kvctx", "module_path": "kvctx.sglang", "class_name": "KvctxHiCache",
                 "interface_v1": v1, "path": path or os.path.join(pool.path, "default"), **options}
        s = sglang.KvctxHiCache(fake.HiCacheStorageConfig(extra_config=extra, **how), {})
        made.append(s)
        s.register_mem_pool_host(host or fake.HostKVCache())
        for name, other in others:
            s.register_mem_host_pool_v2(other, name)
        return s
    yield storage
    for s in made:
        s.close()


def names(count):
    return [os.urandom(32).hex() for _ in range(count)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pages_of_every_layout_come_back(make, layout):
    host = fake.HostKVCache(layout)
    s, keys, pages = make(host), names(128), host.fill()
    assert s.batch_set_v1(keys, fake.indices(0, 128)) == [True] * 128
    assert s.batch_exists(keys + names(1)) == 128 and s.batch_exists(names(1) + keys) == 0 and s.exists(keys[5])
    host.wipe()
    assert s.batch_get_v1(keys[:64] + names(1) + keys[64:127], fake.indices(10, 128)) == \
        [True] * 64 + [False] + [True] * 63
    assert [host.page(10 + n) for n in range(64)] == pages[:64]
    assert [host.page(75 + n) for n in range(63)] == pages[64:127]
    assert not s.errors and s.counts["missed"] == 1 and len(s._pinned) == 1


def test_a_batch_is_one_submission(make, monkeypatch):
    host = fake.HostKVCache("layer_first")
    s, calls = make(host), []
    run = s._session._run
    monkeypatch.setattr(s._session, "_run", lambda op, keys, packed, depth, *rest: calls.append(
        (len(keys), len(packed.addrs), depth)) or run(op, keys, packed, depth, *rest))
    keys = names(128)
    s.batch_set_v1(keys, fake.indices(0, 128), fake.HiCacheStorageExtraInfo(prefix_keys=["x"] * 7))
    s.batch_get_v1(keys, fake.indices(0, 128))
    assert calls == [(128, 128 * 6, 8), (128, 128 * 6, 0)]


def test_memory_is_pinned_once(make, monkeypatch):
    pinned, host = [], fake.HostKVCache()
    register = kvctx.Session.register
    monkeypatch.setattr(kvctx.Session, "register", lambda s, buffer: pinned.append(buffer) or register(s, buffer))
    s, other = make(host, others=((SWA, host),)), fake.HostKVCache("layer_first")
    s.register_mem_host_pool_v2(other, MAMBA)
    assert pinned == [(h.kv_buffer.data_ptr(), h.kv_buffer.nbytes) for h in (host, other)]


def test_an_empty_batch(make):
    s = make()
    assert s.batch_get_v1([], fake.indices(0, 0)) == [] == s.batch_set_v1([], fake.indices(0, 0))
    assert s.batch_exists([]) == 0 and not s.errors


# Names


def stored(s, host, keys):
    host.fill()
    assert all(s.batch_set_v1(keys, fake.indices(0, len(keys))))


@pytest.mark.parametrize("how", [{"tp_rank": 1}, {"pp_rank": 1}, {"attn_cp_rank": 1}, {"model_name": "b"},
                                 {"keyspace": "b"}, {"tp_size": 4}, {"pp_size": 4}, {"attn_cp_size": 4}])
def test_another_rank_or_model_finds_nothing(make, how):
    host, keys = fake.HostKVCache(), names(3)
    all = {"tp_size": 2, "pp_size": 2, "attn_cp_size": 2}
    stored(make(host, **all), host, keys)
    assert make(fake.HostKVCache(), **all).batch_exists(keys) == 3
    assert make(fake.HostKVCache(), **{**all, **how}).batch_exists(keys) == 0


@pytest.mark.parametrize("what,value", [("layout", "page_head"), ("dtype", "float8"), ("page_size", 8), ("PIECE", 1024),
                                        ("end_layer", 7)])
def test_another_shape_finds_nothing(make, what, value):
    host, keys, other = fake.HostKVCache(), names(3), fake.HostKVCache()
    stored(make(host), host, keys)
    setattr(other, what, value)
    assert make(other).batch_exists(keys) == 0


BYTES = "torch.uint8"  # what SGLang keeps FP8 and FP4 as


def as_bytes(server="auto", draft=None, of_device=None, **more):
    """A host pool of bytes, as with kv_cache_dtype and speculative_draft_kv_cache_dtype of a server's."""
    fake.Config.arguments = {"kv_cache_dtype": server, "speculative_draft_kv_cache_dtype": draft} if server else {}
    host = fake.HostKVCache()
    host.dtype = BYTES
    if of_device:
        host.device_pool = types.SimpleNamespace(dtype=of_device)
    for name, value in more.items():
        setattr(host, name, value)
    return host


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fake.Config, "arguments", {})


E4M3, E5M2 = "torch.float8_e4m3fn", "torch.float8_e5m2"


@pytest.mark.parametrize("one,other", [
    ({"server": "fp8_e4m3"}, {"server": "fp8_e5m2"}), ({"server": "nvfp4"}, {"server": "fp4_mx_block16"}),
    ({"server": "fp8_e4m3"}, {"server": "fp8_e4m3", "draft": "fp8_e5m2"}),
    ({"server": None, "of_device": E4M3}, {"server": None, "of_device": E5M2}),
    ({"of_device": E4M3}, {"of_device": E5M2}),
    ({"of_device": E4M3, "server": "mxfp8"}, {"of_device": E4M3, "server": "fp8_e4m3"}),
    ({"temporal_dtype": "torch.float16"}, {"temporal_dtype": "torch.bfloat16"})])
@pytest.mark.parametrize("which", [KV, SWA])
def test_another_dtype_that_is_kept_as_bytes_finds_nothing(make, server, one, other, which):
    keys, found = names(3), []
    for how in (one, other, one):
        s = make(as_bytes(**how)) if which == KV else make(others=((which, as_bytes(**how)),))
        with_kv = [fake.PoolTransfer(n, fake.indices(0, 3), keys=keys) for n in {KV, which}]
        found.append(s.batch_exists_v2(keys, [fake.PoolTransfer(which)] if which != KV else []).kv_hit_pages)
        if len(found) == 1:
            assert s.batch_set_v2(with_kv) == {n: [True] * 3 for n in {KV, which}}
    assert found == [0, 0, 3]


def test_what_the_host_pool_tells_itself_changes_no_name(server):
    plain = sglang.HostPool(KV, fake.HostKVCache(), False).shape
    for arguments in ({}, {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "bf16"}):
        fake.Config.arguments = arguments
        host = fake.HostKVCache()
        host.device_pool = types.SimpleNamespace(dtype=host.dtype)
        host.temporal_dtype = host.dtype
        assert sglang.HostPool(KV, host, False, sglang.kv_arguments()).shape == plain
        host.device_pool = None
        assert sglang.HostPool(KV, host, False, sglang.kv_arguments()).shape == plain


def test_bytes_of_which_nothing_tells_the_dtype_are_warned_of(make, server, caplog):
    with caplog.at_level(logging.WARNING):
        make(as_bytes("fp8_e4m3"))
        make(as_bytes(None, of_device=E5M2))
        assert not caplog.records
        make(as_bytes(None))
    assert ["keyspace" in r.getMessage() for r in caplog.records] == [True]


def test_ranks_share_replicated_pages_and_no_others(make):
    host, keys = fake.MLATokenToKVPoolHost(), names(3)
    others = ((MAMBA, fake.HostKVCache()), (DRAFT, fake.HostKVCache()), (SWA, fake.HostKVCache()))
    first, second = (make(host, is_mla_model=True, tp_rank=r, tp_size=2, others=others) for r in (0, 1))
    stored(first, host, keys)
    done = first.batch_set_v2([fake.PoolTransfer(n, fake.indices(0, 3), keys=keys) for n, _ in others])
    assert done == {n: [True] * 3 for n, _ in others}
    assert second.batch_exists(keys) == 3
    found = {n: second.batch_exists_v2(keys, [fake.PoolTransfer(n)]).kv_hit_pages for n, _ in others}
    assert found == {MAMBA: 0, DRAFT: 0, SWA: 3}
    assert sglang.HostPool("draft", fake.MLATokenToKVPoolHost(), True).sharded is False


def test_ranks_of_decode_context_parallel_share_nothing_with_others(make):
    """Each has other tokens of every page, also of a model whose KV is the same on all ranks else."""
    host, keys = fake.MLATokenToKVPoolHost(), names(3)
    how = {"is_mla_model": True, "tp_size": 4, "dcp_size": 2}
    first, second, third = (make(host, tp_rank=r, dcp_rank=r % 2, **how) for r in range(3))
    stored(first, host, keys)
    assert [s.batch_exists(keys) for s in (first, second, third)] == [3, 0, 3]
    assert make(host, is_mla_model=True, tp_size=4).batch_exists(keys) == 0


def test_names_that_are_no_hash(make):
    host, keys = fake.HostKVCache(), ["a", "b" * 64 + "c", "x" * 64, "é"]
    s = make(host)
    stored(s, host, keys)
    assert s.batch_exists(keys) == 4 and s.batch_exists(["b"]) == 0


# Hybrid models


def test_prefixes_that_all_host_pools_serve(make):
    host, states, windows = fake.HostKVCache(), fake.HostKVCache("layer_first"), fake.HostKVCache()
    s, keys = make(host, others=((MAMBA, states), (SWA, windows))), names(12)
    stored(s, host, keys)
    s.batch_set_v2([fake.PoolTransfer(MAMBA, fake.indices(0, 3), keys=[keys[3], keys[6], keys[7]]),
                    fake.PoolTransfer(SWA, fake.indices(0, 10), keys=keys[:10])])

    def ask(*transfers):
        r = s.batch_exists_v2(keys, list(transfers))
        return r.kv_hit_pages, r.extra_pool_hit_pages, r.restorable_prefix_pages

    trailing, every = fake.PoolHitPolicy.TRAILING_PAGES, fake.PoolHitPolicy.ALL_PAGES
    assert ask() == (12, {KV: 12}, list(range(1, 13)))
    assert ask(fake.PoolTransfer(SWA, hit_policy=every)) == (10, {KV: 12, SWA: 10}, list(range(1, 11)))
    assert ask(fake.PoolTransfer(MAMBA, keys=["x"], hit_policy=trailing)) == (8, {KV: 12, MAMBA: 8}, [4, 7, 8])
    assert ask(fake.PoolTransfer(MAMBA, keys=["x", "y"], hit_policy=trailing)) == (8, {KV: 12, MAMBA: 8}, [8])
    assert ask(fake.PoolTransfer(MAMBA, hit_policy=every)) == (0, {KV: 12}, [])
    groups = fake.PoolTransfer(SWA, keys=keys, hit_policy=fake.PoolHitPolicy.BLOCK_GROUPS, block_pages=4, group_pages=3)
    assert ask(groups) == (12, {KV: 12, SWA: 12}, list(range(1, 13)))
    assert s.batch_exists_v2(names(2), [groups]).kv_hit_pages == 0 and not s.errors


def test_one_host_pool_that_fails_leaves_the_others(make):
    host, window = fake.HostKVCache(), fake.HostKVCache()
    s, keys = make(host, others=((SWA, window),)), names(2)
    pages = window.fill()
    transfers = [fake.PoolTransfer(DRAFT, fake.indices(0, 2), keys=keys),
                 fake.PoolTransfer(SWA, fake.indices(0, 2), keys=keys),
                 fake.PoolTransfer(KV, fake.indices(0, 1), keys=keys)]
    assert s.batch_set_v2(transfers) == {DRAFT: [False] * 2, SWA: [True] * 2, KV: [False] * 2}
    window.wipe()
    assert s.batch_get_v2(transfers) == {DRAFT: [False] * 2, SWA: [True] * 2, KV: [False] * 2}
    assert [window.page(n) for n in (0, 1)] == pages[:2]


def test_an_anchor_without_bytes(make):
    window, keys = fake.HostKVCache(), names(3)
    s = make(fake.LogicalHostPool(), others=((SWA, window),))
    window.fill()
    assert s.batch_set_v1(keys, fake.indices(0, 3)) == [True] * 3 == s.batch_get_v1(keys, fake.indices(0, 3))
    assert s.batch_exists(keys) == 0  # nothing says that there is anything
    s.batch_set_v2([fake.PoolTransfer(SWA, fake.indices(0, 2), keys=keys[:2])])
    assert s.batch_exists_v2(keys, [fake.PoolTransfer(SWA)]).kv_hit_pages == 2


@pytest.mark.parametrize("v1", [0, 1])
def test_pages_that_are_copied(make, v1):
    """A host pool that cannot tell its pieces, and a configuration without interface_v1."""
    host = fake.WithoutPieces() if v1 else fake.HostKVCache()
    s, keys, pages = make(host, v1=v1), names(5), host.fill()
    if v1:
        assert s.batch_set_v1(keys, fake.indices(2, 5)) == [True] * 5
    else:
        assert s.batch_set(keys, [host.get_data_page(4 * n) for n in range(2, 7)]) is True
    host.wipe()
    assert s.batch_exists(keys) == 5
    if v1:
        assert s.batch_get_v1([keys[0], *names(1)], fake.indices(2, 2)) == [True, False]
    else:
        found = s.batch_get([keys[0], *names(1)], [host.get_dummy_flat_data_page() for _ in "ab"])
        assert found[1] is None
        host.set_from_flat_data_page(8, found[0])
        assert s.get(keys[1], host.get_dummy_flat_data_page()).bytes == pages[3][::-1]
        assert s.get("x", host.get_dummy_flat_data_page()) is None and s.get(keys[0]) is None
        assert s.set("y", host.get_data_page(8)) and s.exists("y") and not s.set("z") and not s.exists("z")
    assert host.page(2) == pages[2] and host.page(3) == bytes(len(pages[3]))


# What goes wrong


CALLS = {"batch_get_v1": lambda s, k: s.batch_get_v1(k, fake.indices(0, 2)),
         "batch_set_v1": lambda s, k: s.batch_set_v1(k, fake.indices(0, 2)),
         "batch_get_v2": lambda s, k: s.batch_get_v2([fake.PoolTransfer(KV, fake.indices(0, 2), keys=k)])[KV],
         "batch_set_v2": lambda s, k: s.batch_set_v2([fake.PoolTransfer(KV, fake.indices(0, 2), keys=k)])[KV],
         "batch_exists": lambda s, k: s.batch_exists(k), "exists": lambda s, k: s.exists(k[0]),
         "batch_exists_v2": lambda s, k: s.batch_exists_v2(k, [fake.PoolTransfer(SWA)]).kv_hit_pages,
         "get": lambda s, k: s.get(k[0], s.mem_pool_host.get_dummy_flat_data_page()),
         "batch_get": lambda s, k: s.batch_get(k, [s.mem_pool_host.get_dummy_flat_data_page()] * 2)[0],
         "set": lambda s, k: s.set(k[0], s.mem_pool_host.get_data_page(0)),
         "batch_set": lambda s, k: s.batch_set(k, [s.mem_pool_host.get_data_page(0)] * 2),
         "clear": lambda s, k: s.clear()}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("why", [RuntimeError("odd"), error(-5, "x"), error(-19, "x"), MemoryError()])
def test_nothing_raises(make, monkeypatch, caplog, call, why):
    s, keys = make(others=((SWA, fake.HostKVCache()),)), names(2)

    def fails(*_, **__):
        raise why
    for name in ("_run", "match", "load", "store", "flush"):
        monkeypatch.setattr(kvctx.Session, name, fails)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert CALLS[call](s, keys) in (0, False, None, [False, False])
    assert sum(s.errors.values()) >= 3 or why.args[:1] == (19,)
    assert 1 <= len([r for r in caplog.records if r.levelno == logging.ERROR]) <= len(s.errors)
    monkeypatch.undo()


@pytest.mark.parametrize("call", CALLS)
def test_nothing_raises_once_it_is_closed(make, call):
    s = make(others=((SWA, fake.HostKVCache()),))
    s.close()
    assert CALLS[call](s, names(2)) in (0, False, None, [False, False])


def test_indices_that_do_not_fit(make):
    s, keys = make(), names(2)
    assert s.batch_set_v1(keys, fake.indices(0, 3)) == [False] * 2 == s.batch_get_v1(keys, fake.Indices([0, 1]))
    assert s.batch_set_v1(keys, None) == [False] * 2 and s.batch_exists(keys) == 0


def test_pages_of_one_batch_fail_alone(make, monkeypatch, caplog):
    s, keys = make(), names(6)
    size = len(s.mem_pool_host.page(0))

    def results(*_, **__):
        return kvctx.Results(array("i", [size, -5, -2, 0, -5, size - 1]))
    monkeypatch.setattr(s._session, "_run", results)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert s.batch_get_v1(keys, fake.indices(0, 6)) == [True] + [False] * 5
    assert s.errors == {"load: Error 5": 4, "load: ValueError": 2}
    assert (s.counts["loaded"], s.counts["missed"], s.counts["unadmitted"]) == (2, 2, 2)
    assert len(caplog.records) == 2


def test_memory_that_cannot_be_pinned_is_copied(make, monkeypatch):
    def fails(*_):
        raise error(-12, "register")
    host = fake.HostKVCache()
    monkeypatch.setattr(kvctx.Session, "register", fails)
    s, keys, pages = make(host), names(40), host.fill()
    monkeypatch.undo()
    assert all(s.batch_set_v1(keys, fake.indices(0, 40)))
    host.wipe()
    assert all(s.batch_get_v1(keys, fake.indices(0, 40))) and [host.page(n) for n in range(40)] == pages[:40]
    assert sum(s.errors.values()) == 1


@pytest.mark.parametrize("extra", [{}, {"path": ""}, {"path": "/x", "pth": 1}, {"path": "/x", "max_bytes": "many"}])
def test_wrong_options_are_refused_at_the_start(extra):
    with pytest.raises(ValueError):
        sglang.KvctxHiCache(fake.HiCacheStorageConfig(extra_config=extra))


@pytest.mark.process
def test_a_pool_that_is_not_there_is_refused_at_the_start(make, tmp_path):
    with pytest.raises(kvctx.Error):
        make(path=str(tmp_path / "nothing" / "default"))
    assert make(path=str(tmp_path / "new" / "default"), max_bytes=32 << 20).batch_exists(names(1)) == 0


# The epoch


def test_clear_is_for_all_ranks_and_for_good(make):
    host, keys = fake.MLATokenToKVPoolHost(), names(3)
    ranks = [make(host, is_mla_model=True, tp_rank=r, tp_size=3) for r in range(3)]
    for _ in range(3):
        stored(ranks[0], host, keys)
        assert [r.batch_exists(keys) for r in ranks] == [3, 3, 3]
        assert [r.clear() for r in ranks] == [True] * 3
        assert [r.batch_exists(keys) for r in ranks] == [0, 0, 0]
        assert len({r._epoch for r in ranks}) == 1
    stored(ranks[2], host, keys)
    assert make(host, is_mla_model=True).batch_exists(keys) == 3


def test_servers_that_miss_a_clear_follow(make):
    host, keys = fake.MLATokenToKVPoolHost(), names(3)
    first, second = (make(host, is_mla_model=True) for _ in range(2))
    stored(second, host, keys)
    assert second.batch_exists(keys) == 3
    assert [first.clear(), first.clear()] == [True, True]
    assert second.batch_exists(keys) == 3  # it has not looked yet
    second._epoch_kept = 0.0
    assert second.batch_exists(keys) == 0 and second._epoch == first._epoch
    stored(second, host, keys)
    assert first.batch_exists(keys) == 3
    first.clear()
    first.clear()
    assert second.clear() and second._epoch == first._epoch and second.batch_exists(keys) == 0


def test_the_epoch_of_a_clear_before_any_session_is_nobody_elses(pool):
    extra = {"backend_name": "kvctx", "path": os.path.join(pool.path, "default")}
    servers = [sglang.KvctxHiCache(fake.HiCacheStorageConfig(extra_config=extra), {}) for _ in "ab"]
    assert [s.clear() for s in servers] == [False, False], "nobody is told"
    assert len({s._epoch for s in servers}) == 2
    assert all(len(s._epoch) == sglang.EPOCH_BYTES for s in servers)


def test_a_clear_that_could_not_be_told_is_told_later(make, monkeypatch):
    host, keys = fake.HostKVCache(), names(3)
    s = make(host)
    stored(s, host, keys)

    def fails(*_, **__):
        raise error(-5, "x")
    monkeypatch.setattr(kvctx.Session, "load", fails)
    assert [s.clear(), s.clear()] == [False, False]
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", fake.torch())
    assert s.batch_exists(keys) == 0
    s._epoch_kept = 0.0
    assert s.batch_exists(keys) == 0 and make(host).batch_exists(keys) == 0
    stored(s, host, keys)
    assert make(host).batch_exists(keys) == 3


def test_a_clear_is_no_success_while_it_is_not_known_what_is_stored(make, monkeypatch):
    """An epoch that could not be read, as when a time limit passed, is not one that is absent."""
    host, keys = fake.HostKVCache(), names(3)
    s = make(host)
    stored(s, host, keys)
    with monkeypatch.context() as m:
        m.setattr(kvctx.Session, "load", lambda self, *_: m.undo() or kvctx.Results(array("i", [-errno.ETIME])))
        assert s.clear() is False
    assert s.batch_exists(keys) == 0, "and the others are told"
    assert make(host).batch_exists(keys) == 0 and s.clear() is True


@pytest.mark.parametrize("times", [1, 9])
def test_a_clear_while_another_server_stores_the_former_epoch(make, monkeypatch, times):
    host, keys, left, store = fake.HostKVCache(), names(3), [times], kvctx.Session.store
    s = make(host)
    stored(s, host, keys)
    former = s._epoch

    def store_both(self, names, buffers, **how):
        results = store(self, names, buffers, **how)
        if left[0]:
            left[0] -= 1
            store(self, names, [former], replace=True).check()
        return results
    monkeypatch.setattr(kvctx.Session, "store", store_both)
    assert s.clear() is (times == 1) and s._epoch != former
    assert s.batch_exists(keys) == 0
    left[0] = 0
    s._epoch_kept = 0.0
    assert s.batch_exists(keys) == 0 and make(host).batch_exists(keys) == 0


def test_a_clear_that_is_not_admitted_is_no_success(make, monkeypatch):
    s = make()
    s._session.delete(sglang.EPOCH).check()
    monkeypatch.setattr(kvctx.Session, "store", lambda *_, **__: kvctx.Results(array("i", [0])))
    assert s.clear() is False and s.batch_exists(names(3)) == 0


def test_an_epoch_that_was_left_does_not_come_back(make):
    s = make()
    former = s._epoch
    s._former.add(hashlib.sha256(former).digest())
    assert s.clear() and s._epoch not in s._former and former in s._former
    with pytest.raises(ValueError):
        s._set_epoch(former)


def test_an_epoch_that_was_lost_makes_the_cache_empty_and_never_stale(make):
    host, keys = fake.HostKVCache(), names(3)
    s = make(host)
    stored(s, host, keys)
    s._session.delete(sglang.EPOCH).check()
    assert make(host).batch_exists(keys) == 0


def test_an_epoch_in_use_is_kept(make):
    host, keys = fake.HostKVCache(), names(3)
    s = make(host)
    stored(s, host, keys)
    s._session.delete(sglang.EPOCH).check()
    s._epoch_kept = 0.0
    assert s.batch_exists(keys) == 3 and make(host).batch_exists(keys) == 3


# Threads, the daemon, figures


def test_threads(make):
    host, wrong = fake.HostKVCache(), []
    s, pages = make(host), host.fill()

    def work(first):
        keys = names(16)
        for _ in range(20):
            good = all(s.batch_set_v1(keys, fake.indices(first, 16))) and s.batch_exists(keys) == 16 and \
                all(s.batch_get_v1(keys, fake.indices(first, 16)))
            if not good or [host.page(first + n) for n in range(16)] != pages[first:first + 16]:
                wrong.append(first)
    threads = [threading.Thread(target=work, args=(16 * n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and not s.errors


def test_a_daemon_that_comes_back_is_used_again(make, daemon, monkeypatch):
    monkeypatch.setattr(sglang, "REOPEN_SECONDS", 0.2)
    host, keys = fake.HostKVCache(), names(8)
    s = make(host, path=os.path.join(daemon.pool.path, "default"))
    pages = host.fill()
    assert all(s.batch_set_v1(keys, fake.indices(0, 8)))
    s._session.flush()
    daemon.end(signal.SIGKILL)
    assert not any(s.batch_get_v1(keys, fake.indices(0, 8))) and s.batch_exists(keys) == 0
    assert not any(s.batch_set_v1(keys, fake.indices(0, 8)))
    daemon.start()
    time.sleep(0.3)
    host.wipe()
    assert s.batch_exists(keys) == 8 and all(s.batch_get_v1(keys, fake.indices(0, 8)))
    assert [host.page(n) for n in range(8)] == pages[:8]


def test_batches_wait_for_a_daemon_that_is_stopped(make, daemon):
    """It is the daemon that counts the time limit."""
    host, keys, done = fake.HostKVCache(), names(8), []
    s = make(host, path=os.path.join(daemon.pool.path, "default"), timeout=1)
    stored(s, host, keys)
    calls = [threading.Thread(target=lambda call=call: done.append(call())) for call in (
        lambda: all(s.batch_get_v1(keys, fake.indices(0, 8))), lambda: s.batch_exists(keys) == 8)]
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        for call in calls:
            call.start()
        time.sleep(1.3)
        assert not done
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        for call in calls:
            call.join(60)
    assert done == [True, True] and not s.errors


@pytest.mark.process
def test_a_member_that_is_lost_costs_its_pages_only(lossy, make):
    """The session may be what keeps the pool attached: without it nobody could open another."""
    host, keys = fake.HostKVCache(), names(8)
    s = make(host)
    pages, session = host.fill(), s._session
    assert all(s.batch_set_v1(keys, fake.indices(0, 8)))
    for _ in range(2):
        host.wipe()
        assert s.batch_get_v1(keys, fake.indices(0, 8)) == [False] + [True] * 7
        assert s.batch_exists(keys) == 8 and [host.page(n) for n in range(1, 8)] == pages[1:8]
        assert s._session is session and not session.closed


def test_figures(make):
    s, keys = make(enable_storage_metrics=True), names(4)
    s.batch_set_v1(keys, fake.indices(0, 4))
    s.batch_get_v1(keys[:3], fake.indices(0, 3))
    stats = s.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([4], [3]) and stats.prefetch_bandwidth[0] > 0
    assert s.get_stats() == fake.StorageMetrics() and make().get_stats() is None
