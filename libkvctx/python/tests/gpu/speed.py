# SPDX-License-Identifier: LGPL-2.1-or-later
"""How fast chunks move between a GPU and a pool, beside the copies alone: speed.py DIR [GIB]

For chunks of several sizes: GB/s from the GPU to a pool in DIR and back, through kvctx.vllm; and of what bounds that,
one after the other in the same run: the gathered copy to pinned memory and back, without a pool; and a file of DIR
written and read with O_DIRECT, 4 MiB at a time by as many threads as there are processors, without a GPU or a checksum.
Beside it cuFile in its compatible mode, where torch brought it: chunks that are gathered already, each written and read
by one call, by as many threads, without a checksum, an index or room for more.
"""
import ctypes
import glob
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
            for at in range(0, len(chunks), staging._part):
                move([(chunk, slot) for slot, chunk in enumerate(chunks[at:at + staging._part])])
                staging._synchronize()

    all_of(staging._gather)
    return timed(lambda: all_of(staging._gather), nbytes), timed(lambda: all_of(staging._scatter), nbytes)


def raw(where, nbytes):
    piece = 4 << 20
    memory = mmap.mmap(-1, nbytes)
    memory[:] = bytes([1]) * nbytes

    def each(move, fd):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            if sum(pool.map(lambda at: move(fd, [memoryview(memory)[at:at + piece]], at),
                            range(0, nbytes, piece))) != nbytes:
                raise OSError("the file took or gave less")

    with new_file(os.path.join(where, "raw"), nbytes) as fd:
        return timed(lambda: each(os.pwritev, fd), nbytes), timed(lambda: each(os.preadv, fd), nbytes)


class CuFile:
    """As much of cuFile (cufile.h of CUDA 13) as writing and reading a file takes."""

    class Descr(ctypes.Structure):
        """CUfileDescr_t"""
        _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_void_p), ("ops", ctypes.c_void_p)]

    class Result(ctypes.Structure):
        """CUfileError_t"""
        _fields_ = [("err", ctypes.c_int), ("cuda", ctypes.c_int)]

    def __init__(self):
        found = [f for d in sys.path for f in glob.glob(os.path.join(d, "nvidia", "*", "lib", "libcufile.so.*"))]
        os.environ.update(CUFILE_ALLOW_COMPAT_MODE="true", CUFILE_FORCE_COMPAT_MODE="true")  # nvidia-fs is rarely there
        self.lib = ctypes.CDLL(found[0] if found else "libcufile.so.0")
        for name in "cuFileDriverOpen", "cuFileHandleRegister", "cuFileBufRegister", "cuFileBufDeregister":
            getattr(self.lib, name).restype = self.Result
        self.lib.cuFileHandleDeregister.argtypes, self.lib.cuFileHandleDeregister.restype = [ctypes.c_void_p], None
        for name in "cuFileWrite", "cuFileRead":
            getattr(self.lib, name).restype = ctypes.c_ssize_t
            getattr(self.lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
                                                ctypes.c_int64]
        self._need(self.lib.cuFileDriverOpen())

    @staticmethod
    def _need(result):
        if result.err:
            raise OSError(f"cuFile: error {result.err}")

    def rates(self, fd, memory, chunk):
        nbytes, handle = memory.numel(), ctypes.c_void_p()
        self._need(self.lib.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(self.Descr(1, fd, None))))
        self._need(self.lib.cuFileBufRegister(ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(nbytes), 0))

        def each(call):
            def one(at):
                if call(handle, memory.data_ptr(), chunk, at, at) != chunk:
                    raise OSError("cuFile moved less")

            with ThreadPoolExecutor(os.cpu_count(), initializer=lambda: torch.zeros(1, device="cuda")) as pool:
                list(pool.map(one, range(0, nbytes, chunk)))

        before = memory[::4096].clone()
        written = timed(lambda: each(self.lib.cuFileWrite), nbytes)
        memory.zero_()
        read = timed(lambda: each(self.lib.cuFileRead), nbytes)
        assert torch.equal(memory[::4096], before)
        self._need(self.lib.cuFileBufDeregister(ctypes.c_void_p(memory.data_ptr())))
        self.lib.cuFileHandleDeregister(handle)
        return written, read


@contextmanager
def new_file(path, nbytes):
    """A file of its own for each that is measured, with its space. It keeps its name, by which cuFile opens it anew."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT)
    try:
        os.posix_fallocate(fd, 0, nbytes)
        yield fd
    finally:
        os.close(fd)
        os.unlink(path)


def cufile(file, where, nbytes, chunk):
    """The same chunks by cuFile."""
    memory = torch.randint(-128, 128, (nbytes,), dtype=torch.int8, device="cuda")
    with new_file(os.path.join(where, "cufile"), nbytes) as fd:
        return file.rates(fd, memory, chunk)


def through_kvctx(where, nbytes, per_chunk):
    """GB/s of a store, of a load, and of the copies alone."""
    nr = nbytes // (LAYERS * NBYTES)
    path = os.path.join(where, f"kv{per_chunk}")
    pool = kvctx.create_pool(path, 4 * nbytes)
    caches = blocks.Caches(LAYERS, nr, NBYTES)
    for rows in caches.layers:
        rows.random_(-128, 128)
    engine = blocks.engine(os.path.join(pool.path, "default"), caches, per_chunk)
    rates = []

    def all_of(move):
        result = move(blocks.keys("speed", nr // per_chunk), gpu(list(range(nr))))
        assert result.success and result.transfer_size == nbytes, result

    try:
        for move in engine.store, engine.load:
            rates.append(timed(lambda: all_of(move), nbytes))
        rates += copies(engine, nr, per_chunk, nbytes)
    finally:
        engine.end()
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
    return rates


def main(where, gib="1"):
    nbytes = int(float(gib) * (1 << 30))
    room = os.statvfs(where)
    print(f"{torch.cuda.get_device_name()}; {os.cpu_count()} processors; {nbytes >> 20} MiB in {where}, GB/s")
    if room.f_bavail * room.f_frsize < 5 * nbytes:
        print(f"there is no room for {5 * nbytes >> 20} MiB")
        return
    try:
        print("file alone: written %.2f, read %.2f" % raw(where, nbytes), flush=True)
    except OSError as e:  # a file system without O_DIRECT
        print(f"file alone: {e}")
    try:
        file = CuFile()
    except (OSError, AttributeError) as e:
        print(f"cuFile: {e}")
        file = None
    print("   chunk  store   load   copy-out copy-in   cuFile: written  read")
    for per_chunk in 1, 4, 16:
        chunk = per_chunk * LAYERS * NBYTES
        line = "%8d  %5.2f  %5.2f   %5.2f    %5.2f" % (chunk >> 10, *through_kvctx(where, nbytes, per_chunk))
        if file:
            try:
                line += "           %5.2f    %5.2f" % cufile(file, where, nbytes, chunk)
            except OSError as e:
                line += f"           {e}"
        print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
