# SPDX-License-Identifier: LGPL-2.1-or-later
"""Session: one tenant with one keyspace, and the calls on it.

Threads. Every method may be called from any thread; the GIL, where there is one, is released while the library runs.
close() waits for the calls of other threads. Callbacks of operations may use methods that do not wait for operations.

Signals. A handler, or Ctrl-C, may raise in any method: what was called is done, not begun, or in flight with its memory
held, and the session goes on. A handler may not close a session that its thread is in (RuntimeError).

Fork. In a child of fork() every method raises Error(EBADF), but for close(), which frees what the child has of it.

End. A session that is open when the interpreter ends is closed then: operations in flight are waited for, and calls of
other threads; after CLOSE_SECONDS, of all sessions together, one that a call is still in stays open. One of kvctxd
stays open in any case, since to close it waits for kvctxd's answer: the end of the process tells kvctxd the same.
Memory of what did not end in time is never freed, since a device may still write to it.
"""
from __future__ import annotations

import atexit
import ctypes
import errno
import os
import stat
import struct
import sys
import threading
import time
import warnings
import weakref
from array import array
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from . import _lib
from ._interrupted import gives_back
from ._lib import lib
from .errors import Error, Gone, check
from .keys import Key, KeyLike, Keys, as_keys, keyspace as _keyspace
from .memory import Packed, View, pack, pack_columns, shared_memory, view
from .operation import BatchPart, Operation, Part, Reaper, SqePart, done
from .results import Event, Events, Info, Match, Present, Results, Usage
from .stage import Stage

DEFAULT, URGENT, NORMAL, BACKGROUND = 0, 1, 2, 3  # priorities; DEFAULT: LOAD is URGENT, STORE is NORMAL
CLOSE_SECONDS = 30.0  # close() waits so long for operations in flight, the interpreter's end for all that it waits for
AHEAD_MS = 10_000  # match(prefetch=True) without a lease: slots stay so long
_EVENT = struct.Struct("=32sQII")
_EVENT_KINDS = {number: name.lower() for name, number in _lib.EVENTS.items()}
_LOOK_S = 0.001  # close() looks so often whether calls of other threads have ended

_open: Dict[int, weakref.ref] = {}  # sessions, by id(); no WeakSet, which another thread may change while it is read
_never_freed: List[Any] = []

KeysLike = Union[Keys, KeyLike, Iterable[KeyLike]]


def backend(path: str) -> str:
    """Who serves a path: "module", "daemon" or "process"."""
    mode = os.stat(path).st_mode if os.path.exists(path) else 0
    return "module" if stat.S_ISCHR(mode) else "daemon" if stat.S_ISSOCK(mode) else "process"


class Registration:
    """Memory that a session has pinned: operations on it, or on parts of it, move it as it is.

    .id, .address, .nbytes. Close it before the memory goes; the session holds the buffer it was made of until then, or
    until its own end. A context manager.
    """

    def __init__(self, session: Session, key: object, id: int, held: View) -> None:
        self.id, self.address, self.nbytes = id, held.address, held.nbytes
        self._key = key
        self._session: Optional[Session] = session

    def close(self) -> None:
        """Let go of it. Raises Busy while operations use it; nothing when it is closed, or the session is.

        Nothing, either, while another thread closes it.
        """
        session = self._session
        if session is not None and session._unregister(self._key, self.id):
            self._session = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Session:
    """A session of a tenant.

    path: the tenant: /dev/kvctx/POOL/TENANT (module), /run/kvctx/POOL/TENANT (kvctxd), or DIR/POOL/TENANT where
    DIR/POOL has the pool's files (in this process).
    keyspace: what tells model, dtype, layout and parallel shape: any bytes or str, of which keyspace() is taken. Pages
    of another keyspace do not exist for the session.
    readonly: match and load only. arena_bytes: pinned memory of the session's own, see .arena. entries: operations
    (pages) that the library has in flight at once, more wait in the process; at most what the server allows. slots,
    slot_bytes: room for pages that match(prefetch=True) reads ahead.
    timeout: seconds after which an operation that was not started fails with ETIME, None: never. Who serves the session
    counts them, from when it has the operation: a kvctxd that is stopped (SIGSTOP) or hangs counts none, and calls that
    wait for it do so until it goes on or ends (Gone).

    Raises Error: NotFound, Busy (another process has the pool), Gone, and others of kvctx_open().
    """

    def __init__(self, path: Union[str, os.PathLike], *, keyspace: Union[bytes, str] = "", readonly: bool = False,
                 arena_bytes: int = 0, entries: int = 1024, timeout: Optional[float] = None, slots: int = 0,
                 slot_bytes: int = 0) -> None:
        self._handle: Optional[int] = None
        self._pid = os.getpid()
        self._lock = threading.RLock()  # for _ending
        self._inside: Dict[object, int] = {}  # calls, and the threads that make them: see _enter()
        self._ending = False
        self.path = os.fspath(path)
        if not (0 < entries < 1 << 32 and 0 <= slots < 1 << 32 and 0 <= slot_bytes < 1 << 32
                and 0 <= arena_bytes < 1 << 64 and 0 <= (timeout or 0) < 1 << 34):
            raise ValueError("entries, timeout, arena_bytes, slots or slot_bytes is out of range")
        params = _lib.Params(size=ctypes.sizeof(_lib.Params), arena_bytes=arena_bytes, cq_entries=entries, eventfd=-1,
                             timeout_ns=0 if timeout is None else max(1, int(timeout * 1e9)), slot_bytes=slot_bytes,
                             nr_slots=slots)
        params.keyspace[:] = _keyspace(keyspace)
        self._registered: Dict[object, View] = {}  # by the keys of their Registrations: a number is another's soon
        out = ctypes.c_void_p()
        check(lib.kvctx_open(os.fsencode(self.path), os.O_RDONLY if readonly else os.O_RDWR, params, out), self.path)
        assert out.value is not None
        raw = lib.kvctx_get_info(out).contents
        self.info = Info._of(raw, backend(self.path))
        self.room = entries
        self._timeout_ns = params.timeout_ns
        self._reaper = Reaper(out.value, entries)
        self._stage = Stage(out.value, self.info.page_len_max)
        self._handle = out.value
        _open[id(self)] = weakref.ref(self)

    # Who is inside

    def _enter(self, call: object) -> int:
        """The handle, which stays until the call leaves; not in a child, and not when the session is closed.

        Each call is noted in _inside while it lasts, whatever a signal's handler raises in it:

            call = object()
            try:
                handle = self._enter(call)
                ...
            finally:
                self._inside.pop(call, None)  # a function of C: what a handler raises comes behind it
        """
        if os.getpid() != self._pid:
            raise Error(errno.EBADF, f"{self.path}: the session belongs to the process before fork()")
        # noted first, then asked whether it ends; close() does it the other way round, so one sees the other: to a dict
        # things are done one after the other, by the GIL or a lock of its own
        self._inside[call] = threading.get_ident()
        handle = self._handle
        if handle is None or self._ending:
            raise Error(errno.EBADF, f"{self.path}: the session is closed")
        return handle

    def _is_inside(self) -> bool:
        """Whether the caller's thread is in a call.

        In Python 3.9 what a handler raises can come between a call's end and its "finally", and the call stays noted.
        This thread's stack tells.
        """
        me = threading.get_ident()
        noted = [each for each, thread in list(self._inside.items()) if thread == me]
        frame: Any = sys._getframe(1)  # of this function itself it would be a cycle, which keeps the session
        here = frame.f_code.co_filename
        while noted and frame is not None:
            if frame.f_code.co_filename == here and any(frame.f_locals.get("call") is each for each in noted):
                return True
            frame = frame.f_back
        for each in noted:
            self._inside.pop(each, None)
        return False

    def close(self) -> None:
        """End the session: waits for calls of other threads, and up to CLOSE_SECONDS for operations in flight.

        Those that are not done then fail with ECANCELED, and their memory is never freed. Leases and registrations end.
        kvctxd, if it serves the session, has to answer: while it is stopped, close() waits until it goes on or ends.
        """
        self._close(None)

    @gives_back
    def _close(self, by: Optional[float]) -> None:
        """close(); by: time.monotonic() at which nothing is waited for any more, and nothing done that others use."""
        if os.getpid() != self._pid:
            handle, self._handle = self._handle, None
            if handle is not None:
                lib.kvctx_close(handle)
            return
        if self._is_inside():
            raise RuntimeError("a signal's handler closes a session that is in a call of the same thread")
        mine = False
        try:
            with self._lock:
                mine = self._handle is not None and not self._ending
                self._ending |= mine
            if not mine:
                return
            while list(self._inside):  # a copy is made under the dict's lock: see _enter()
                if by is not None and time.monotonic() > by:
                    _never_freed.append(self)
                    return
                time.sleep(_LOOK_S)
            if not self._reaper.mine():
                self._reaper.drain(CLOSE_SECONDS if by is None else max(0.0, by - time.monotonic()))
            stays = by is not None and self.info.backend == "daemon"
            if not self._reaper.end(self._stay_open if stays else self._close_handle, by):
                _never_freed.append(self)
        except BaseException:  # of a signal's handler: it can be called again
            self._ending = self._ending and not mine
            raise

    def _stay_open(self) -> None:
        """Instead of _close_handle(), where the process ends."""
        _never_freed.extend([self, *self._reaper.abandon(-errno.ECANCELED)])

    def _close_handle(self) -> None:
        handle, self._handle = self._handle, None
        lib.kvctx_close(handle)
        _open.pop(id(self), None)
        registered, self._registered = self._registered, {}
        left = self._reaper.abandon(-errno.ECANCELED)
        _never_freed.extend([*left, registered, self._stage.memory] if left else [])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            if os.getpid() == self._pid:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self.close()

    def __repr__(self) -> str:
        return f"<kvctx.Session {self.path}{'' if self._handle else ', closed'}>"

    @property
    def closed(self) -> bool:
        """Whether close() was called, also while it has not returned; other calls raise Error (EBADF) then.

        Raises nothing and does not block. In a child of fork() it tells what was so before.
        """
        return self._handle is None or self._ending

    def fileno(self) -> int:
        """The session's descriptor: poll() tells by it that completions came, which the session takes itself.

        For poll(), select() and epoll only; it stays the session's and ends with it. Raises Error: EBADF (closed, or in
        a child of fork()). Does not block.
        """
        call = object()
        try:
            return lib.kvctx_fd(self._enter(call))
        finally:
            self._inside.pop(call, None)

    # Memory

    def register(self, buffer: Any) -> Registration:
        """Pin memory once; whatever lies in it is found by its address afterwards, in all calls.

        buffer: of the kinds that memory.py tells, but no list; it has to be writable, except (address, length). With
        the module also a device's memory.

        Raises Error: EFAULT, ENOMEM (also: over RLIMIT_MEMLOCK, or mem_max registrations), EREMOTEIO; Gone, also where
        the device's driver comes or goes.
        """
        held, id = view(buffer, True, self._peers()), ctypes.c_uint32()
        key, call = object(), object()
        try:
            handle = self._enter(call)
            self._registered[key] = held  # before, since a signal's handler may raise behind the call
            check(lib.kvctx_mem_register(handle, held.address, held.nbytes, id), "register")
        except Error:
            self._registered.pop(key, None)
            raise
        finally:
            self._inside.pop(call, None)
        return Registration(self, key, id.value, held)

    def _unregister(self, key: object, id: int) -> bool:
        """Whether it is over; False: another thread is at it."""
        if self.closed:
            return True
        call = object()
        try:
            handle = self._enter(call)
            held = self._registered.pop(key, None)  # one gets it, and nobody a number that is another's
            if held is None:
                return False
            try:
                check(lib.kvctx_mem_unregister(handle, id), "unregister")
            except BaseException as e:  # of a signal's handler: it may be done, and is not tried again
                self._registered[key if isinstance(e, Error) else object()] = held
                raise
        except Error:
            if not self.closed:
                raise
        finally:
            self._inside.pop(call, None)
        return True

    @property
    def arena(self) -> Optional[memoryview]:
        """The session's own pinned memory, or None where it was opened without arena_bytes.

        As many bytes as arena_bytes, in whole memory pages; to read only in a session that is readonly. It must not be
        used when the session is closed. Raises Error: EBADF (closed, or in a child of fork()). Does not block.
        """
        size = ctypes.c_size_t()
        call = object()
        try:
            start = lib.kvctx_arena(self._enter(call), size)
        finally:
            self._inside.pop(call, None)
        if not start:
            return None
        whole = memoryview((ctypes.c_char * size.value).from_address(start)).cast("B")
        return whole.toreadonly() if self.info.readonly else whole

    # Pages, of buffers and packed

    def store(self, keys: KeysLike, buffers: Any, *, depth: int = 0, replace: bool = False, verify: bool = True,
              prio: int = DEFAULT) -> Results:
        """Store pages and wait.

        keys: Keys, or names. buffers: one a key; what memory.py calls a buffer, or a list of its pieces. One key alone
        goes with one buffer. depth: position of the first page in its prefix, from 1, the others follow; 0: unknown.
        replace: also when the key is taken. verify=False: without CRCs, and never verified then.

        Memory that is not registered, which has to be the host's, is copied on the way. Returns a result a page: its
        bytes, 0 when the pool's write budget is spent, or -errno. Raises Error when nothing was done at all.
        """
        return self._run(_lib.OP_STORE, *self._pages(keys, buffers, False), depth, _flags(verify, replace), prio)

    def load(self, keys: KeysLike, buffers: Any, *, verify: bool = True, prio: int = DEFAULT,
             offset: int = 0) -> Results:
        """Load pages, or the first bytes of them, as many as their buffers have, and wait.

        As store(); offset: of the first byte wanted in each page. Every negative result means that the page has to be
        computed again, and its buffer holds anything then.
        """
        return self._run(_lib.OP_LOAD, *self._pages(keys, buffers, True), 0, _flags(verify), prio, offset)

    def submit_store(self, keys: KeysLike, buffers: Any, *, depth: int = 0, replace: bool = False,
                     verify: bool = True, prio: int = DEFAULT) -> Operation:
        """Begin to store pages: an Operation whose result is that of store().

        The memory may not change until the operation is done; what is not registered is copied, as in store().
        """
        return self._submit(_lib.OP_STORE, *self._pages(keys, buffers, False), depth, _flags(verify, replace), prio)

    def submit_load(self, keys: KeysLike, buffers: Any, *, verify: bool = True, prio: int = DEFAULT,
                    offset: int = 0) -> Operation:
        """Begin to load pages: an Operation whose result is that of load(). Memory as for submit_store()."""
        return self._submit(_lib.OP_LOAD, *self._pages(keys, buffers, True), 0, _flags(verify), prio, offset)

    def store_packed(self, keys: Keys, addrs: Any, lens: Any, pieces: Any = None, *, depth: int = 0,
                     replace: bool = False, verify: bool = True, prio: int = DEFAULT) -> Results:
        """store() of columns: addrs uint64, lens uint32, pieces uint32 pieces a page, or None: one each.

        array.array of 'Q' and 'I' is used as it is; other buffers and sequences of numbers are copied.
        """
        return self._run(_lib.OP_STORE, keys, pack_columns(addrs, lens, pieces, len(keys)), depth,
                         _flags(verify, replace), prio)

    def load_packed(self, keys: Keys, addrs: Any, lens: Any, pieces: Any = None, *, verify: bool = True,
                    prio: int = DEFAULT, offset: int = 0) -> Results:
        """load() of columns, as store_packed()."""
        return self._run(_lib.OP_LOAD, keys, pack_columns(addrs, lens, pieces, len(keys)), 0, _flags(verify), prio,
                         offset)

    def submit_store_packed(self, keys: Keys, addrs: Any, lens: Any, pieces: Any = None, *, depth: int = 0,
                            replace: bool = False, verify: bool = True, prio: int = DEFAULT) -> Operation:
        """submit_store() of columns, as store_packed(). The caller keeps the memory; columns are copied."""
        return self._submit(_lib.OP_STORE, keys, pack_columns(addrs, lens, pieces, len(keys), True), depth,
                            _flags(verify, replace), prio)

    def submit_load_packed(self, keys: Keys, addrs: Any, lens: Any, pieces: Any = None, *, verify: bool = True,
                           prio: int = DEFAULT, offset: int = 0) -> Operation:
        """submit_load() of columns, as submit_store_packed()."""
        return self._submit(_lib.OP_LOAD, keys, pack_columns(addrs, lens, pieces, len(keys), True), 0, _flags(verify),
                            prio, offset)

    def _peers(self) -> bool:
        return self.info.backend == "module"

    def _pages(self, keys: KeysLike, buffers: Any, writable: bool) -> Tuple[Keys, Packed]:
        names = as_keys(keys)
        if isinstance(keys, (Key, bytes, str)):
            buffers = [buffers]
        return names, pack(buffers, len(names), writable, self._peers())

    @staticmethod
    def _batch(opcode: int, keys: Keys, packed: Packed, depth: int, flags: int, prio: int,
               offset: int) -> _lib.Batch:
        return _lib.Batch(size=ctypes.sizeof(_lib.Batch), flags=0 if packed.device else _lib.BATCH_STAGE,
                          opcode=opcode, prio=prio, nr=len(keys), op_flags=flags, depth=depth, offset=offset,
                          keys=keys.address, addrs=packed.addrs.buffer_info()[0],
                          lens=packed.lens.buffer_info()[0],
                          pieces=packed.pieces.buffer_info()[0] if packed.pieces is not None else 0)

    def _run(self, opcode: int, keys: Keys, packed: Packed, depth: int, flags: int, prio: int,
             offset: int = 0) -> Results:
        n, ok = len(keys), 0
        _check_numbers(n, depth, prio, offset)
        res, cqe_flags = array("i", bytes(4 * n)), array("I", bytes(4 * n))
        call = object()
        try:
            handle = self._enter(call)
            for page, size, some in packed.cut(n, _sizes(n, _lib.BATCH_RUN_MAX)):
                part = keys if size == n else keys[page:page + size]
                b = self._batch(opcode, part, some, depth and depth + page, flags, prio, offset)
                b.res = res.buffer_info()[0] + 4 * page
                b.cqe_flags = cqe_flags.buffer_info()[0] + 4 * page
                ok += check(self._run_batch(handle, b, some))
        finally:
            self._inside.pop(call, None)
        return Results(res, cqe_flags, ok)

    def _run_batch(self, handle: int, b: _lib.Batch, packed: Packed) -> int:
        """kvctx_batch_run(), with slots that are long enough for memory that is not registered."""
        while True:
            ret = lib.kvctx_batch_run(handle, b)
            if ret != -errno.EFAULT or not b.flags:
                return ret
            ret = self._stage.fit(packed.longest(b.nr))
            if ret == -errno.EBUSY:
                self._stage.wait()
            elif ret:
                return ret

    def _submit(self, opcode: int, keys: Keys, packed: Packed, depth: int, flags: int, prio: int,
                offset: int = 0) -> Operation:
        n = len(keys)
        _check_numbers(n, depth, prio, offset)
        res, cqe_flags = array("i", bytes(4 * n)), array("I", bytes(4 * n))
        op = Operation((self, packed))
        op._finish = lambda: Results(res, cqe_flags, op._ok)
        call = object()
        try:
            self._enter(call)
            parts: List[Part] = []
            for page, size, some in packed.cut(n, _sizes(n, self._reaper.part_pages)):
                part = keys if size == n else keys[page:page + size]
                b = self._batch(opcode, part, some, depth and depth + page, flags, prio, offset)
                b.res = res.buffer_info()[0] + 4 * page
                b.cqe_flags = cqe_flags.buffer_info()[0] + 4 * page
                parts.append(BatchPart(op, b, page, res, (part, cqe_flags), some, self._stage))
            return self._reaper.start(op, parts)
        finally:
            self._inside.pop(call, None)

    # Index

    def match(self, keys: KeysLike, lease: float = 0.0, all: bool = True, prefetch: bool = False) -> Match:
        """Which pages are here.

        keys: in prefix order, of the whole prompt: each call counts as a request for it when it is decided which pages
        stay. lease: seconds to keep the pages found from eviction, at most info.lease_ms_max; 0: no lease. all=False:
        stop at the first that is missing. prefetch: begin to read leading pages into the session's slots, kept for
        the lease's time from their arrival (default: 10 s), without waiting for them.

        Returns a Match, without a lease where the session has none left, and with none read ahead where it has no
        slots. Raises ValueError for a lease below 0 or from 2**22 s on; Error: EINVAL (a lease longer than
        lease_ms_max), Gone (ENODEV), ENOMEM, EBADF (closed, or in a child of fork()). With prefetch also what
        register() raises, and RuntimeError in a callback of an operation. Blocks for no device; with kvctxd until that
        answers, whatever the session's timeout.
        """
        names = as_keys(keys)
        if not 0 <= lease < 1 << 22:  # in milliseconds, of 32 bits
            raise ValueError(f"a lease of {lease} s")
        ms = int(lease * 1000 + 0.5) or (1 if lease > 0 else 0)
        n, count, prefetched, leases = len(names), 0, 0, []
        words, lengths = array("Q", bytes(8 * ((n + 63) // 64))), array("I", bytes(4 * n))
        call = object()
        try:
            handle = self._enter(call)
            step = self.info.match_max & ~63
            for at in range(0, n, step):
                part = names if n <= step else names[at:at + step]
                where = words.buffer_info()[0] + at // 8, lengths.buffer_info()[0] + 4 * at
                found, id, ahead = self._match(handle, part, where, ms, all, prefetch)
                count += found
                prefetched += ahead if prefetched == at else 0
                leases += [id] if id else []
                if not all:
                    _set_leading(words, count)
                    if found < len(part):
                        break
        except BaseException:  # nobody will know of them
            for id in leases:
                lib.kvctx_release(handle, id)
            raise
        finally:
            self._inside.pop(call, None)
        return Match(self, count, _leading(words, n), Present(words, n), lengths, prefetched, tuple(leases))

    def _match(self, handle: int, keys: Keys, where: Tuple[int, int], ms: int, all: bool,
               prefetch: bool) -> Tuple[int, int, int]:
        """One MATCH: pages found, lease, pages being read ahead."""
        id = ctypes.c_uint32()
        if prefetch:
            return self._match_ahead(handle, keys, where, ms, all)
        if all:
            ret = lib.kvctx_match_all(handle, keys.address, len(keys), where[0], where[1], ms, id)
        else:
            ret = lib.kvctx_match(handle, keys.address, len(keys), where[1], ms, id)
        return check(ret, "match"), id.value, 0

    def _match_ahead(self, handle: int, keys: Keys, where: Tuple[int, int], ms: int, all: bool) -> Tuple[int, int, int]:
        """_match() with everything in one request: the operation MATCH, which answers to registered memory."""
        if self._reaper.mine():
            raise RuntimeError("a callback of an operation waits for another")
        n, words = len(keys), 8 * ((len(keys) + 63) // 64)
        res = array("i", [0])
        op = Operation((self, keys))
        sqes = (_lib.Sqe * 1)()
        sqe = sqes[0]
        sqe.opcode, sqe.flags, sqe.lease_ms = _lib.OP_MATCH, _lib.OP_MATCH_PREFETCH, ms or AHEAD_MS
        sqe.flags |= (_lib.OP_MATCH_LEASE if ms else 0) | (_lib.OP_MATCH_ALL if all else 0)
        sqe.keys, sqe.nr_keys, sqe.length = keys.address, n, ctypes.sizeof(_lib.Found) + words + 4 * n
        with self.register(shared_memory(sqe.length)) as there:
            sqe.mem = there.id
            self._reaper.start(op, [SqePart(op, sqes, 0, res, None, there)]).wait_out()
            found = _lib.Found.from_address(there.address)
            at = there.address + ctypes.sizeof(_lib.Found)
            if res[0] >= 0:
                ctypes.memmove(where[0], at, words)
                ctypes.memmove(where[1], at + words, 4 * n)
            return check(res[0], "match"), found.lease, found.nr_prefetched

    def submit_match(self, keys: KeysLike, lease: float = 0.0, all: bool = True, prefetch: bool = False) -> Operation:
        """match() as an Operation. It is done at the return: kvctxd is waited for, but asks no device."""
        return done(lambda: self.match(keys, lease, all, prefetch))

    def _release(self, lease: int) -> None:
        if self.closed or os.getpid() != self._pid:
            return
        call = object()
        try:
            ret = lib.kvctx_release(self._enter(call), lease)
        except Error:  # it was closed meanwhile
            return
        finally:
            self._inside.pop(call, None)
        if ret != -errno.EINVAL:  # it has run out
            check(ret, "release")

    def delete(self, keys: KeysLike) -> Results:
        """Drop pages and wait: 0 each, or -errno. Durable after flush().

        -errno of a page: ENOENT (not here), EACCES (the session is readonly), ENODEV (the pool is gone), ETIME (the
        session's timeout passed first), ENOMEM. Raises Error when nothing was done at all: EBADF (closed, or in a child
        of fork()), Gone (ENODEV). Blocks until all are done; with kvctxd until that answers, whatever the timeout.
        """
        return self._each(_lib.OP_DELETE, lib.kvctx_delete, as_keys(keys))

    def query(self, keys: KeysLike) -> Results:
        """Lengths of pages: bytes each, or -errno. Says nothing of a request, unlike match().

        -errno of a page: ENOENT (not here), ENODEV (the member, or the pool, is gone). Raises Error as delete(). Blocks
        for no device; with kvctxd until that answers, whatever the session's timeout.
        """
        return self._each(_lib.OP_QUERY, lib.kvctx_query, as_keys(keys))

    def submit_delete(self, keys: KeysLike) -> Operation:
        """Begin delete(): an Operation whose result is that of delete()."""
        return self._submit_each(_lib.OP_DELETE, as_keys(keys))

    def submit_query(self, keys: KeysLike) -> Operation:
        """Begin query(): an Operation whose result is that of query()."""
        return self._submit_each(_lib.OP_QUERY, as_keys(keys))

    def _each(self, opcode: int, function: Any, keys: Keys) -> Results:
        """One operation a key: together, or one by one where that is soon done or nothing can wait for the reaper."""
        n = len(keys)
        soon = n == 1 or opcode == _lib.OP_QUERY and self.info.backend != "daemon"
        call = object()
        try:
            handle = self._enter(call)
            if not soon and not self._reaper.mine():
                op = self._submit_each(opcode, keys)
            else:
                return Results(array("i", [function(handle, keys.address + _lib.KEY_BYTES * i) for i in range(n)]))
        finally:
            self._inside.pop(call, None)
        return op.result()

    def _submit_each(self, opcode: int, keys: Keys) -> Operation:
        n, most = len(keys), min(self._reaper.part_pages, self.info.batch_max)
        res = array("i", bytes(4 * n))
        op = Operation(self)
        op._finish = lambda: Results(res)
        parts: List[Part] = []
        for page, size in ((p, min(most, n - p)) for p in range(0, n, most)):
            sqes = (_lib.Sqe * size)()
            for i, sqe in enumerate(sqes):
                sqe.opcode, sqe.timeout_ns = opcode, self._timeout_ns
                ctypes.memmove(ctypes.byref(sqe, _lib.Sqe.key.offset), keys.address + _lib.KEY_BYTES * (page + i),
                               _lib.KEY_BYTES)
            parts.append(SqePart(op, sqes, page, res, None, keys))
        call = object()
        try:
            self._enter(call)
            return self._reaper.start(op, parts)
        finally:
            self._inside.pop(call, None)

    # The rest

    def flush(self) -> None:
        """Make durable what completed before the call, and wait. Raises Error: EIO, Gone."""
        call = object()
        try:
            handle = self._enter(call)
            check(lib.kvctx_flush(handle), "flush")
        finally:
            self._inside.pop(call, None)

    def submit_flush(self) -> Operation:
        """Begin flush(): an Operation whose result is None. It covers what was complete before this call."""
        res = array("i", [0])
        op = Operation(self)

        def finish() -> None:
            check(res[0], "flush")

        op._finish = finish
        sqes = (_lib.Sqe * 1)()
        sqes[0].opcode, sqes[0].timeout_ns = _lib.OP_FLUSH, self._timeout_ns
        call = object()
        try:
            self._enter(call)
            return self._reaper.start(op, [SqePart(op, sqes, 0, res, None, None)])
        finally:
            self._inside.pop(call, None)

    def usage(self) -> Usage:
        """What the tenant has in the pool now, in all its keyspaces: pages, and bytes.

        Raises Error: Gone (ENODEV: the pool or kvctxd is gone), EBADF (closed, or in a child of fork()). Blocks for no
        device; with kvctxd until that answers, whatever the session's timeout.
        """
        values = [ctypes.c_uint64() for _ in range(3)]
        call = object()
        try:
            handle = self._enter(call)
            check(lib.kvctx_usage(handle, *values), "usage")
        finally:
            self._inside.pop(call, None)
        return Usage(*(v.value for v in values))

    def gone(self) -> bool:
        """Whether a new session is needed, asked when a page's result was -ENODEV: that may be its member's alone.

        Then the session serves all else, and may be what keeps the pool attached. Asks no device; a closed session is
        not gone. A pool of this process with one member is gone with that: attached anew, it may find it back.
        """
        if self.info.backend == "process" and self.info.members == 1:
            return True
        try:
            self.usage()
        except Gone:
            return True
        except Error:
            pass
        return False

    def events(self, most: int = 4096) -> Events:
        """Which pages of the session's keyspace came and went since the call before, by whomever: at most so many.

        The first call begins and tells nothing. Events wait for nobody: .lost counts those that came too long ago
        (info.events_max are kept). Then, as after "member_lost", only match() and query() tell what is here. Does not
        wait for events. Raises Error: ENOMEM, Gone, EOPNOTSUPP (nobody tells: "events" is not in info.features).
        """
        room = (_lib.Event * min(most, self.info.events_max))()
        lost = ctypes.c_uint64()
        call = object()
        try:
            handle = self._enter(call)
            nr = check(lib.kvctx_events(handle, room, len(room), lost), "events")
        finally:
            self._inside.pop(call, None)
        told = memoryview(room).cast("B")[:nr * _EVENT.size]
        return Events([Event(_EVENT_KINDS.get(kind, "other"), Key(digest, qualifier), length)
                       for digest, qualifier, kind, length in _EVENT.iter_unpack(told)], lost.value)

    def drain(self, timeout: Optional[float] = None) -> bool:
        """Wait until no operation of submit_... is in flight, also of those begun meanwhile: memory may go then.

        timeout: seconds, None: as long as it takes, also for a device or a kvctxd that does not answer. Returns False
        when it was over first; operations go on. Their errors are told by themselves. Raises Error: EBADF (closed, or
        in a child of fork()); RuntimeError in a callback of an operation, which would wait for itself.
        """
        call = object()
        try:
            self._enter(call)
            return self._reaper.drain(timeout)
        finally:
            self._inside.pop(call, None)


def _check_numbers(n: int, depth: int, prio: int, offset: int) -> None:
    """ValueError for what structures have no room for: ctypes would drop the upper bits."""
    if not (0 <= depth and depth + n <= 1 << 32 and 0 <= prio < 1 << 8 and 0 <= offset < 1 << 64):
        raise ValueError(f"depth {depth}, prio {prio} or offset {offset} is out of range")


def _flags(verify: bool, replace: bool = False) -> int:
    return (0 if verify else _lib.OP_NO_VERIFY) | (_lib.OP_REPLACE if replace else 0)


def _sizes(n: int, most: int) -> List[int]:
    """n pages in parts of at most so many."""
    return [min(most, n - at) for at in range(0, n, most)]


def _leading(words: array, n: int) -> int:
    """Bits set in words, from the first on."""
    for i, word in enumerate(words):
        if word != _lib.TIMEOUT_NONE:
            return min(n, 64 * i + (~word & word + 1).bit_length() - 1)
    return n


def _set_leading(words: array, n: int) -> None:
    """Set the first n bits."""
    for i in range(len(words)):
        words[i] = (1 << max(0, min(64, n - 64 * i))) - 1


@atexit.register
def _close_all() -> None:
    """Close what is open, each whatever a signal's handler raised in the one before: that is raised then."""
    by, stopped = time.monotonic() + CLOSE_SECONDS, None
    try:
        for session in filter(None, [known() for known in list(_open.values())]):
            try:
                session._close(by)
            except BaseException as e:
                _never_freed.append(session)
                stopped = e
    finally:
        if _never_freed:  # nor when the interpreter takes this module apart
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(_never_freed))
    if stopped is not None:
        raise stopped
