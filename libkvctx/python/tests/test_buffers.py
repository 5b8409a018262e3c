# SPDX-License-Identifier: LGPL-2.1-or-later
"""Buffers of all kinds: the buffer protocol, DLPack, addresses; registered memory, and memory that is not."""
import ctypes
import errno
import gc
import math
import mmap
import os
import signal
import threading
import time
import weakref
from array import array

import pytest

import kvctx
from kvctx import memory

np = pytest.importorskip("numpy")


class Tensor:
    """Speaks DLPack and nothing else, as torch does: numpy's, with another device if wanted."""

    def __init__(self, a, device=None):
        self.a, self.device = a, device

    def __dlpack__(self, **how):
        assert self.device is None, "nobody may ask for memory that cannot be reached"
        return self.a.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.device or self.a.__dlpack_device__()


def kinds(data):
    """The same bytes in each kind of writable buffer, with the function that reads them back."""
    m = mmap.mmap(-1, len(data))
    m[:] = data
    raw = (ctypes.c_char * len(data)).from_buffer_copy(data)
    dl = np.frombuffer(bytearray(data), dtype=np.int16).reshape(-1, 8)
    return {"bytearray": (bytearray(data), bytes),
            "memoryview": (memoryview(bytearray(b"." + data))[1:], bytes),
            "array": (array("I", data), bytes),
            "mmap": (m, lambda m: m[:]),
            "numpy": (np.frombuffer(bytearray(data), dtype=np.float32).reshape(4, -1), lambda a: a.tobytes()),
            "dlpack": (Tensor(dl), lambda t: t.a.tobytes()),
            "dlpack part": (Tensor(np.concatenate([dl, dl])[len(dl):]), lambda t: t.a.tobytes()),
            "address": ((ctypes.addressof(raw), len(data)), lambda t: ctypes.string_at(*t)),
            "pieces": ([bytearray(data[:7]), bytearray(data[7:])], lambda p: bytes(p[0] + p[1])),
            "keep": (raw, bytes)}


KINDS = list(kinds(bytes(32)))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(served, kind):
    data = os.urandom(4096)
    full, empty = kinds(data), kinds(bytes(4096))
    served.store(["k"], [full[kind][0]]).check()
    room, read = empty[kind]
    served.load(["k"], [room]).check()
    assert read(room) == data


def test_dlpack_that_begins_behind_its_address(session):
    """byte_offset, which neither numpy nor torch uses."""
    data, shape = ctypes.create_string_buffer(b"##" + b"x" * 6), (ctypes.c_int64 * 1)(3)
    t = memory._DLTensor(data=ctypes.addressof(data), device_type=1, ndim=1, code=1, bits=16, lanes=1, shape=shape,
                         byte_offset=2)
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object

    class Other:
        def __dlpack__(self):
            return new(ctypes.addressof(t), b"dltensor", None)

        def __dlpack_device__(self):
            return 1, 0

    session.store(["k"], [Other()]).check()
    room = bytearray(6)
    session.load(["k"], [room]).check()
    assert room == b"x" * 6


@pytest.mark.parametrize("bits, lanes, items, nbytes", [(4, 2, 6, 6), (4, 1, 6, 3), (4, 1, 5, 3), (16, 4, 2, 16)])
def test_dlpack_of_less_than_a_byte(bits, lanes, items, nbytes):
    """Elements of 4 bits are packed, as torch.float4_e2m1fn_x2: not a byte each, half of which would be somebody's."""
    shape = (ctypes.c_int64 * 1)(items)
    t = memory._DLTensor(data=4096, device_type=1, ndim=1, code=17, bits=bits, lanes=lanes, shape=shape)
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object

    class Other:
        def __dlpack__(self):
            return new(ctypes.addressof(t), b"dltensor", None)

        def __dlpack_device__(self):
            return 1, 0

    assert memory.view(Other(), False).nbytes == nbytes


def test_bfloat16_of_torch(session):
    torch = pytest.importorskip("torch")
    t = torch.randn(16, 32).to(torch.bfloat16)
    room = torch.empty_like(t)
    session.store(["k"], [t]).check()
    session.load(["k"], [room]).check()
    assert torch.equal(t, room)
    with session.register(room):
        room.zero_()
        assert session.submit_load(["k"], [room]).result(60).all_ok
    assert torch.equal(t, room)
    with pytest.raises(BufferError):
        session.store(["k"], [t.t()])


def test_read_only_is_stored_and_not_loaded_to(session):
    frozen = np.arange(8)
    frozen.flags.writeable = False
    session.store(["a", "b"], [b"bytes", frozen]).check()
    for room in (b"bytes", frozen, memoryview(bytearray(8)).toreadonly()):
        with pytest.raises(BufferError):
            session.load(["a"], [room])
        with pytest.raises(BufferError):
            session.register(room)


def test_what_is_no_buffer(session):
    with pytest.raises(TypeError):
        session.store(["a"], [17])
    with pytest.raises((BufferError, ValueError)):
        session.store(["a"], [np.zeros((8, 8))[:, ::2]])
    with pytest.raises(BufferError, match="contiguous"):
        session.store(["a"], [Tensor(np.zeros((8, 8))[:, ::2])])
    with pytest.raises(BufferError, match="CUDA"):
        session.store(["a"], [Tensor(np.zeros(8), (2, 0))])
    session.store(["a"], [Tensor(np.zeros(8), None)]).check()


def test_device_memory_is_for_the_module(session):
    """A session that would be the module's gets its address, and never has the processor copy from there."""
    class OnDevice(Tensor):
        def __dlpack__(self, **how):
            return self.a.__dlpack__(**how)

    t = OnDevice(np.zeros(8), (2, 0))
    with pytest.raises(BufferError, match="CUDA"):
        session.register(t)
    session.info = session.info._replace(backend="module")
    with pytest.raises(kvctx.Error) as e:
        session.store(["a"], [t])
    assert e.value.errno == errno.EFAULT
    with session.register(t):
        session.store(["a"], [t]).check()


def test_registered_memory_is_moved_as_it_is(daemon, session):
    staged = kvctx._lib.CQE_FLAGS["STAGED"]
    with daemon.pool.session() as s:
        m = kvctx.shared_memory(1 << 20)
        m[:4096] = data = os.urandom(4096)
        with s.register(m):
            r = s.submit_store(["a"], [memoryview(m)[:4096]]).result(60)
            assert r.all_ok and not r.flags[0] & staged
            r = s.submit_load(["a"], [memoryview(m)[8192:8192 + 4096]]).result(60)
            assert r.all_ok and not r.flags[0] & staged and m[8192:8192 + 4096] == data
        other = bytearray(4096)
        with s.register(other):
            r = s.submit_load(["a"], [other]).result(60)
            assert r.all_ok and r.flags[0] & staged and other == data


def test_registrations(session):
    m = bytearray(1 << 16)
    with session.register(m) as reg:
        assert reg.nbytes == 1 << 16 and reg.address
        with pytest.raises(BufferError):
            m.append(1)  # it may not move
        view = memoryview(m)
        assert session.submit_store(["a", "b"], [view[:100], [view[200:300], view[50:60]]]).result(60).all_ok
    view.release()
    m.append(1)
    reg.close()
    with pytest.raises(kvctx.Error) as e:
        session.register((reg.address, 0))
    assert e.value.errno == errno.EINVAL
    # a session that is closed has none
    reg = session.register(bytearray(10))
    session.close()
    reg.close()


def test_registered_memory_stays_though_nobody_has_the_registration(session):
    class Buffer(bytearray):
        pass

    b = Buffer(os.urandom(4096))
    there, reg = weakref.ref(b), session.register(b)
    session.store(["a"], [b]).check()
    del b, reg
    gc.collect()
    assert there() is not None, "an operation may find it by its address"
    session.close()
    gc.collect()
    assert there() is None


class Interrupted(BaseException):
    """What a signal's handler raises, as KeyboardInterrupt."""


@pytest.fixture
def places(session, monkeypatch):
    """What calls registered of their own accord: what still is at the end has to be held by the session's stage."""
    places, register = [], kvctx._lib.lib.kvctx_mem_register

    def registers(handle, address, nbytes, id):
        places.append((address, nbytes))
        return register(handle, address, nbytes, id)

    monkeypatch.setattr(kvctx._lib.lib, "kvctx_mem_register", registers)
    yield places
    id, offset = ctypes.c_uint32(), ctypes.c_uint64()
    assert places
    for address, nbytes in places:
        if kvctx._lib.lib.kvctx_mem_find(session._handle, address, nbytes, id, offset) == 0:
            held = session._stage.memory
            assert held.address <= address and address + nbytes <= held.address + held.nbytes


@pytest.mark.parametrize("what", ["store", "load"])
@pytest.mark.parametrize("behind", ["mem_register", "mem_unregister", "stage_init_at", "batch_run"])
def test_interrupted_calls_leave_nothing_registered(session, places, monkeypatch, what, behind):
    """Memory that comes to lie where it was would be taken for registered, and get nothing of what is loaded."""
    def interrupted(*arguments):
        nonlocal left
        ret = call(*arguments)
        left -= 1
        if not left:
            raise Interrupted
        return ret

    lengths = 100, 5000, 50000  # each wants slots of its own
    session.store(["0", "1", "2"], [b"*" * n for n in lengths]).check()
    call, left = getattr(kvctx._lib.lib, f"kvctx_{behind}"), 0
    monkeypatch.setattr(kvctx._lib.lib, f"kvctx_{behind}", interrupted)
    for times in (1, 2):
        left = times
        try:
            for length in 60000 * times, 100000 * times:
                getattr(session, what)(["x"], [bytearray(length)])
        except Interrupted:
            pass
        left = 0
        room = [bytearray(n) for n in lengths]
        assert session.load(["0", "1", "2"], room).all_ok and room[2] == b"*" * 50000


def test_an_interrupted_match_has_ended(session, places, monkeypatch):
    """Its answer may not come to memory that is not there any more."""
    def handler(*_):
        nonlocal until
        until = time.monotonic() + 0.4
        raise Interrupted

    def later(handle, sqes, nr):
        if not signals:
            signals.append(threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGUSR1)))
            signals[0].start()
        return -errno.EAGAIN if time.monotonic() < until else submit(handle, sqes, nr)

    submit, until, signals, main = kvctx._lib.lib.kvctx_submit_sqes, math.inf, [], threading.get_ident()
    monkeypatch.setattr(kvctx._lib.lib, "kvctx_submit_sqes", later)
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Interrupted):
            session.match(["a"], prefetch=True)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert session._reaper.in_flight() == 0 and session._stage.memory is None


def test_arena(pool):
    with pool.session(arena_bytes=1 << 20) as s:
        arena = s.arena
        assert len(arena) == 1 << 20
        arena[:5] = b"hello"
        assert s.submit_store(["a"], [arena[:5]]).result(60).all_ok
        s.submit_load(["a"], [arena[100:105]]).result(60).check()
        assert bytes(arena[100:105]) == b"hello"
    with pool.session() as s:
        assert s.arena is None


def test_much_that_is_not_registered(session, monkeypatch):
    """Staged in parts, and what lies beside the pages stays as it was."""
    monkeypatch.setattr(kvctx.stage, "STAGE_BYTES", 20000)
    data = [os.urandom(n) for n in (9000, 9000, 9000, 50000, 1, 12000)]
    names = [str(n) for n in range(7)]
    assert session.store(names[:6], data, depth=3).all_ok
    room = [bytearray(len(d) + 2) for d in data] + [bytearray(b"*" * 10)]
    session.delete("2").check()
    r = session.load(names, [memoryview(m)[1:-1] for m in room])
    assert list(r) == [9000, 9000, -errno.ENOENT, 50000, 1, 12000, -errno.ENOENT] and r.ok == 5
    assert [bytes(m) for m in room] == [b"\0" + d + b"\0" if n != 2 else bytes(9002) for n, d in enumerate(data)] \
        + [b"*" * 10]


def test_buffers_are_let_go(session):
    class Room(bytearray):
        pass

    room = Room(100)
    gone = weakref.ref(room)
    session.store(["a"], [room])
    with session.register(room):
        op = session.submit_store(["b"], [room])
        op.result(60)
    room.append(1)
    del room, op
    assert gone() is None
    v = memory.view(bytearray(10), True)
    assert v.nbytes == 10
