# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which chunks are in kvctx: asked without waiting, answered at a later step, and kept from eviction until loaded.

vLLM's scheduler asks chunk by chunk. What is not known yet is collected, and handed to kvctx as one MATCH a request at
the end of the step; vLLM asks again at the next one. A MATCH takes a lease of what it finds, so that a chunk that was
found is still there when it is loaded.

Vocabulary
  entry   what is known of one chunk: nothing yet, there, or not there; and the requests that have asked
  lease   a MATCH whose pages stay; ends when the last of its entries lets go of it, or by time
  hold    an entry that is being loaded is held: it keeps its lease when its requests are finished

Invariants. An entry exists while requests have asked for it or it is held. An answer counts for the entries that wait
for it, none other: one that was forgotten meanwhile is asked for anew.

Threads. All of it belongs to the scheduler's thread, but for MATCH and the ends of leases, which may be answered late:
an Asker's thread makes those calls, and answers come from there through a deque.
"""
from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Set, Tuple

from .. import Error, Gone, Keys, Session
from .asker import Asker
from .link import Link, logger

_FRESH = 0.6  # part of a lease's time after which it is not relied on any more
_PATIENCE_S = 2.0  # a request does not wait longer for an answer: what is not told is not there


class Lease:
    """A Match, of a session, and how many entries need it."""
    __slots__ = ("match", "users", "_asker", "_session")

    def __init__(self, match: Any, asker: Asker, session: Session) -> None:
        self.match, self.users = match, 0
        self._asker, self._session = asker, session

    def drop(self) -> None:
        self.users -= 1
        if not self.users:
            self.end()

    def end(self) -> None:
        """When it fails, who gave it is gone."""
        self._asker.ask(self._session, self.match.release)


class Entry:
    __slots__ = ("found", "waits", "until", "lease", "requests", "holds")

    def __init__(self) -> None:
        self.found: Optional[bool] = None
        self.waits: Optional[object] = None  # the question whose answer it gets
        self.until = 0.0  # time.monotonic() up to which found=True counts, or an answer is waited for
        self.lease: Optional[Lease] = None
        self.requests: Set[str] = set()
        self.holds = 0

    def let_go(self) -> None:
        lease, self.lease = self.lease, None
        if lease:
            lease.drop()


class Finder:
    """See above.

    asker: the owner closes it. pages_of: makes Keys of chunks, always the same number for each. seconds: of a lease.
    """

    def __init__(self, link: Link, asker: Asker, pages_of: Callable[[List[bytes]], Keys], seconds: float) -> None:
        self._link, self._asker, self._pages_of, self._seconds = link, asker, pages_of, seconds
        self._entries: Dict[bytes, Entry] = {}
        self._of_request: Dict[str, Set[bytes]] = {}
        self._ask: Dict[str, List[bytes]] = {}
        self._answers: Deque[Tuple[object, List[bytes], Any, Any]] = deque()

    def lookup(self, key: bytes, request: str) -> Optional[bool]:
        """Whether a chunk is there; None: ask again at the next step."""
        if self._answers:
            self._take_answers()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
        if request not in entry.requests:
            entry.requests.add(request)
            self._of_request.setdefault(request, set()).add(key)
            if entry.found is False:
                entry.found = entry.waits = None  # others may have stored it since another request asked
        if entry.found and entry.until < time.monotonic() and not entry.holds:
            entry.found = None
            entry.let_go()
        if entry.found is None:
            if entry.waits is None:
                entry.waits, entry.until = self._ask, float("inf")
                self._ask.setdefault(request, []).append(key)
            elif entry.until < time.monotonic():
                entry.found, entry.waits = False, None
        return entry.found

    def flush(self) -> None:
        """The end of a step: ask for what was not known."""
        if self._answers:
            self._take_answers()
        ask, self._ask = self._ask, {}
        for keys in ask.values():
            self._question([k for k in dict.fromkeys(keys)
                            if k in self._entries and self._entries[k].waits is ask])

    def _question(self, keys: List[bytes]) -> None:
        if not keys:
            return
        question, session = object(), self._link.session
        until = time.monotonic() + _PATIENCE_S
        for key in keys:
            self._entries[key].waits, self._entries[key].until = question, until
        if session is None or self._asker.stuck(_PATIENCE_S):
            self._answer(question, keys, None, 0.0, None)
            return
        future = self._asker.ask(session, partial(_match, session, self._pages_of(keys), self._seconds, until))
        future.add_done_callback(lambda future: self._answers.append((question, keys, future, session)))

    def _take_answers(self) -> None:
        while self._answers:
            question, keys, future, session = self._answers.popleft()
            try:
                match, since = future.result()
            except Gone:
                self._link.lost(session)
                match, since = None, 0.0
            except Exception as e:
                if not isinstance(e, Error):
                    logger.error("kvctx: lookup: %r", e)
                match, since = None, 0.0
            self._answer(question, keys, match, since, session)

    def _answer(self, question: object, keys: List[bytes], match: Any, since: float, session: Any) -> None:
        """match: None when there was none; then nothing is there. since: its lease may have begun then."""
        until = since + self._seconds * _FRESH
        lease = Lease(match, self._asker, session) if match is not None and match.leased else None
        pages = len(match.present) // len(keys) if match is not None else 0
        for n, key in enumerate(keys):
            entry = self._entries.get(key)
            if entry is None or entry.waits is not question:
                continue
            entry.waits = None
            entry.until = until
            entry.found = match is not None and all(match.present[n * pages:(n + 1) * pages])
            if entry.found and lease:
                entry.let_go()
                entry.lease = lease
                lease.users += 1
        if lease and not lease.users:
            lease.end()

    def known(self, key: bytes) -> bool:
        """Whether a chunk was found and nothing was heard to the contrary."""
        entry = self._entries.get(key)
        return bool(entry and entry.found)

    def hold(self, keys: Iterable[bytes]) -> None:
        """Chunks are going to be loaded: their leases stay until drop()."""
        for key in keys:
            self._entries.setdefault(key, Entry()).holds += 1

    def drop(self, keys: Iterable[bytes]) -> None:
        """Chunks were loaded, or not: what was known of them is forgotten, since a load may drop a page."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is None or not entry.holds:
                continue
            entry.holds -= 1
            if not entry.holds:
                entry.found = entry.waits = None
                entry.let_go()
                self._remove_unused(key, entry)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Chunks were stored: whoever believes that one is missing asks again."""
        for key in keys:
            entry = self._entries.get(key)
            if entry and not entry.found:
                entry.found = entry.waits = None

    def miss(self, keys: Iterable[bytes]) -> None:
        """Chunks could not be loaded: they are missing, for the requests that have asked."""
        for key in keys:
            entry = self._entries.get(key)
            if entry:
                entry.found, entry.waits = False, None
                entry.let_go()

    def finish(self, request: str) -> None:
        """A request asks no more."""
        for key in self._of_request.pop(request, ()):
            entry = self._entries[key]
            entry.requests.discard(request)
            self._remove_unused(key, entry)

    def _remove_unused(self, key: bytes, entry: Entry) -> None:
        if not entry.requests and not entry.holds:
            entry.let_go()
            del self._entries[key]

    def reset(self) -> None:
        """Forget everything, and let go of every lease; answers on their way are for nobody."""
        for entry in self._entries.values():
            entry.let_go()
        self._entries.clear()
        self._of_request.clear()
        self._ask.clear()

    def __len__(self) -> int:
        return len(self._entries)


def _match(session: Session, keys: Keys, seconds: float, until: float) -> Tuple[Any, float]:
    """A Match and since when; none when nobody waits for it any more, which is so behind a call that took long."""
    since = time.monotonic()
    return session.match(keys, lease=seconds, all=True) if since < until else None, since
