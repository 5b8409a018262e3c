# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operations in flight: what is submitted and not yet complete, and the thread that takes completions.

Vocabulary
  operation  what a submit_* call returns; made of one part or more
  part       what one call of the library submits: a batch of pages with one completion, or single operations of one
             completion each
  reaper     the session's one thread that takes completions. It starts with the first operation, sleeps in the
             library while something is in flight, and ends with the session. Callbacks of operations run in it

Invariants. A part is in Reaper.parts from before it is submitted until its last completion was taken; the arrays and
buffers that the library was told of are held by it as long. Parts that find no room wait in Reaper.waiting, in order,
and are submitted by the reaper when others have completed. Nothing calls the library with the lock held, nor a
callback. A part is in Reaper.out from before it is submitted; what a signal's handler raises may come between any two
calls of a thread that submits, so nothing is counted. Who submits is in Reaper.starting from before a part is known.
"""
from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import threading
import time
from array import array
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Deque, Dict, Generator, List, Optional, Set

from . import _lib
from ._interrupted import gives_back
from ._lib import lib
from .errors import Error, error
from .memory import Packed
from .stage import Stage

_SHIFT = 16  # user_data: number of the part, and of the operation in it
_TAKE = 256
_LOOK_NS = 500_000_000  # how long the reaper sleeps at most before it looks whether the session ends
_RETRY_S, _SOON_S = 0.001, 0.00005
_DRAIN_S = 0.1  # drain() looks so often whether what is left was interrupted


class Operation(Future):
    """Something in flight: a concurrent.futures.Future that can be awaited, too.

    result(timeout) gives what the synchronous call returns, or raises what it raises; timeout is in seconds, and ends
    only the waiting. It cannot be cancelled: memory stays in use until it is done. Callbacks get the operation, in the
    session's reaper thread: they have to be short, and must not wait for another operation.
    """

    def __init__(self, keep: Any = None) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._keep = keep
        self._pid = os.getpid()
        self._by: Optional[threading.Thread] = None  # the reaper that ends it
        self._parts = 0
        self._ok = 0
        self._finish: Callable[[], Any] = lambda: None

    def _check(self, timeout: Optional[float]) -> None:
        """A child's copy of an operation would never end, nor one for which the thread waits that would end it."""
        if os.getpid() != self._pid:
            raise Error(errno.EBADF, "the operation belongs to the process before fork()")
        if threading.current_thread() is self._by and (timeout is None or timeout > 0) and not self.done():
            raise RuntimeError("a callback of an operation waits for another")

    def result(self, timeout: Optional[float] = None) -> Any:
        """Wait, and return what the synchronous call does: Results, whose pages have failed or not, a Match, or None.

        timeout: seconds, None: as long as it takes. Raises what that call raises, an Error of its errno; TimeoutError
        (of concurrent.futures) when the time is over: the operation goes on, and can be asked again; Error: EBADF in a
        child of fork(); RuntimeError in a callback of an operation of this session, as nobody would complete another.
        """
        self._check(timeout)
        return super().result(timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Wait as result(), and return what that raises, None where it returns.

        Pages that failed are no exception, see Results.check(). Raises TimeoutError, RuntimeError and Error (EBADF) as
        result().
        """
        self._check(timeout)
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As Future's; a callback that calls sys.exit() in the reaper thread has that logged, as other exceptions."""
        super().add_done_callback(partial(_call_back, fn))

    def wait_out(self) -> None:
        """Wait until it is done, whatever a signal's handler raises: that is raised then."""
        stopped: Optional[BaseException] = None
        while not self.done():
            self._check(None)
            try:
                super().exception()
            except BaseException as e:
                stopped = e
        if stopped is not None:
            raise stopped

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def _end(self) -> None:
        finish, self._finish, self._keep = self._finish, lambda: None, None
        try:
            result = finish()
        except Exception as e:
            self.set_exception(e)
        else:
            self.set_result(result)


def _call_back(fn: Callable[[Any], object], op: Operation) -> None:
    try:
        fn(op)
    except Exception:
        raise
    except BaseException as e:
        if threading.current_thread() is threading.main_thread():
            raise
        raise RuntimeError(f"a callback raised {e!r}, which would have ended the thread that called it") from e


def done(result: Callable[[], Any]) -> Operation:
    """An operation that is complete: what needs no waiting. Errors are raised, as by other submit_* calls."""
    op = Operation()
    op.set_result(result())
    return op


class Part:
    """One call's worth of an operation. nr: completions that it gives; page, pages: its place in the results."""

    def __init__(self, op: Operation, nr: int, page: int, pages: int) -> None:
        self.op, self.nr, self.page, self.pages = op, nr, page, pages
        self.number = 0
        self.left = nr
        self.tried = False  # the library was told of it

    def submit(self, handle: int) -> int:
        """0, -EAGAIN, or why nothing was done."""
        raise NotImplementedError

    def complete(self, n: int, res: int, flags: int) -> None:
        """Completion n of nr."""

    def fail(self, res: int) -> None:
        """Whatever has no completion yet gets none."""
        raise NotImplementedError


class BatchPart(Part):
    """Pages of one kvctx_batch_submit(). res: where the operation's results are; the library writes them.

    packed: their memory, of which stage has slots for what is not registered.
    """

    def __init__(self, op: Operation, batch: _lib.Batch, page: int, res: array, keep: Any, packed: Packed,
                 stage: Stage) -> None:
        super().__init__(op, 1, page, batch.nr)
        self.batch, self.res, self.keep, self.packed, self.stage = batch, res, keep, packed, stage

    def submit(self, handle: int) -> int:
        self.batch.user_data = self.number << _SHIFT
        self.tried = True
        while True:
            ret = lib.kvctx_batch_submit(handle, self.batch)
            if ret != -errno.EFAULT or not self.batch.flags:
                return ret
            ret = self.stage.fit(self.packed.longest(self.batch.nr))
            if ret:
                return -errno.EAGAIN if ret == -errno.EBUSY else ret

    def complete(self, n: int, res: int, flags: int) -> None:
        self.op._ok += res

    def fail(self, res: int) -> None:
        for n in range(self.page, self.page + self.pages):
            self.res[n] = res


class SqePart(Part):
    """Single operations of kvctx_submit_sqes()."""

    def __init__(self, op: Operation, sqes: Any, page: int, res: array, flags: Optional[array], keep: Any) -> None:
        super().__init__(op, len(sqes), page, len(sqes))
        self.sqes, self.res, self.flags, self.keep = sqes, res, flags, keep
        self.taken = 0

    def submit(self, handle: int) -> int:
        if not self.taken:
            for n, sqe in enumerate(self.sqes):
                sqe.user_data = self.number << _SHIFT | n
        while self.taken < self.nr:
            at = ctypes.addressof(self.sqes) + self.taken * ctypes.sizeof(_lib.Sqe)
            self.tried = True
            ret = lib.kvctx_submit_sqes(handle, at, self.nr - self.taken)
            if ret < 0:
                return ret
            self.taken += ret
        return 0

    def complete(self, n: int, res: int, flags: int) -> None:
        self.res[self.page + n] = res
        if self.flags is not None:
            self.flags[self.page + n] = flags

    def fail(self, res: int) -> None:
        for n in range(self.taken, self.nr):
            self.res[self.page + n] = res


class Reaper:
    """Submits parts and takes their completions; one a session.

    room: operations that the library lets be in flight at once.
    """

    def __init__(self, handle: int, room: int) -> None:
        self._handle = handle
        self.part_pages = max(1, room // 4)
        # reentrant: a session may be collected wherever memory is allocated. Of C, unlike "with" of a Condition: what a
        # signal's handler raises never leaves it locked, see gives_back()
        self._lock = threading.RLock()
        self._cond = threading.Condition(self._lock)
        self._parts: Dict[int, Part] = {}
        self._waiting: Deque[Part] = deque()
        self._next = 1
        self._out: Set[int] = set()  # numbers of parts that are, or are being, submitted; one comes or goes unlocked
        self._doubt: Set[int] = set()  # of those that may not be, see _interrupted()
        self._starting: Set[object] = set()  # calls of start(); "finally" cannot wait for the lock, so none is taken
        self._stop = False
        self._thread: Optional[threading.Thread] = None
        self._at_end: Optional[Callable[[], None]] = None

    def mine(self) -> bool:
        """Whether the caller runs in the reaper thread, where nothing may wait for it."""
        return threading.current_thread() is self._thread

    @gives_back
    def in_flight(self) -> int:
        """Parts without their last completion."""
        with self._lock:
            return len(self._parts)

    @gives_back
    def start(self, op: Operation, parts: List[Part]) -> Operation:
        """Submit an operation. Raises when its first part is refused; a later one's pages have the error as result.

        One without parts, since it has no pages, is done at once.
        """
        if not parts:
            op._end()
            return op
        call = object()
        try:
            self._starting.add(call)
            if self._enlist(op, parts):
                self._submit_now(parts)
        except Error:
            self._forget(parts)
            raise
        except BaseException:
            while not self._interrupted(parts):
                pass
            raise
        finally:
            self._starting.discard(call)
        return op

    def _enlist(self, op: Operation, parts: List[Part]) -> bool:
        """Know parts of an operation. Whether they are to be submitted, and do not wait behind others."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kvctx-reaper", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                finally:
                    if thread.ident is None:
                        self._thread = None
            op._by, op._parts = self._thread, len(parts)
            for part in parts:
                part.number = self._next
                self._next += 1
                self._parts[part.number] = part
            if not self._waiting:
                return True
            self._waiting.extend(parts)
            return False

    def _submit_now(self, parts: List[Part]) -> None:
        for n, part in enumerate(parts):
            ret = self._send(part)
            if ret == -errno.EAGAIN:
                with self._lock:
                    self._waiting.extend(parts[n:])
                    self._cond.notify_all()
                return
            if ret < 0 and n == 0 and not getattr(part, "taken", 0):
                raise error(ret)
            self._note(part, ret)

    def _send(self, part: Part) -> int:
        """Submit a part, which is out then, but when nothing of it was taken."""
        self._out.add(part.number)
        ret = part.submit(self._handle)
        if ret < 0 and not getattr(part, "taken", 0):
            self._out.discard(part.number)
        return ret

    def _interrupted(self, parts: List[Part]) -> bool:
        """A signal's handler has raised while parts were submitted: those that were not never will be.

        False: that, too, was interrupted.
        """
        try:
            with self._lock:
                known = {p.number for p in parts if p.number in self._parts}
                doubt = {p.number for p in parts if p.tried} & known & self._out
                self._doubt |= doubt
                self._lose(known - doubt)
        except BaseException:
            return False
        return True

    def _lose(self, numbers: Set[int]) -> None:
        """These were not submitted. Nobody waits for them, since their submission has raised. Locked."""
        for n in numbers & set(self._parts):
            self._out.discard(n)
            del self._parts[n]
        self._cond.notify_all()

    def _forget(self, parts: List[Part]) -> None:
        with self._lock:
            for part in parts:
                del self._parts[part.number]
            self._cond.notify_all()

    def _note(self, part: Part, ret: int) -> None:
        """A part was submitted, or refused."""
        if ret < 0:
            part.fail(ret)
            with self._lock:
                part.left -= part.nr - getattr(part, "taken", 0)
                over = not part.left
            if over:
                self._over(part)
                return
        with self._lock:
            self._cond.notify_all()

    def _over(self, part: Part) -> None:
        """A part's last completion was taken, or it will have none."""
        with self._lock:
            self._out.discard(part.number)
            del self._parts[part.number]
            part.op._parts -= 1
            last = not part.op._parts
            if not self._parts:
                self._cond.notify_all()
        if last:
            part.op._end()

    def _dispatch(self, cqe: _lib.Cqe) -> None:
        part = self._parts[cqe.user_data >> _SHIFT]
        part.complete(cqe.user_data & (1 << _SHIFT) - 1, cqe.res, cqe.flags)
        with self._lock:
            part.left -= 1
            over = not part.left
        if over:
            self._over(part)

    def _submit_waiting(self) -> bool:
        """Submit what waits, while there is room. Whether some still waits."""
        while True:
            with self._lock:
                while self._waiting and self._waiting[0].number not in self._parts:
                    self._waiting.popleft()  # lost, see _interrupted()
                if not self._waiting:
                    return False
                part = self._waiting[0]
                part.tried = True
                self._out.add(part.number)
            ret = self._send(part)
            if ret == -errno.EAGAIN:
                return True
            with self._lock:
                self._waiting.popleft()
            self._note(part, ret)

    def _idle(self) -> bool:
        """Sleep until something is in flight. False: the session ends."""
        with self._lock:
            while not self._out and not self._waiting and not self._stop:
                self._cond.wait()
            return not self._stop

    def _run(self) -> None:
        cqes = (_lib.Cqe * _TAKE)()
        while self._idle():
            with self._lock:
                doubt = set(self._doubt)
            ready = lib.kvctx_wait(self._handle, 1, _LOOK_NS)
            taken = lib.kvctx_take(self._handle, cqes, _TAKE)
            for n in range(taken):
                self._dispatch(cqes[n])
            if self._submit_waiting() and not taken and not self._out:
                time.sleep(_RETRY_S)  # synchronous calls leave no room at the moment
            elif not taken and not ready:  # one is out and not in flight: it is about to be, or never will
                with self._lock:
                    self._doubt -= doubt
                    self._lose(doubt)
                time.sleep(_SOON_S)
        if self._at_end:
            self._at_end()

    @gives_back
    def drain(self, timeout: Optional[float]) -> bool:
        """Wait until nothing is in flight; False: the time (seconds) was over first."""
        if self.mine():
            raise RuntimeError("a callback of an operation waits for operations")
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while self._parts:
                left = _DRAIN_S if end is None else end - time.monotonic()
                if left <= 0:
                    return False
                if not self._starting:
                    self._settle()
                self._cond.wait_for(lambda: not self._parts, min(left, _DRAIN_S))
        return True

    def _settle(self) -> None:
        """Nobody is inside start(): what is not out and does not wait was left by one who was interrupted again before
        _interrupted() had its way, and what is out may have been. Locked."""
        known = set(self._parts) - {part.number for part in self._waiting}
        self._doubt |= known & self._out
        self._lose(known - self._out)

    @gives_back
    def end(self, at_end: Callable[[], None], by: Optional[float] = None) -> bool:
        """End the thread, then call at_end, in this thread, or in the reaper if that is the caller.

        False: the thread is in a call at the time by (of time.monotonic()), and at_end is not called.
        """
        with self._lock:
            self._stop = True
            if self.mine():
                self._at_end = at_end
            self._cond.notify_all()
        if self._thread is None:
            at_end()
        elif not self.mine():
            self._thread.join(None if by is None else max(0.0, by - time.monotonic()))
            if self._thread.is_alive():
                return False
            at_end()
        return True

    @gives_back
    def abandon(self, res: int) -> List[Part]:
        """End operations that nobody will complete any more; their parts, whose memory may yet be written."""
        with self._lock:
            parts = list(self._parts.values())
            self._parts.clear()
            self._waiting.clear()
        for part in parts:
            part.fail(res)
            part.op._parts -= 1
            if not part.op._parts:
                part.op._end()
        return parts
