# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real engines on the CPU that answer from pages of kvctx, or in spite of them: each test compares all logprobs with
those of an engine without offloading. pytest runs them; KVCTX_BIN is the folder with kvctxd, KVCTX_MODEL the model.
"""
import json
import os
import shutil
import signal
import tempfile
import time

import agree
import pytest
from engines import PROMPTS, Router, apart, connector, run, start
from kvctxd import Daemon
from vllm.config.kv_events import KVEventsConfig

import kvctx
import kvctx.vllm.transfers as transfers

SHAPES = [(32, 0), (32, 128), (32, 96), (64, 192)]  # tokens of a block, of a chunk
CHUNKS = 36  # of 32 tokens in PROMPTS
MB = 1 << 20


def once(engine, pipe):
    hashes, cached = engine.round()
    return {"hashes": hashes, "cached": cached}


@pytest.fixture(scope="session")
def truth():
    """Hashes without offloading, by block size."""
    return {block: run(once, block=block)["hashes"] for block in sorted({b for b, _ in SHAPES})}


@pytest.fixture
def here():
    """A folder for a pool."""
    path = tempfile.mkdtemp(prefix="kvctx-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def daemon():
    d = Daemon(64 * MB)
    yield d
    d.remove()


@pytest.fixture(scope="session")
def shared():
    """One pool for all shapes: another layout must find nothing."""
    path = tempfile.mkdtemp(prefix="kvctx-")
    kvctx.create_pool(os.path.join(path, "kv0"), 64 * MB)
    yield os.path.join(path, "kv0", "default")
    shutil.rmtree(path)


def test_the_fakes_of_its_classes_are_like_them():
    assert {name: found for name, found in agree.compare("vllm").items() if found} == {}


def partly(engine, pipe):
    """As once(), but of each prompt the engine has the first two blocks already, so chunks are loaded from within."""
    blocks = engine.llm.llm_engine.vllm_config.cache_config.block_size
    engine.llm.reset_prefix_cache()
    answers = []
    for prompt in PROMPTS:
        engine.ask(prompt[:2 * blocks + 3], tokens=1)
        answers.append(engine.ask(prompt))
    return {"hashes": [a[0] for a in answers], "cached": [a[1] for a in answers]}


@pytest.mark.parametrize("block,chunk", SHAPES)
def test_stored_in_one_process_and_loaded_in_another(block, chunk, truth, shared):
    config = connector(shared, chunk)
    whole = 400 // (chunk or block) * (chunk or block)
    first = run(once, block=block, kv_transfer_config=config)
    assert (first["hashes"], first["cached"], first["loaded"]) == (truth[block], [0] * 3, 0)
    assert first["stored"] == 3 * (400 // (chunk or block))
    second = run(once, block=block, kv_transfer_config=config)
    assert (second["hashes"], second["cached"]) == (truth[block], [whole] * 3)
    assert (second["loaded"], second["stored"], second["failed"]) == (first["stored"], 0, 0)


def test_chunks_are_loaded_from_within(truth, shared):
    """The engine has the first blocks of a chunk of four, the others come from kvctx."""
    answer = run(partly, kv_transfer_config=connector(shared, 128))
    assert (answer["hashes"], answer["cached"]) == (truth[32], [384] * 3)
    assert (answer["loaded"], answer["failed"]) == (9, 0)


def test_stock_connector_with_the_spec(truth, shared):
    """vLLM's OffloadingConnector, as long as no load fails."""
    answer = run(once, kv_transfer_config=connector(shared, name="OffloadingConnector"))
    assert (answer["hashes"], answer["cached"]) == (truth[32], [384] * 3)


def names(engine, pipe):
    """As once(), and what names the pages: (keyspace's text, [key])."""
    seen = []
    submit = transfers._submit

    def note(session, load, part):
        seen.extend(part.keys)
        return submit(session, load, part)

    transfers._submit = note
    return dict(once(engine, pipe), keys=seen, text=engine.connector().spec._described)


def damage(path, text, keys):
    """Flip a bit of each of these pages where they are on the medium."""
    pages = []
    with kvctx.Session(path, keyspace=text) as s:
        for key, length in zip(keys, s.query(keys)):
            pages.append(bytearray(length))
            s.load([key], [pages[-1]]).check()
    medium = next(e.path for e in os.scandir(os.path.dirname(path)) if e.is_file())
    with open(medium, "r+b") as f:
        content = f.read()
        for page in pages:
            at = content.find(page[:4096])
            assert at >= 0 and content.find(page[:4096], at + 1) < 0
            f.seek(at + 1234)
            f.write(bytes([page[1234] ^ 4]))


def test_damaged_chunks_are_noticed_and_recomputed(truth, here):
    path = os.path.join(here, "kv0", "default")
    kvctx.create_pool(os.path.dirname(path), 64 * MB)
    config = connector(path)
    stored = run(names, kv_transfer_config=config)
    assert stored["stored"] == CHUNKS
    apart(damage, path, stored["text"], stored["keys"][2::5] + stored["keys"][:1])
    answer = run(thrice, kv_transfer_config=config)
    assert answer["hashes"] == [truth[32]] * 3
    assert answer["failed"] == 8, "each is noticed, once"
    assert answer["cached"][2] == [384] * 3, "the second request that missed them has stored them"
    again = run(once, kv_transfer_config=config)
    assert (again["hashes"], again["failed"], again["loaded"]) == (truth[32], 0, CHUNKS)


def pages(path):
    """What a tenant has."""
    with kvctx.Session(path) as s:
        return s.usage().pages


def thrice(engine, pipe):
    rounds = [engine.round() for _ in range(3)]
    return {"hashes": [r[0] for r in rounds], "cached": [r[1] for r in rounds]}


def test_pool_too_small(truth, here):
    """2.25 MiB of chunks in a pool of as much, with what it keeps free."""
    path = os.path.join(here, "kv0", "default")
    kvctx.create_pool(os.path.dirname(path), 9 * 256 * 1024, segment_bytes=256 * 1024)
    answer = run(thrice, kv_transfer_config=connector(path))
    assert answer["hashes"] == [truth[32]] * 3
    assert answer["stored"] > CHUNKS, "what was evicted is stored again"
    assert 0 < apart(pages, path) < CHUNKS


def told(engine, pipe):
    """Three rounds, and a router that hears of them: what it believes to be there at the end, and what is."""
    from kvctx.vllm.keys import page_keys
    router = Router(engine)
    hashes = []
    for _ in range(3):
        hashes.append(engine.round()[0])
        router.hear()
    session = engine.scheduler().connector.connector_scheduler.manager._link.session
    for _ in range(50):  # a step hears what the one before has stored and evicted
        chunks = {event.block_hashes[-1]: set(event.block_hashes) for event in router.stored}
        pages = page_keys([last + bytes(4) for last in chunks], [0])
        there = set().union(*(blocks for blocks, n in zip(chunks.values(), session.query(pages)) if n > 0))
        if there == router.here:
            break
        engine.ask(PROMPTS[0][:9], tokens=1)
        router.hear()
    router.close()
    return {"hashes": hashes, "told": [(e.token_ids, len(e.block_hashes)) for e in router.stored],
            "gone": router.gone, "believed": router.here, "there": there}


def test_routers_hear_what_was_stored_and_what_has_gone(truth, here):
    """Chunks of two blocks in a pool that is too small, with all that vLLM can tell of them: some are evicted before
    they could be announced."""
    path = os.path.join(here, "kv0", "default")
    kvctx.create_pool(os.path.dirname(path), 9 * 256 * 1024, segment_bytes=256 * 1024)
    events = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=f"ipc://{here}/events")
    answer = run(told, kv_transfer_config=connector(path, 64, self_describing_kv_events=True), kv_events_config=events)
    assert answer["hashes"] == [truth[32]] * 3
    chunks = [prompt[at:at + 64] for prompt in PROMPTS for at in range(0, 384, 64)]
    assert all(tokens in chunks and blocks == 2 for tokens, blocks in answer["told"])
    assert answer["gone"] > 0 and 2 * len(answer["told"]) == answer["gone"] + len(answer["believed"]), "each told once"
    assert answer["believed"] == answer["there"] != set()


def test_two_engines_share_a_pool(truth, daemon):
    engines = [start(thrice, kv_transfer_config=connector(daemon.path)) for _ in range(2)]
    try:
        answers = [e.result() for e in engines]
    finally:
        for e in engines:
            e.stop()
    for answer in answers:
        assert answer["hashes"] == [truth[32]] * 3
        assert answer["cached"][1:] == [[384] * 3] * 2 and answer["failed"] == 0
    assert apart(pages, daemon.path) == CHUNKS
    later = run(once, kv_transfer_config=connector(daemon.path))
    assert (later["hashes"], later["cached"], later["stored"]) == (truth[32], [384] * 3, 0)


def orphaned(engine, pipe):
    """Rounds, with kvctxd killed right after a load was submitted in the second one, until it is back."""
    pid = pipe.recv()
    rounds = [engine.round()]
    submit = transfers._submit

    def kill(session, load, part):
        if load and transfers._submit is kill:
            transfers._submit = submit
            os.kill(pid, signal.SIGSTOP)
            op = submit(session, load, part)
            os.kill(pid, signal.SIGKILL)
            return op
        return submit(session, load, part)

    transfers._submit = kill
    rounds += [engine.round(), engine.round()]
    before = engine.worker()._transfers.loaded.pages
    pipe.send(("said", "without it"))
    pipe.recv()
    for _ in range(100):
        if engine.worker()._link.session and before < engine.worker()._transfers.loaded.pages:
            break
        rounds.append(engine.round())
        time.sleep(0.2)
    return {"hashes": [r[0] for r in rounds], "cached": [r[1] for r in rounds], "before": before}


def test_daemon_killed_and_restarted(truth, daemon):
    engine = start(orphaned, kv_transfer_config=connector(daemon.path))
    try:
        engine.tell(daemon.process.pid)
        assert engine.hear() == "without it"
        daemon.process.wait(30)
        daemon.start()
        engine.tell("it is back")
        answer = engine.result()
    finally:
        engine.stop()
    assert all(hashes == truth[32] for hashes in answer["hashes"])
    assert answer["failed"] > 0, "a load was under way"
    assert answer["cached"][2] == [0] * 3, "nobody is there"
    assert answer["loaded"] > answer["before"], json.dumps(answer)


def test_workers_in_processes_of_their_own(daemon):
    """Two of them, tensor_parallel_size=2: each has a page of each chunk. Their logprobs differ from those of one.

    One engine, asked again: each of its workers is a new process that imports vLLM, which takes most of the time here.
    """
    answer = run(thrice, kv_transfer_config=connector(daemon.path), tensor_parallel_size=2,
                 distributed_executor_backend="mp")
    assert answer["cached"] == [[0] * 3, [384] * 3, [384] * 3], "these were computed, those loaded"
    assert answer["hashes"] == answer["hashes"][:1] * 3
    assert apart(pages, daemon.path) == 2 * CHUNKS


def test_directory_is_refused_to_workers_of_their_own(here):
    path = os.path.join(here, "kv0", "default")
    with pytest.raises(AssertionError, match="start kvctxd|WorkerProc initialization failed"):
        run(once, kv_transfer_config=connector(path, pool_bytes=64 * MB), distributed_executor_backend="mp")


def staged(path):
    """A worker that moves chunks through a staging area of two chunks, as it does with a GPU's tensors."""
    from types import SimpleNamespace

    import numpy
    import torch
    from kvctx.vllm.keys import Pages
    from kvctx.vllm.link import Options
    from kvctx.vllm.staging import Staging
    from kvctx.vllm.worker import KvctxWorker, Layout
    from vllm.v1.kv_offload.base import (CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor,
                                         GPULoadStoreSpec)

    tensors = [torch.randint(-128, 127, (32, size), dtype=torch.int8) for size in (4096, 2048)]
    caches = CanonicalKVCaches([CanonicalKVCacheTensor(t, t.shape[1]) for t in tensors],
                               [[CanonicalKVCacheRef(0, 4096), CanonicalKVCacheRef(1, 2000)]])
    before = [t.clone() for t in tensors]
    layout, options = Layout(caches, [0], 2), Options(path, staging_bytes=2 * 12288)
    direct, other = (KvctxWorker(layout, options, "test", 0) for _ in range(2))
    other._staging = Staging(layout, other._link, other._transfers, options, 0)
    keys = [bytes([n]) * 32 + bytes(4) for n in range(9)]

    def go(worker, job, load, blocks, keys, first=0):
        place, pages = GPULoadStoreSpec(blocks, [len(blocks)], [first]), Pages(keys, range(1, len(keys) + 1), 0)
        (worker.submit_load(job, pages, place) if load else worker.submit_store(job, place, pages))
        worker.wait({job})
        (result,) = worker.get_finished()
        return result

    assert go(direct, 1, False, list(range(8)), keys[:4]).success
    assert go(other, 2, False, list(range(8, 17)), keys[4:]).transfer_size == 4 * 2 * 6096, "the last one is half"
    assert go(other, 3, True, [20, 21, 22, 23, 24], keys[:3], first=1).success
    assert go(direct, 4, True, [25, 26, 27, 28], keys[4:6]).success
    for block, was in zip(range(20, 29), [1, 2, 3, 4, 5, 8, 9, 10, 11]):
        for t, b, n in zip(tensors, before, (4096, 2000)):
            assert numpy.array_equal(t[block, :n].numpy(), b[was, :n].numpy()), block
    other.failures_wanted = True
    assert go(other, 5, True, [30, 31, 29, 19], [keys[0], keys[8]]).success
    assert other.failed_loads() == {5: {29, 19}}
    layout.lengths = lambda found: [12192 - chunk.index % 2 for chunk in found]
    assert go(other, 6, True, [30, 31, 29, 19], keys[:2]).success
    assert other.failed_loads() == {6: {29, 19}}, "a page of another length"
    layout.lengths = lambda found: []
    assert go(other, 7, True, [30, 31, 29, 19], keys[:2]).success
    assert other.failed_loads() == {7: {29, 19}}, "was dropped"
    other.shutdown()
    direct.shutdown()
    return SimpleNamespace(done=True)


def test_staging_moves_what_direct_transfers_move(here):
    path = os.path.join(here, "kv0", "default")
    kvctx.create_pool(os.path.dirname(path), 64 * MB)
    assert apart(staged, path).done
