# SPDX-License-Identifier: LGPL-2.1-or-later
"""How fast chunks move between a GPU and a pool, beside the copies alone: speed.py DIR [GIB]

For chunks of several sizes: GB/s from the GPU to a pool in DIR and back, through kvctx.vllm; and of what bounds that,
one after the other in the same run: the gathered copy to pinned memory and back, without a pool, and a file of DIR
written and read with O_DIRECT, 4 MiB at a time by as many threads as there are processors, without a GPU or a checksum.
"""
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import blocks
import torch
from test_vllm import gpu

import kvctx

LAYERS, NBYTES = 32, 16384


def timed(what, nbytes):
    torch.cuda.synchronize()
    start = time.perf_counter()
    what()
    torch.cuda.synchronize()
    return nbytes / (time.perf_counter() - start) / 1e9


def copies(engine, nr, per_chunk, nbytes):
    """Only what lies before and behind kvctx, with the functions that the worker calls."""
    staging = engine.worker._staging
    chunks = [SimpleNamespace(group=0, blocks=list(range(n, n + per_chunk))) for n in range(0, nr, per_chunk)]

    def all_of(move):
        with torch.inference_mode(), torch.cuda.stream(staging._stream):
            for at in range(0, len(chunks), staging._half):
                move([(chunk, slot) for slot, chunk in enumerate(chunks[at:at + staging._half])])
                staging._synchronize()

    all_of(staging._gather)
    return timed(lambda: all_of(staging._gather), nbytes), timed(lambda: all_of(staging._scatter), nbytes)


def raw(path, nbytes):
    piece = 4 << 20
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    os.posix_fallocate(fd, 0, nbytes)
    memory = mmap.mmap(-1, nbytes)
    memory[:] = bytes([1]) * nbytes

    def each(move):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda at: move(fd, [memoryview(memory)[at:at + piece]], at), range(0, nbytes, piece)))

    rates = timed(lambda: each(os.pwritev), nbytes), timed(lambda: each(os.preadv), nbytes)
    os.close(fd)
    os.unlink(path)
    return rates


def main(where, gib="1"):
    nbytes = int(float(gib) * (1 << 30))
    print(f"{torch.cuda.get_device_name()}; {os.cpu_count()} processors; {nbytes >> 20} MiB in {where}, GB/s")
    print("file alone: written %.2f, read %.2f" % raw(os.path.join(where, "raw"), nbytes), flush=True)
    print("   chunk  store   load   copy-out copy-in")
    for per_chunk in 1, 4, 16:
        nr = nbytes // (LAYERS * NBYTES)
        path = os.path.join(where, f"kv{per_chunk}")
        pool = kvctx.create_pool(path, 2 * nbytes)
        caches = blocks.Caches(LAYERS, nr, NBYTES)
        for rows in caches.layers:
            rows.random_(-128, 128)
        engine = blocks.engine(os.path.join(pool.path, "default"), caches, per_chunk)
        rates = []
        for move in engine.store, engine.load:
            rates.append(timed(lambda: move(blocks.keys("speed", nr // per_chunk), gpu(list(range(nr)))), nbytes))
        alone = copies(engine, nr, per_chunk, nbytes)
        engine.end()
        print("%8d  %5.2f  %5.2f   %5.2f   %5.2f" % (per_chunk * LAYERS * NBYTES >> 10, *rates, *alone), flush=True)
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
