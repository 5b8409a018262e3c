# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx.sglang under SGLang's own classes: host pools of all layouts, its factory and fault injection, its controller.

usage: prove.py FOLDER

Makes pools in FOLDER; KVCTX_BIN is the folder with kvctxd. Prints a line for each check, and ends with "sglang: N
passed, N failed, N skipped"; exit status 1 when any failed.
"""
import logging
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
import types

import agree
import torch
from kvctxd import Daemon
from pools import (LAYOUTS, PAGES, fill, indices, mamba, mha, mla, names, ours, page_of, same, storage, tensors, wipe)
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

import kvctx

FOLDER = sys.argv[1]
POOL_BYTES = 128 << 20
checks = []


def check(f):
    checks.append((f.__name__.replace("_", " "), f))
    return f


def for_each(values):
    def register(f):
        for v in values:
            checks.append((f"{f.__name__.replace('_', ' ')}: {v}", lambda v=v: f(v)))
        return f
    return register


def expect(what, got, want=True):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")


def path(name="p", size=POOL_BYTES):
    """A tenant of a pool in this process, one for each check."""
    folder = os.path.join(FOLDER, f"{name}{time.monotonic_ns()}")
    kvctx.create_pool(folder, size)
    return os.path.join(folder, "default")


class Faults:
    """SGLang's own injection of failures and delays, for storages made inside."""

    def __enter__(self):
        os.environ.update(SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE="0.3",
                          SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY="0.002")

    def __exit__(self, *_):
        for name in ("FAILURE", "DELAY"):
            del os.environ[f"SGLANG_TEST_HICACHE_BACKEND_RANDOM_{name}"]


@check
def the_fakes_of_its_classes_are_like_them():
    expect("differences", [d for found in agree.compare("sglang").values() for d in found], [])


@for_each(LAYOUTS)
def all_pages_of_a_host_pool_come_back(layout):
    pool, where = mha(layout), path()
    s, keys, copy = storage(where, pool), names(PAGES), fill(pool)
    expect("set", s.batch_set_v1(keys, indices(pool, 0, PAGES)), [True] * PAGES)
    expect("exists", s.batch_exists(keys + names(1)), PAGES)
    expect("none before the first", s.batch_exists(names(1) + keys), 0)
    wipe(pool)
    expect("get", s.batch_get_v1(keys, indices(pool, 0, PAGES)), [True] * PAGES)
    expect("bit exact", same(pool, copy))
    expect("memory is pinned, not copied", len(ours(s)._pinned) > 0)
    expect("failures", dict(ours(s).errors), {})
    s.close()
    # another server, later; pages to other places
    wipe(pool)
    s = storage(where, pool)
    order = torch.randperm(PAGES)
    where_to = torch.cat([indices(pool, int(n), 1) for n in order])
    expect("get", s.batch_get_v1(keys, where_to), [True] * PAGES)
    moved = [page_of(pool, int(n)) for n in order]
    wipe(pool)
    expect("get", s.batch_get_v1(keys, indices(pool, 0, PAGES)), [True] * PAGES)
    expect("bit exact", same(pool, copy))
    expect("bit exact in other places", all(torch.equal(page_of(pool, n), m) for n, m in enumerate(moved)))
    s.close()


@for_each(LAYOUTS)
def nothing_wrong_under_fault_injection(layout):
    """What SGLang is told to have succeeded has, whatever fails around it; nothing is raised."""
    pool = mha(layout)
    with Faults():
        s = storage(path(), pool)
    expect("the injector is there", type(s).__name__, "HiCacheStorageFailureInjector")
    keys, copy = names(PAGES), fill(pool)
    pages = [page_of(pool, n) for n in range(PAGES)]
    stored, loaded, failures = set(), set(), 0
    for _ in range(300):
        for n in range(0, PAGES, 4):
            some = keys[n:n + 4]
            if not set(some) <= stored:
                ok = s.batch_set_v1(some, indices(pool, n, 4))
                stored |= {k for k, good in zip(some, ok) if good}
                failures += not all(ok)
        if len(stored) == PAGES:
            break
    expect("everything was stored in the end", len(stored), PAGES)
    wipe(pool)
    for _ in range(300):
        for n in range(0, PAGES, 4):
            some, where = keys[n:n + 4], indices(pool, n, 4)
            if some[0] not in loaded and s.batch_exists(some) in (0, 4):
                ok = s.batch_get_v1(some, where)
                failures += not all(ok)
                if all(ok):
                    loaded |= set(some)
                    expect("bit exact", all(torch.equal(page_of(pool, n + i), pages[n + i]) for i in range(4)))
        if len(loaded) == PAGES:
            break
    expect("everything was loaded in the end", same(pool, copy))
    expect("failures were injected", failures > 5)
    expect("none was ours", dict(ours(s).errors), {})
    ours(s).close()


@for_each(("interface_v1", "copied pages"))
def several_threads(how):
    """Backup, prefetch and lookups at once, each thread with pages of its own; also of pages that are not there."""
    v1 = how == "interface_v1"
    pool = mha("page_first")
    s = storage(path(), pool, v1=int(v1))
    copy, wrong = fill(pool), []
    pages = [page_of(pool, n) for n in range(PAGES)]

    def put(keys, first):
        where = indices(pool, first, 16)
        if v1:
            return all(s.batch_set_v1(keys, where))
        return s.batch_set(keys, [pool.get_data_page(first * 64 + 64 * i) for i in range(16)]) and \
            s.set(keys[0], pool.get_data_page(first * 64))

    def take(keys, first):
        if v1:
            return all(s.batch_get_v1(keys, indices(pool, first, 16)))
        found = s.batch_get(keys, [pool.get_dummy_flat_data_page() for _ in keys])
        one = s.get(keys[0], pool.get_dummy_flat_data_page())
        if one is None or any(f is None for f in found):
            return False
        for i, page in enumerate([one, *found[1:]]):
            pool.set_from_flat_data_page((first + i) * 64, page)
        return True

    def work(first):
        try:
            for _ in range(6):
                keys = names(16)
                expect("nothing is there", s.batch_exists(keys), 0)
                expect("get what is not there", take(keys, first), False)
                for i in range(16):  # a load that fails may leave anything
                    pool.set_from_flat_data_page((first + i) * 64, pages[first + i].view(pool.dtype))
                expect("set", put(keys, first))
                expect("exists", (s.batch_exists(keys), s.exists(keys[3])), (16, True))
                for i in range(16):
                    pool.set_from_flat_data_page((first + i) * 64, torch.zeros_like(pages[0]).view(pool.dtype))
                expect("get", take(keys, first))
                expect("bit exact", all(torch.equal(page_of(pool, first + i), pages[first + i]) for i in range(16)))
        except Exception:
            wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, PAGES, 16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect("failures", wrong, [])
    expect("bit exact", same(pool, copy))
    expect("errors", dict(ours(s).errors), {})
    s.close()


@check
def another_shape_is_never_found():
    where = path()
    pool = mha("page_first")
    s, keys, _ = storage(where, pool), names(4), fill(pool)
    expect("set", s.batch_set_v1(keys, indices(pool, 0, 4)), [True] * 4)
    s.close()
    for what, other, how in (("another layout", mha("page_first_direct"), {}),
                             ("another model", pool, {"model_name": "b"}),
                             ("another dtype", mha("page_first", torch.float16), {}),
                             ("another rank", pool, {"tp_rank": 1, "tp_size": 2}),
                             ("another stage", pool, {"pp_rank": 1, "pp_size": 2}),
                             ("another name", pool, {"keyspace": "mine"})):
        t = storage(where, other, **how)
        expect(what, (t.batch_exists(keys), t.batch_get_v1(keys, indices(other, 0, 4))), (0, [False] * 4))
        t.close()
    s = storage(where, pool)
    expect("the same", s.batch_exists(keys), 4)
    s.close()


def told(**arguments):
    """SGLang's configuration of a server, resolved and published by itself."""
    from sglang.srt.runtime_context import get_context
    return get_context().override_server_args(**arguments)


@for_each(("interface_v1", "copied pages", "a hybrid model"))
def another_dtype_that_is_kept_as_bytes_is_never_found(how):
    """FP8 of both kinds is torch.uint8 in SGLang's pools, and the host pool has no device pool that could tell."""
    where, pool, v1 = path(), mha("page_first", torch.uint8), how != "copied pages"
    window, keys = mha("layer_first", torch.uint8), names(4)
    fill(pool)
    fill(window)
    others = ((PoolName.SWA, window),) if how == "a hybrid model" else ()
    found = []
    for dtype in ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3"):
        with told(kv_cache_dtype=dtype):
            s = storage(where, pool, others=others, v1=int(v1))
        asked = [PoolTransfer(n, keys=keys, hit_policy=PoolHitPolicy.ALL_PAGES) for n, _ in others]
        found.append(s.batch_exists_v2(keys, asked).kv_hit_pages if others else s.batch_exists(keys))
        if len(found) == 1:
            moved = [PoolTransfer(n, indices(p, 0, 4), keys=keys) for n, p in ((PoolName.KV, pool), *others)]
            expect("set", all(map(all, s.batch_set_v2(moved).values())) if others else
                   all(s.batch_set_v1(keys, indices(pool, 0, 4))) if v1 else
                   s.batch_set(keys, [pool.get_data_page(64 * n) for n in range(4)]))
        s.close()
    expect("pages found", found, [0, 0, 4])


@for_each(("layer_first", "page_first", "page_first_direct"))
def ranks_share_what_is_the_same_on_all(layout):
    where, pool, other = path(), mla(layout), mla(layout)
    writer = storage(where, pool, is_mla_model=True, tp_rank=0, tp_size=2)
    reader = storage(where, other, is_mla_model=True, tp_rank=1, tp_size=2)
    keys, copy = names(PAGES), fill(pool)
    expect("set", all(writer.batch_set_v1(keys, indices(pool, 0, PAGES))))
    expect("exists", reader.batch_exists(keys), PAGES)
    expect("get", all(reader.batch_get_v1(keys, indices(other, 0, PAGES))))
    expect("bit exact", same(other, copy))
    writer.close()
    reader.close()


@check
def a_hybrid_model():
    """KV, and states that only some prefixes end with: the calls of version 2."""
    where, kv, state, window = path(), mha("page_first"), mamba(), mha("layer_first")
    s = storage(where, kv, others=((PoolName.MAMBA, state), (PoolName.SWA, window)))
    keys = names(12)
    copies = [fill(p) for p in (kv, state, window)]

    def transfers(mamba_keys, swa_keys):
        return [PoolTransfer(PoolName.KV, indices(kv, 0, 12), keys=keys),
                PoolTransfer(PoolName.MAMBA, torch.tensor([keys.index(k) for k in mamba_keys]), keys=mamba_keys),
                PoolTransfer(PoolName.SWA, indices(window, 0, len(swa_keys)), keys=swa_keys)]

    done = s.batch_set_v2(transfers([keys[4], keys[9]], keys[:11]))
    expect("set", {n: all(r) for n, r in done.items()}, {PoolName.KV: True, PoolName.MAMBA: True, PoolName.SWA: True})
    states = PoolTransfer(PoolName.MAMBA, keys=[keys[0]], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    windows = PoolTransfer(PoolName.SWA, keys=keys, hit_policy=PoolHitPolicy.ALL_PAGES)
    found = s.batch_exists_v2(keys, [states, windows])
    expect("the longest prefix", found.kv_hit_pages, 10)
    expect("all prefixes", found.restorable_prefix_pages, [5, 10])
    expect("each host pool", found.extra_pool_hit_pages, {PoolName.KV: 12, PoolName.MAMBA: 10, PoolName.SWA: 11})
    for p in (kv, state, window):
        wipe(p)
    got = s.batch_get_v2(transfers([keys[4], keys[9]], keys))
    expect("KV", all(got[PoolName.KV]))
    expect("states", got[PoolName.MAMBA], [True, True])
    expect("windows, one of which is missing", got[PoolName.SWA], [True] * 11 + [False])
    expect("bit exact", all(torch.equal(page_of(kv, n), c) for n, c in enumerate(pages_in(kv, copies[0], 12))))
    for n in (4, 9):
        expect("bit exact", all(torch.equal(t[n].view(-1).view(torch.uint8), c.view(t.shape[0], -1)[n])
                                for t, c in zip(tensors(state), copies[1])))
    nobodys = PoolTransfer(PoolName.DRAFT, indices(kv, 0, 1), keys=keys[:1])
    expect("a host pool that nobody registered", s.batch_get_v2([nobodys]), {PoolName.DRAFT: [False]})
    s.close()


def pages_in(pool, copy, count):
    """Pages of what fill() returned."""
    now = [t.clone() for t in tensors(pool)]
    for t, c in zip(tensors(pool), copy):
        t.view(-1).view(torch.uint8).copy_(c)
    found = [page_of(pool, n) for n in range(count)]
    for t, n in zip(tensors(pool), now):
        t.copy_(n)
    return found


@check
def the_controller_of_sglang_stores_and_fetches():
    """Its own code for backup, lookup and prefetch of 300 pages, in batches of 128, with the prefix told."""
    from sglang.srt.managers.cache_controller import HiCacheController, PrefetchOperation, StorageOperation
    pool = mha("page_head", pages=300)
    s = storage(path(), pool)
    c = object.__new__(HiCacheController)
    c.storage_backend, c.storage_host_pool, c.mem_pool_host, c.page_size = s, pool, pool, pool.page_size
    c.page_get_func, c.page_set_func = c._page_get_zero_copy, c._page_set_zero_copy
    c.prefetch_sync_queue = queue.Queue()
    keys, copy = names(300), fill(pool)
    calls = []
    session = ours(s)._session
    run = session._run
    session._run = lambda op, names, *rest, **kw: calls.append(len(names)) or run(op, names, *rest, **kw)
    store = StorageOperation(indices(pool, 0, 300), list(range(300 * 64)), hash_value=keys, prefix_keys=[])
    c._page_backup(store)
    expect("tokens stored", store.completed_tokens, 300 * 64)
    wipe(pool)
    fetch = object.__new__(PrefetchOperation)
    fetch.__dict__.update(request_id="r", hash_value=keys, host_indices=indices(pool, 0, 300), prefix_keys=[],
                          pool_transfers=None)
    fetch.is_terminated = types.MethodType(lambda self: False, fetch)
    expect("pages fetched", c._page_transfer(fetch), 300)
    expect("bit exact", same(pool, copy))
    expect("pages of each submission", calls, [128, 128, 44] * 2)
    stats = s.get_stats()
    expect("figures", (stats.backup_pgs, stats.prefetch_pgs), ([128, 128, 44], [128, 128, 44]))
    expect("a rate for each", (len(stats.backup_bandwidth), len(stats.prefetch_bandwidth)), (3, 3))
    s.close()


@check
def damage_on_the_medium_is_a_page_that_is_missing():
    where, pool = path(), mha("page_first_direct")
    s, keys, _ = storage(where, pool), names(8), fill(pool)
    pages = [page_of(pool, n) for n in range(8)]
    expect("set", all(s.batch_set_v1(keys, indices(pool, 0, 8))))
    part = pool.kv_buffer[0].view(torch.uint8).view(-1)
    size = part.numel() // PAGES
    folder, spoilt = os.path.dirname(where), 0
    for member in os.listdir(folder):
        with open(os.path.join(folder, member), "r+b") as f:
            at = f.read().find(part[3 * size:3 * size + 64].numpy().tobytes())
            if at >= 0:
                f.seek(at)
                f.write(b"spoilt")
                spoilt += 1
    expect("the page was found on the medium", spoilt, 1)
    wipe(pool)
    got = s.batch_get_v1(keys, indices(pool, 0, 8))
    expect("get", got, [True] * 3 + [False] + [True] * 4)
    expect("bit exact", all(torch.equal(page_of(pool, n), pages[n]) for n in range(8) if n != 3))
    expect("it was counted", list(ours(s).errors.values()), [1])
    expect("it is gone", s.batch_exists(keys), 3)
    s.close()


@check
def a_pool_that_is_too_small():
    """What is evicted is a miss, and what is found is right."""
    where, pool = path(size=24 << 20), mha("page_first")
    s, copy, right = storage(where, pool), fill(pool), 0
    rounds = [names(PAGES) for _ in range(4)]
    for keys in rounds:
        s.batch_set_v1(keys, indices(pool, 0, PAGES))
    pages = [page_of(pool, n) for n in range(PAGES)]
    for keys in rounds:
        wipe(pool)
        got = s.batch_get_v1(keys, indices(pool, 0, PAGES))
        expect("bit exact", all(torch.equal(page_of(pool, n), pages[n]) for n in range(PAGES) if got[n]))
        right += sum(got)
    expect("some were found, some evicted", 0 < right < 4 * PAGES)
    expect("the copy is as it was", len(copy), 1)
    s.close()


@check
def clear_forgets_for_good():
    where, pool, other = path(), mla("page_first"), mla("page_first")
    ranks = [storage(where, p, is_mla_model=True, tp_rank=r, tp_size=2) for r, p in enumerate((pool, other))]
    keys, _ = names(8), fill(pool)
    for _ in range(2):
        expect("set", all(ranks[0].batch_set_v1(keys, indices(pool, 0, 8))))
        expect("exists", [r.batch_exists(keys) for r in ranks], [8, 8])
        expect("clear", [r.clear() for r in ranks], [True, True])
        expect("exists", [r.batch_exists(keys) for r in ranks], [0, 0])
    expect("set", all(ranks[0].batch_set_v1(keys[:3], indices(pool, 0, 3))))
    expect("ranks agree", ranks[1].batch_exists(keys), 3)
    for r in ranks:
        r.close()
    s = storage(where, pool, is_mla_model=True, tp_rank=0, tp_size=2)
    expect("after a restart", s.batch_exists(keys), 3)
    s.close()


@check
def through_kvctxd_which_is_killed_and_started_again():
    daemon = Daemon(POOL_BYTES)
    try:
        pools = [mha("layer_first"), mha("layer_first")]
        ranks = [storage(daemon.path, p, tp_rank=r, tp_size=2) for r, p in enumerate(pools)]
        keys, copies = names(PAGES), [fill(p) for p in pools]
        for s, p in zip(ranks, pools):
            expect("set", all(s.batch_set_v1(keys, indices(p, 0, PAGES))))
            expect("flush", ours(s)._session.flush(), None)
        for s, p, copy in zip(ranks, pools, copies):
            wipe(p)
            expect("get", all(s.batch_get_v1(keys, indices(p, 0, PAGES))))
            expect("bit exact", same(p, copy))
        daemon.end(signal.SIGKILL)
        for s, p in zip(ranks, pools):
            expect("get while it is gone", any(s.batch_get_v1(keys, indices(p, 0, PAGES))), False)
            expect("set while it is gone", any(s.batch_set_v1(keys, indices(p, 0, PAGES))), False)
            expect("exists while it is gone", s.batch_exists(keys), 0)
        daemon.start()
        time.sleep(1.1)
        for s, p, copy in zip(ranks, pools, copies):
            wipe(p)
            expect("exists again", s.batch_exists(keys), PAGES)
            expect("get again", all(s.batch_get_v1(keys, indices(p, 0, PAGES))))
            expect("bit exact", same(p, copy))
            s.close()
    finally:
        daemon.remove()


@check
def the_start_fails_for_what_the_user_got_wrong():
    pool = mha("page_first")
    for what, where, how in (("no such pool", os.path.join(FOLDER, "nowhere", "default"), {}), ("no path", "", {})):
        try:
            storage(where, pool, **how)
        except (kvctx.Error, ValueError):
            continue
        raise AssertionError(f"{what}: it starts")
    s = storage(os.path.join(FOLDER, "new", "default"), pool, max_bytes=32 << 20)
    expect("a pool was made", s.batch_exists(names(1)), 0)
    s.close()


def main():
    logging.disable(logging.ERROR)
    failed = 0
    for what, f in checks:
        try:
            f()
            print(f"ok {what}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {what}\n{traceback.format_exc()}", flush=True)
        for name in os.listdir(FOLDER):  # its pools: all of them together would be 3 GiB
            shutil.rmtree(os.path.join(FOLDER, name))
    print(f"sglang: {len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
