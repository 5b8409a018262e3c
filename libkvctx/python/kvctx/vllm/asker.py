# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls of a session that wait for an answer, for a thread that may not wait: kvctxd is another process, which may be
stopped. The other backends answer at once, in the caller's thread.

Threads. ask() and close() belong to the owner's. One more makes the calls, in their order; it begins with the first
one, and anew in a child of fork(), whose calls fail as the session's do. It is a daemon: the interpreter's end closes
sessions, and does not wait for it.
"""
from __future__ import annotations

import errno
import queue
import threading
import time
from concurrent.futures import Future
from typing import Any, Callable, Optional

from .. import Error, Session


class Asker:
    """See above."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._since: Optional[float] = None  # time.monotonic(), when the call began that is being made

    def stuck(self, seconds: float) -> bool:
        """Whether a call takes longer than that, so that what is asked now has no answer soon."""
        since = self._since
        return since is not None and time.monotonic() - since > seconds

    def ask(self, session: Session, call: Callable[[], Any]) -> Future:
        """Make a call; the Future has its result, or what it raised. Never raises."""
        future: Future = Future()
        if session.info.backend != "daemon":
            _make(future, call)
            return future
        if self._thread is None or not self._thread.is_alive():
            self._queue = queue.SimpleQueue()
            self._since = None
            self._thread = threading.Thread(target=self._run, args=(self._queue,), name="kvctx-asker", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as e:  # no threads are to be had
                self._thread = None
                future.set_exception(Error(errno.EAGAIN, str(e)))
                return future
        self._queue.put((future, call))
        return future

    def close(self) -> None:
        """Wait until all calls are made, and end the thread."""
        thread, self._thread = self._thread, None
        if thread:
            self._queue.put(None)
            thread.join()

    def _run(self, calls: queue.SimpleQueue) -> None:
        while True:
            work = calls.get()
            if work is None:
                return
            self._since = time.monotonic()
            _make(*work)
            self._since = None
            del work


def _make(future: Future, call: Callable[[], Any]) -> None:
    try:
        result = call()
    except Exception as e:
        future.set_exception(e)
    else:
        future.set_result(result)
