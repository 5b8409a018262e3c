# SPDX-License-Identifier: LGPL-2.1-or-later
"""A GPU that is not there: as much of torch as kvctx.vllm.staging uses, over numpy, and a session that reaches its
memory, as one of the module may.

Its memory is the host's, but who touches it as the host's is found out: tensors of the GPU and of the host meet in
copy_() only, and PeerSession takes addresses of it only where they are told to be a device's. What it is told
to do it does when a stream is synchronized, and not before.
"""
import ctypes
import errno
import types
from contextlib import nullcontext

import numpy as np

import kvctx
from kvctx.memory import pack

QUEUE = []  # what the GPU has to do, in order
CPU, GPU = types.SimpleNamespace(type="cpu"), types.SimpleNamespace(type="cuda")


class Tensor:
    def __init__(self, values, device, storage=None):
        self.values, self.device, self.storage = values, device, values if storage is None else storage

    def _like(self, values):
        return Tensor(values, self.device, self.storage)

    def __getitem__(self, where):
        return self._like(self.values[where])

    def data_ptr(self):
        return self.values.ctypes.data

    def numel(self):
        return self.values.size

    def __len__(self):
        return len(self.values)

    def element_size(self):
        return self.values.itemsize

    def stride(self, dim):
        return self.values.strides[dim] // self.values.itemsize

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.storage.ctypes.data, nbytes=lambda: self.storage.nbytes)

    def view(self, *shape):
        values = self.values.view()
        values.shape = shape  # never a copy
        assert values.flags.c_contiguous
        return self._like(values)

    def index_select(self, dim, index):
        assert dim == 0 and index.device is self.device
        return later((len(index), *self.values.shape[1:]), lambda out: np.copyto(out, self.values[index.values]))

    def index_copy_(self, dim, index, source):
        assert dim == 0 and index.device is source.device is self.device
        assert Inference.on, "torch refuses it for tensors that were made in inference mode"
        QUEUE.append(lambda: self.values.__setitem__(index.values, source.values))

    def copy_(self, source, non_blocking=False):
        assert self.values.shape == source.values.shape and non_blocking
        QUEUE.append(lambda: np.copyto(self.values, source.values))


def later(shape, fill):
    """A tensor of the GPU that has its values later."""
    out = np.zeros(shape, np.int8)
    QUEUE.append(lambda: fill(out))
    return Tensor(out, GPU)


def rows(nr, nbytes, room):
    """A tensor of the GPU: int8 (nr, nbytes), with room behind each row."""
    storage = np.zeros((nr, nbytes + room), np.int8)
    return Tensor(storage[:, :nbytes], GPU, storage)


class Event:
    """When the stream comes to it, a test says: pending is what to wait for, one for all."""
    pending = None

    def record(self, stream):
        self.recorded = True

    def synchronize(self):
        assert self.recorded
        if Event.pending:
            Event.pending.wait(30)


class Stream:
    def __init__(self, device):
        assert device is GPU

    def synchronize(self):
        while QUEUE:
            QUEUE.pop(0)()


class Inference:
    """torch.inference_mode(); of one thread, in these tests."""
    on = False

    def __enter__(self):
        Inference.on = True

    def __exit__(self, *what):
        Inference.on = False


def torch():
    """In the place of the module."""
    cuda = types.SimpleNamespace(Stream=Stream, Event=Event, current_stream=Stream, stream=lambda s: nullcontext())

    def empty(shape, dtype, pin_memory=False, device=CPU):
        assert pin_memory or device is GPU, "the GPU's copies would not be asynchronous"
        return Tensor(np.zeros(shape, dtype), device)

    def cat(parts, dim):
        assert all(p.device is GPU for p in parts)
        shape = list(parts[0].values.shape)
        shape[dim] = sum(p.values.shape[dim] for p in parts)
        return later(shape, lambda out: np.concatenate([p.values for p in parts], axis=dim, out=out))

    return types.SimpleNamespace(Tensor=Tensor, int8=np.int8, cuda=cuda, empty=empty, cat=cat,
                                 inference_mode=Inference,
                                 tensor=lambda values, device: Tensor(np.array(values), device))


class PeerSession(kvctx.Session):
    """A session that says it is the module's, on a pool of this process: it moves the GPU's pages itself.

    memory: ranges (address, bytes) of the GPU. refused: of these no registration is taken. aside: results by the first
    byte of a page's digest, of pages that cannot be moved directly. went: what was moved directly, as (load, byte).
    All of the class, for the sessions that a Link opens.
    """
    memory, refused, aside, went, sessions = [], [], {}, [], []

    @classmethod
    def begin(cls, tensors):
        cls.memory = sorted((t.storage.ctypes.data, t.storage.nbytes) for t in tensors)
        cls.refused, cls.aside, cls.went, cls.sessions = [], {}, [], []

    def __init__(self, *arguments, **how):
        super().__init__(*arguments, **how)
        self.info = self.info._replace(backend="module")
        self.peers = []
        self.sessions.append(self)

    def register(self, buffer):
        if buffer not in self.memory:
            return super().register(buffer)
        if buffer in self.refused:
            raise kvctx.Error(errno.EREMOTEIO, "no peer's memory")
        self.peers.append(buffer)
        return types.SimpleNamespace(close=lambda: self.peers.remove(buffer))

    def _of_gpu(self, view, among):
        return any(start <= view.address and view.address + view.nbytes <= start + nbytes for start, nbytes in among)

    def _move(self, load, names, buffers, move):
        packed = pack(buffers, len(names), load, True)
        if not any(self._of_gpu(v, self.memory) for v in packed.held):
            assert not packed.device
            return move(names, buffers)
        assert all(v.device for v in packed.held), "the library would copy a GPU's memory as if it were the host's"
        assert all(self._of_gpu(v, self.peers) for v in packed.held), "not registered"
        assert len(names) == 1
        res = self.aside.get(names[0].digest[0])
        if res:
            return [res]
        page = bytearray(b"".join(ctypes.string_at(v.address, v.nbytes) for v in packed.held if not load) or
                         sum(v.nbytes for v in packed.held))
        results = move(names, [page])
        at = 0
        for v in packed.held if load and results[0] >= 0 else ():
            ctypes.memmove(v.address, bytes(page[at:at + v.nbytes]), v.nbytes)
            at += v.nbytes
        self.went.append((load, names[0].digest[0]))
        return results

    def _staged(self, submit, names, buffers, how):
        packed = pack(buffers, len(names), True, True)
        assert not packed.device and not any(self._of_gpu(v, self.memory) for v in packed.held)
        return submit(names, buffers, **how)

    def submit_store(self, names, buffers, **how):
        return self._staged(super().submit_store, names, buffers, how)

    def submit_load(self, names, buffers, **how):
        return self._staged(super().submit_load, names, buffers, how)

    def store(self, names, buffers, **how):
        return self._move(False, names, buffers, lambda n, b: super(PeerSession, self).store(n, b, **how))

    def load(self, names, buffers, **how):
        return self._move(True, names, buffers, lambda n, b: super(PeerSession, self).load(n, b, **how))
