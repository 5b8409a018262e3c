# SPDX-License-Identifier: LGPL-2.1-or-later
"""Jobs of vLLM in flight: each some pages of one direction, submitted as few operations, and done when all of them are.

Threads. start(), finished() and wait() belong to the thread that owns the Transfers; operations complete in the
session's reaper thread, which notes results, and begins loads whose pages' lengths had to be asked for. A job is in
_jobs from start() until finished() hands it out. To submit to kvctxd may wait: for room in its socket, and where memory
has to be copied for what was copied before. One more thread does that, one of asker.py.
"""
from __future__ import annotations

import errno
import threading
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Callable, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .. import Error, Keys, Session
from .asker import Calls
from .link import Link, errno_counts, logger


class Part(NamedTuple):
    """Pages of one operation. first: number of the first of them in the job.

    addrs, lens, pieces: as of Session.submit_store_packed(). depth: of the first page in its prefix, the others follow;
    0: unknown. offset: bytes of each page that are skipped by a load. lengths: of pages that are loaded only when they
    are so long; a longer or shorter one was stored with another layout, and is dropped (-EMSGSIZE).
    """
    first: int
    keys: Keys
    addrs: array
    lens: array
    pieces: Optional[array]
    depth: int = 0
    offset: int = 0
    lengths: Sequence[int] = ()

    def cut(self) -> List[Part]:
        """One part for each page."""
        parts, at = [], 0
        for n, nr in enumerate(self.pieces or [1] * len(self.keys)):
            parts.append(Part(self.first + n, self.keys[n:n + 1], self.addrs[at:at + nr], self.lens[at:at + nr],
                              array("I", [nr]), self.depth and self.depth + n, self.offset, self.lengths[n:n + 1]))
            at += nr
        return parts


@dataclass
class Job:
    """A transfer. results: one number a page, bytes or -errno; final when done is set. nbytes: that it wants to move.

    about: whatever the owner wants to know when it is done.
    """
    id: int
    load: bool
    nbytes: int
    results: List[int]
    about: Any = None
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    left: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def failed(self) -> List[int]:
        """Numbers of the pages that failed."""
        return [n for n, res in enumerate(self.results) if res < 0]


@dataclass
class Counts:
    """What went each way since the beginning: pages, bytes, and pages that failed."""
    pages: int = 0
    nbytes: int = 0
    failed: int = 0

    def add(self, job: Job) -> None:
        moved = [res for res in job.results if res > 0]
        self.pages += len(moved)
        self.nbytes += sum(moved)
        self.failed += len(job.failed)


class Transfers:
    """Jobs on the session of a Link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._jobs: Dict[int, Job] = {}
        self._over: Deque[Job] = deque()
        self.stored, self.loaded = Counts(), Counts()
        self._calls = Calls("kvctx-transfers")

    def start(self, job: Job, parts: List[Part]) -> None:
        """Submit a job. Never raises for what kvctx says: the pages' results tell."""
        self.begin(job)
        job.left = len(parts) + 1
        session = self._link.session
        if session is None or session.info.backend != "daemon":
            self._submit_all(job, parts, session)
            return
        if not self._calls.put(lambda: self._submit_all(job, parts, self._link.session)):
            self._submit_all(job, parts, session)

    def close(self) -> None:
        """Wait until all jobs are submitted, and end the thread."""
        self._calls.close()

    def _submit_all(self, job: Job, parts: List[Part], session: Optional[Session]) -> None:
        for part in parts:
            if part.lengths:
                self._begin(job, part, session, methodcaller("submit_query", part.keys), self._comparer)
            else:
                self._load_or_store(job, part, session)
        self._step(job)

    def _load_or_store(self, job: Job, part: Part, session: Optional[Session]) -> None:
        self._begin(job, part, session, lambda s: _submit(s, job.load, part), self._taker)

    def _begin(self, job: Job, part: Part, session: Optional[Session], submit: Callable[[Session], Any],
               then: Callable[[Job, Part, Session], Callable[[Any], None]]) -> None:
        """Submit an operation, which is done when then()'s function is called with it. Any thread."""
        try:
            if session is None:
                raise Error(errno.ENODEV, "no server")
            op = submit(session)
        except Exception as e:  # a job has to end, also when memory is short
            results = _failed(part, e)
            if session is not None and part.lengths:
                self._take(job, part, session, results)
            else:
                self._note(job, part, results)
        else:
            op.add_done_callback(then(job, part, session))

    def begin(self, job: Job) -> None:
        """Know a job that somebody else completes, with complete()."""
        self._jobs[job.id] = job

    def _taker(self, job: Job, part: Part, session: Session) -> Callable[[Any], None]:
        return lambda op: self._take(job, part, session, _results(part, op))

    def _take(self, job: Job, part: Part, session: Session, results: List[int]) -> None:
        try:
            if -errno.ENODEV in results:
                self._link.lost(session)
        except Exception as e:
            logger.error("kvctx: job %d: %s", job.id, e)
        self._note(job, part, results)

    def _comparer(self, job: Job, part: Part, session: Session) -> Callable[[Any], None]:
        def take(op: Any) -> None:
            told = _results(part, op)
            if told == list(part.lengths):
                self._load_or_store(job, part, session)
                return
            try:
                pages = part.cut()
            except Exception as e:
                self._take(job, part, session, _failed(part, e))
                return
            with self._lock:
                job.left += len(pages) - 1
            for page, length in zip(pages, told):
                if length == page.lengths[0]:
                    self._load_or_store(job, page, session)
                elif length < 0:
                    self._take(job, page, session, [length])
                else:
                    self._begin(job, page, session, methodcaller("submit_delete", page.keys), self._dropper)
        return take

    def _dropper(self, job: Job, part: Part, session: Session) -> Callable[[Any], None]:
        return lambda op: self._note(job, part, [-errno.EMSGSIZE])

    def _note(self, job: Job, part: Part, results: List[int]) -> None:
        job.results[part.first:part.first + len(results)] = results
        self._step(job)

    def _step(self, job: Job) -> None:
        with self._lock:
            job.left -= 1
            over = not job.left
        if over:
            self.complete(job)

    def complete(self, job: Job) -> None:
        """All results of a job are there. Any thread."""
        job.seconds = time.monotonic() - job.started
        self._over.append(job)
        job.done.set()

    def finished(self) -> List[Job]:
        """Jobs that are done, each once."""
        jobs: List[Job] = []
        while self._over:
            job = self._over.popleft()
            del self._jobs[job.id]
            (self.loaded if job.load else self.stored).add(job)
            if job.failed:
                logger.log(*_how_bad(job))
            jobs.append(job)
        return jobs

    def wait(self, ids: Optional[Iterable[int]] = None) -> None:
        """Sleep until these jobs are done, or all; they still come out of finished()."""
        for job in [self._jobs[i] for i in (list(self._jobs) if ids is None else ids) if i in self._jobs]:
            job.done.wait()

    def __len__(self) -> int:
        return len(self._jobs)

    def report(self) -> str:
        """Counts in words."""
        ways = (("loaded from", self.loaded), ("stored to", self.stored))
        return "; ".join(f"{c.pages} pages ({c.nbytes} bytes) {way} kvctx, {c.failed} failed" for way, c in ways)


def _failed(part: Part, e: Exception) -> List[int]:
    """Results of pages whose operation has raised."""
    return [-(isinstance(e, Error) and e.errno or errno.EIO)] * len(part.keys)


def _results(part: Part, op: Any) -> List[int]:
    try:
        return list(op.result())
    except Exception as e:
        return _failed(part, e)


def _submit(session: Session, load: bool, part: Part) -> Any:
    if not load:
        return session.submit_store_packed(part.keys, part.addrs, part.lens, part.pieces, depth=part.depth)
    return session.submit_load_packed(part.keys, part.addrs, part.lens, part.pieces, offset=part.offset)


def _how_bad(job: Job) -> Tuple[int, str, int, int, str]:
    """Arguments of a log line: a store that failed costs a recomputation some day, a load one now."""
    level, what = (30, "loaded: to be recomputed") if job.load else (20, "stored")
    return (level, f"kvctx: %d of %d pages were not {what} (%s)", len(job.failed), len(job.results),
            errno_counts(job.results))
