# SPDX-License-Identifier: LGPL-2.1-or-later
"""Calls of a session that wait for an answer, for a thread that may not wait: kvctxd is another process, which may be
stopped. The other backends answer at once, in the caller's thread.

Threads. ask(), put() and close() belong to the owner's. One more makes the calls, in their order; it begins with the
first one, and anew in a child of fork(), whose calls fail as the session's do. It is a daemon: the interpreter's end
closes sessions, and does not wait for it.
"""
from __future__ import annotations

import errno
import queue
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Optional

from .. import Error, Session


class Calls:
    """A thread that makes calls, of the name given: see above. What they raise ends it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._since: Optional[float] = None  # time.monotonic(), when the call began that is being made

    def put(self, call: Callable[[], Any]) -> bool:
        """Have it made; False: no thread is to be had."""
        if self._thread is None or not self._thread.is_alive():
            self._queue, self._since = queue.SimpleQueue(), None
            self._thread = threading.Thread(target=self._run, args=(self._queue,), name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                return False
        self._queue.put(call)
        return True

    def stuck(self, seconds: float) -> bool:
        """Whether a call takes longer than that, so that what is asked now has no answer soon."""
        since = self._since
        return since is not None and time.monotonic() - since > seconds

    def close(self) -> None:
        """Wait until all calls are made, and end the thread."""
        thread, self._thread = self._thread, None
        if thread:
            self._queue.put(None)
            thread.join()

    def _run(self, calls: queue.SimpleQueue) -> None:
        while True:
            call = calls.get()
            if call is None:
                return
            self._since = time.monotonic()
            call()
            self._since = None
            del call


class Asker(Calls):
    """Calls whose answers are wanted."""

    def __init__(self) -> None:
        super().__init__("kvctx-asker")

    def ask(self, session: Session, call: Callable[[], Any]) -> Future:
        """Make a call; the Future has its result, or what it raised. Never raises."""
        future: Future = Future()
        if session.info.backend != "daemon":
            _make(future, call)
        elif not self.put(partial(_make, future, call)):
            future.set_exception(Error(errno.EAGAIN, "no thread is to be had"))
        return future


def _make(future: Future, call: Callable[[], Any]) -> None:
    try:
        result = call()
    except Exception as e:
        future.set_exception(e)
    else:
        future.set_result(result)
