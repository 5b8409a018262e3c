# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where bytes are: buffers of all kinds as (address, length), packed for a batch; memory that stands in for others'.

A buffer is one of
  - anything with the buffer protocol, contiguous: bytes, bytearray, mmap, array.array, numpy.ndarray
  - anything with DLPack, contiguous, in host memory: torch.Tensor, jax and others'; with the module also in a device's
    memory that its driver lets peers reach
  - (address, length): host memory whose owner sees to it that it stays
  - a list of those: the pieces of one page, in order

A ``View`` holds what keeps the memory in place; who has it in use keeps the View.
"""
from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from array import array
from typing import Any, Iterable, List, Optional, Tuple

_BUF_SIMPLE, _BUF_WRITABLE = 0, 1
_DL_CPU, _DL_PINNED = 1, 3
_DL_NAMES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm's pinned", 13: "CUDA managed",
             14: "oneAPI"}
_F_ADD_SEALS, _F_SEAL_SHRINK = 1033, 2  # fcntl has names for them since Python 3.8, but not in every build
_WHOLE = "bBhHiIlLqQnN"  # formats of whole numbers
LENGTH_MAX = (1 << 32) - 1  # of one piece


class _PyBuffer(ctypes.Structure):
    """Py_buffer, whose layout has not changed since Python 3.3"""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the first member of DLManagedTensor"""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [ctypes.POINTER(_PyBuffer)], None
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class View:
    """One buffer: .address, .nbytes, whether it is a .device's memory, and what keeps it there until this goes."""
    __slots__ = ("address", "nbytes", "device", "_held", "_release")

    def __init__(self, address: int, nbytes: int, held: Any = None, release: Any = None, device: bool = False) -> None:
        self.address, self.nbytes, self._held, self._release, self.device = address, nbytes, held, release, device

    def __del__(self) -> None:
        if self._release is not None:
            self._release(self._held)


def _view_buffer(obj: Any, writable: bool) -> View:
    b = _PyBuffer()
    _get_buffer(obj, b, _BUF_WRITABLE if writable else _BUF_SIMPLE)
    return View(b.buf or 0, b.len, b, _release_buffer)


def _dense(t: _DLTensor) -> bool:
    """Whether the elements lie one behind the other, in order."""
    want = 1
    if t.strides:
        for d in range(t.ndim - 1, -1, -1):
            if t.shape[d] != 1 and t.strides[d] != want:
                return False
            want *= t.shape[d]
    return True


def _view_dlpack(obj: Any, peers: bool) -> View:
    device, _ = obj.__dlpack_device__()
    if device not in (_DL_CPU, _DL_PINNED) and not peers:
        raise BufferError(f"this tensor is in {_DL_NAMES.get(int(device), 'device')} memory (DLPack device "
                          f"{int(device)}), which only a session of the kernel's module can reach: copy it to the "
                          "host first")
    capsule = obj.__dlpack__()
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if not _dense(t):
        raise BufferError("this tensor is not contiguous: use its .contiguous()")
    n = 1
    for d in range(t.ndim):
        n *= t.shape[d]
    return View((t.data or 0) + t.byte_offset, (n * t.lanes * t.bits + 7) // 8, (capsule, obj),
                device=device not in (_DL_CPU, _DL_PINNED))


def view(obj: Any, writable: bool, peers: bool = False) -> View:
    """The bytes of one buffer, not of a list of pieces.

    peers: a device's memory may be meant, since the session is one of the module. writable: they are going to be
    written; a buffer that may only be read is a BufferError then. DLPack tells nothing of that before version 1, and
    is believed.

    Raises BufferError for what is not contiguous, read-only, or in a device's memory; TypeError for another object.
    """
    if isinstance(obj, View):
        return obj
    if isinstance(obj, tuple):
        address, nbytes = obj
        return View(int(address), int(nbytes))
    try:
        return _view_buffer(obj, writable)
    except ValueError as e:  # numpy's, for the same
        raise BufferError(str(e)) from None
    except TypeError:
        if not hasattr(obj, "__dlpack__"):
            raise
    return _view_dlpack(obj, peers)


class Packed:
    """Buffers of many pages as a batch takes them: addresses, lengths, and pieces a page (None: one each).

    held: what keeps the memory there. device: some is a device's, and cannot be copied.
    """
    __slots__ = ("addrs", "lens", "pieces", "held", "device")

    def __init__(self, addrs: array, lens: array, pieces: Optional[array], held: Any = None,
                 device: bool = False) -> None:
        self.addrs, self.lens, self.pieces, self.held, self.device = addrs, lens, pieces, held, device

    def longest(self, n: int) -> int:
        """Bytes of the longest of n pages."""
        if self.pieces is None:
            return max(self.lens[:n])
        at, most = 0, 0
        for nr in self.pieces[:n]:
            most = max(most, sum(self.lens[at:at + nr]))
            at += nr
        return most

    def cut(self, n: int, sizes: Iterable[int]) -> List[Tuple[int, int, Packed]]:
        """Parts of pages one behind the other: (first page, pages, their buffers). n: pages in all."""
        parts: List[Tuple[int, int, Packed]] = []
        page = piece = 0
        for size in sizes:
            if size == n:
                return [(0, n, self)]
            end = piece + (size if self.pieces is None else sum(self.pieces[page:page + size]))
            parts.append((page, size, Packed(self.addrs[piece:end], self.lens[piece:end],
                                             None if self.pieces is None else self.pieces[page:page + size],
                                             self.held, self.device)))
            page, piece = page + size, end
        assert page == n
        return parts


def pack(buffers: Iterable[Any], n: int, writable: bool, peers: bool = False) -> Packed:
    """Pack n buffers, of n pages; ValueError when there are not so many, or one is empty or longer than 4 GiB."""
    views: List[View] = []
    pieces: List[int] = []
    for b in buffers:
        before = len(views)
        views.extend(view(p, writable, peers) for p in (b if isinstance(b, list) else [b]))
        pieces.append(len(views) - before)
    if len(pieces) != n:
        raise ValueError(f"{n} keys and {len(pieces)} buffers")
    if not all(pieces) or any(not 0 < v.nbytes <= LENGTH_MAX for v in views):
        raise ValueError("a page has at least one piece, and a piece from 1 byte to 4 GiB - 1")
    return Packed(array("Q", [v.address for v in views]), array("I", [v.nbytes for v in views]),
                  array("I", pieces) if len(views) != n else None, views, any(v.device for v in views))


def _column(x: Any, code: str, n: int, what: str, own: bool) -> array:
    """x as array(code) of n numbers: itself, or a copy, which it always is with own."""
    if isinstance(x, array) and x.typecode == code:
        x = x[:] if own else x
    else:
        want = array(code)
        try:
            m = memoryview(x)
        except TypeError:
            want.extend(x)
        else:
            if m.itemsize != want.itemsize or m.format[-1] not in _WHOLE:
                raise TypeError(f"{what}: whole numbers of {want.itemsize} bytes wanted, not {m.format!r}")
            want.frombytes(m.cast("B") if m.contiguous else m.tobytes())
        x = want
    if len(x) != n:
        raise ValueError(f"{what}: {n} wanted, not {len(x)}")
    return x


def pack_columns(addrs: Any, lens: Any, pieces: Any, n: int, own: bool = False) -> Packed:
    """As pack(), of columns that a caller has: uint64 addresses, uint32 lengths, uint32 pieces a page or None.

    Each is an array.array ('Q', 'I'), which is used as it is, or any buffer or sequence of numbers, which is copied.
    own: copy arrays too, since the caller may go on with his before they were read.
    """
    cols = _column(pieces, "I", n, "pieces", own) if pieces is not None else None
    total = n if cols is None else sum(cols)
    if cols is not None and not all(cols):
        raise ValueError("a page has at least one piece")
    return Packed(_column(addrs, "Q", total, "addrs", own), _column(lens, "I", total, "lens", own), cols)


def shared_memory(nbytes: int) -> mmap.mmap:
    """Memory that kvctxd can reach itself when it is registered, so that its pages are moved without a copy.

    A mapping of a sealed memfd. The module and the process reach any memory; this is no worse for them.
    """
    fd = os.memfd_create("kvctx", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(fd, nbytes)
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK)
        return mmap.mmap(fd, nbytes)  # keeps a descriptor of its own, by which the library finds the memory
    finally:
        os.close(fd)
