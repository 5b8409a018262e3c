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
callback.
"""
from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import threading
from array import array
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Deque, Dict, Generator, List, Optional

from . import _lib
from ._lib import lib
from .errors import Error, error

_SHIFT = 16  # user_data: number of the part, and of the operation in it
_TAKE = 256
_LOOK_NS = 500_000_000  # how long the reaper sleeps at most before it looks whether the session ends
_RETRY_S = 0.001


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
        self._parts = 0
        self._ok = 0
        self._finish: Callable[[], Any] = lambda: None

    def _check(self) -> None:
        """A child's copy of an operation would never end."""
        if os.getpid() != self._pid:
            raise Error(errno.EBADF, "the operation belongs to the process before fork()")

    def result(self, timeout: Optional[float] = None) -> Any:
        self._check()
        return super().result(timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        self._check()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As Future's; a callback that calls sys.exit() in the reaper thread has that logged, as other exceptions."""
        super().add_done_callback(partial(_call_back, fn))

    def wait_out(self) -> None:
        """Wait until it is done, whatever a signal's handler raises: that is raised then."""
        stopped: Optional[BaseException] = None
        while not self.done():
            try:
                self.exception()
            except Error:
                raise  # this is a child of fork()
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

    def submit(self, handle: int) -> int:
        """0, -EAGAIN, or why nothing was done."""
        raise NotImplementedError

    def complete(self, n: int, res: int, flags: int) -> None:
        """Completion n of nr."""

    def fail(self, res: int) -> None:
        """Whatever has no completion yet gets none."""
        raise NotImplementedError


class BatchPart(Part):
    """Pages of one kvctx_batch_submit(). res: where the operation's results are; the library writes them."""

    def __init__(self, op: Operation, batch: _lib.Batch, page: int, res: array, keep: Any) -> None:
        super().__init__(op, 1, page, batch.nr)
        self.batch, self.res, self.keep = batch, res, keep

    def submit(self, handle: int) -> int:
        self.batch.user_data = self.number << _SHIFT
        return lib.kvctx_batch_submit(handle, self.batch)

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
        self._cond = threading.Condition()  # reentrant: a session may be collected wherever memory is allocated
        self._parts: Dict[int, Part] = {}
        self._waiting: Deque[Part] = deque()
        self._next = 1
        self._submitted = self._reaped = 0
        self._stop = False
        self._thread: Optional[threading.Thread] = None
        self._at_end: Optional[Callable[[], None]] = None

    def mine(self) -> bool:
        """Whether the caller runs in the reaper thread, where nothing may wait for it."""
        return threading.current_thread() is self._thread

    def in_flight(self) -> int:
        """Parts without their last completion."""
        with self._cond:
            return len(self._parts)

    def start(self, op: Operation, parts: List[Part]) -> Operation:
        """Submit an operation. Raises when its first part is refused; a later one's pages have the error as result.

        One without parts, since it has no pages, is done at once.
        """
        if not parts:
            op._end()
            return op
        with self._cond:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kvctx-reaper", daemon=True)
                thread.start()
                self._thread = thread
            op._parts = len(parts)
            for part in parts:
                part.number = self._next
                self._next += 1
                self._parts[part.number] = part
            queued = bool(self._waiting)
            if queued:
                self._waiting.extend(parts)
        if queued:
            return op
        for n, part in enumerate(parts):
            ret = part.submit(self._handle)
            if ret == -errno.EAGAIN:
                with self._cond:
                    self._waiting.extend(parts[n:])
                    self._cond.notify_all()
                return op
            if ret < 0 and n == 0 and not getattr(part, "taken", 0):
                self._forget(parts)
                raise error(ret)
            self._note(part, ret)
        return op

    def _forget(self, parts: List[Part]) -> None:
        with self._cond:
            for part in parts:
                del self._parts[part.number]
            self._cond.notify_all()

    def _note(self, part: Part, ret: int) -> None:
        """A part was submitted, or refused."""
        if ret < 0:
            part.fail(ret)
            with self._cond:
                part.left -= part.nr - getattr(part, "taken", 0)
                over = not part.left
            if over:
                self._over(part, reaped=False)
                return
        with self._cond:
            self._submitted += 1
            self._cond.notify_all()

    def _over(self, part: Part, reaped: bool = True) -> None:
        """A part's last completion was taken."""
        with self._cond:
            self._reaped += reaped
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
        with self._cond:
            part.left -= 1
            over = not part.left
        if over:
            self._over(part)

    def _submit_waiting(self) -> bool:
        """Submit what waits, while there is room. Whether some still waits."""
        while True:
            with self._cond:
                if not self._waiting:
                    return False
                part = self._waiting[0]
            ret = part.submit(self._handle)
            if ret == -errno.EAGAIN:
                return True
            with self._cond:
                self._waiting.popleft()
            self._note(part, ret)

    def _idle(self) -> bool:
        """Sleep until something is in flight. False: the session ends."""
        with self._cond:
            while self._submitted <= self._reaped and not self._waiting and not self._stop:
                self._cond.wait()
            return not self._stop

    def _run(self) -> None:
        cqes = (_lib.Cqe * _TAKE)()
        while self._idle():
            lib.kvctx_wait(self._handle, 1, _LOOK_NS)
            taken = lib.kvctx_take(self._handle, cqes, _TAKE)
            for n in range(taken):
                self._dispatch(cqes[n])
            if self._submit_waiting() and not taken and self._submitted <= self._reaped:
                threading.Event().wait(_RETRY_S)  # synchronous calls leave no room at the moment
        if self._at_end:
            self._at_end()

    def drain(self, timeout: Optional[float]) -> bool:
        """Wait until nothing is in flight; False: the time (seconds) was over first."""
        if self.mine():
            raise RuntimeError("a callback of an operation waits for operations")
        with self._cond:
            return self._cond.wait_for(lambda: not self._parts, timeout)

    def end(self, at_end: Callable[[], None]) -> None:
        """End the thread, then call at_end, in this thread, or in the reaper if that is the caller."""
        with self._cond:
            self._stop = True
            if self.mine() or self._thread is None:
                self._at_end = at_end
            self._cond.notify_all()
        if self._thread is None:
            at_end()
        elif not self.mine():
            self._thread.join()
            at_end()

    def abandon(self, res: int) -> List[Part]:
        """End operations that nobody will complete any more; their parts, whose memory may yet be written."""
        with self._cond:
            parts = list(self._parts.values())
            self._parts.clear()
            self._waiting.clear()
        for part in parts:
            part.fail(res)
            part.op._parts -= 1
            if not part.op._parts:
                part.op._end()
        return parts
