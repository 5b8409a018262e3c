# SPDX-License-Identifier: LGPL-2.1-or-later
"""Memory of a GPU that is there: chunks of CUDA tensors through kvctx.vllm, and what a Session says of such tensors."""
import os
import threading

import pytest

torch = pytest.importorskip("torch", reason="no torch here")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

import blocks  # noqa: E402
from blocks import fake  # noqa: E402
from test_vllm import gpu  # noqa: E402

import kvctx  # noqa: E402

LAYERS, BLOCKS, NBYTES, PER_CHUNK = 3, 64, 8192, 4
CHUNK = LAYERS * NBYTES * PER_CHUNK
SLOW = 1 << 28  # cycles of the GPU, about a sixth of a second


@pytest.fixture(params=[("process", 3), ("process", 20), ("daemon", 3)])
def make(request):
    """An engine of its own, with room in pinned memory for so many chunks."""
    by, room = request.param
    pool = request.getfixturevalue("daemon" if by == "daemon" else "home").pool
    engines = []

    def make(**extra):
        caches = blocks.Caches(LAYERS, BLOCKS, NBYTES)
        engines.append(blocks.engine(os.path.join(pool.path, "default"), caches, PER_CHUNK,
                                     staging_bytes=room * CHUNK, **extra))
        return engines[-1]

    yield make
    for one in engines:
        one.end()
    assert "kvctx-staging" not in [thread.name for thread in threading.enumerate()]


def fill(one):
    torch.manual_seed(1)
    for layer in one.caches.layers:
        layer[:BLOCKS // 2] = torch.randint(-128, 128, (BLOCKS // 2, NBYTES), dtype=torch.int8, device="cuda")


HERE, THERE = list(range(BLOCKS // 2)), [n ^ 5 for n in range(BLOCKS // 2, BLOCKS)]
KEYS = blocks.keys("tensors", BLOCKS // 2 // PER_CHUNK)


def test_chunks_come_back_in_other_blocks(make):
    one = make()
    fill(one)
    assert one.worker._staging._host.is_pinned()
    assert one.store(KEYS, gpu(HERE)).transfer_size == len(KEYS) * CHUNK
    assert one.load(KEYS, gpu(THERE)).transfer_size == len(KEYS) * CHUNK
    for layer in one.caches.layers:
        assert torch.equal(layer[THERE], layer[HERE]) and layer[HERE].any()
    assert one.caches.room_is_clean()


def test_part_of_a_chunk(make):
    one = make()
    fill(one)
    one.store(KEYS, gpu(HERE))
    part = THERE[1:2 * PER_CHUNK - 1]  # but for the last block of the second chunk
    one.load(KEYS[:2], gpu(part, first=1))
    for layer in one.caches.layers:
        assert torch.equal(layer[part], layer[HERE[1:1 + len(part)]])
        rest = [n for n in THERE if n not in part]
        assert not layer[rest].any()
    assert one.caches.room_is_clean()


def test_store_waits_for_what_the_stream_computes(make):
    """The blocks have their bytes only after work that was queued before the store."""
    one = make()
    output = one.manager.prepare_store(KEYS, fake.ReqContext("r", {k: 64 * (n + 1) for n, k in enumerate(KEYS)}))
    torch.cuda._sleep(SLOW)
    fill(one)
    one.worker.submit_store(1, gpu(HERE), output.store_spec)
    one.worker.wait({1})
    assert [r.success for r in one.worker.get_finished()] == [True]
    one.manager.complete_store(output.keys_to_store, fake.ReqContext("r"))
    one.load(KEYS, gpu(THERE))
    for layer in one.caches.layers:
        assert torch.equal(layer[THERE], layer[HERE]) and layer[HERE].any()


def test_load_waits_for_who_reads_the_blocks(make):
    """What was queued before it still sees what was there."""
    one = make()
    fill(one)
    one.store(KEYS, gpu(HERE))
    for layer in one.caches.layers:
        layer[THERE] = 77
    torch.cuda.synchronize()
    torch.cuda._sleep(SLOW)
    seen = [layer[THERE].clone() for layer in one.caches.layers]
    one.load(KEYS, gpu(THERE))
    for layer, before in zip(one.caches.layers, seen):
        assert (before == 77).all() and torch.equal(layer[THERE], layer[HERE])


def test_engine_computes_while_chunks_move(make):
    """Nothing that is submitted waits for the engine's stream, nor has it wait."""
    one = make()
    fill(one)
    output = one.manager.prepare_store(KEYS, fake.ReqContext("r", {k: 64 * (n + 1) for n, k in enumerate(KEYS)}))
    one.worker.submit_store(1, gpu(HERE), output.store_spec)
    torch.cuda._sleep(1 << 31)  # longer than the store
    one.worker.wait({1})
    busy = not torch.cuda.current_stream().query()
    assert [r.success for r in one.worker.get_finished()] == [True] and busy
    torch.cuda.synchronize()


def test_page_that_is_spoilt_is_not_loaded(pool):
    """A bit inverted in the pool's file is told as a block that has to be computed."""
    path = os.path.join(pool.path, "default")
    one = blocks.engine(path, blocks.Caches(LAYERS, BLOCKS, NBYTES), PER_CHUNK)
    fill(one)
    one.store(KEYS, gpu(HERE))
    one.worker._link.flush()
    first = one.caches.layers[0][0].cpu().numpy().tobytes()
    one.end()
    with open(os.path.join(pool.path, "member0"), "r+b") as f:
        at = f.read().index(first)
        f.seek(at + 4242)
        byte = f.read(1)[0]
        f.seek(at + 4242)
        f.write(bytes([byte ^ 8]))
    one = blocks.engine(path, blocks.Caches(LAYERS, BLOCKS, NBYTES), PER_CHUNK)
    one.worker.failures_wanted = True
    one.load(KEYS, gpu(THERE))
    assert one.worker.failed_loads() == {one.jobs: set(THERE[:PER_CHUNK])}
    assert not any(layer[THERE[:PER_CHUNK]].any() for layer in one.caches.layers)
    assert all(layer[THERE[PER_CHUNK:]].any() for layer in one.caches.layers)
    one.end()


def test_session_takes_pinned_tensors_and_says_what_it_does_not_take(session):
    k, nbytes = kvctx.Keys([b"p"]), 256 << 10
    page = torch.randint(0, 256, (nbytes,), dtype=torch.uint8).pin_memory()
    back = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)
    with session.register(page), session.register(back):
        assert list(session.store(k, [page])) == list(session.load(k, [back])) == [nbytes]
    assert torch.equal(page, back)
    with pytest.raises(BufferError, match="CUDA memory.*copy it to the host first"):
        session.store(k, [page.cuda()])
