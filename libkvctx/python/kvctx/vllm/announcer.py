# SPDX-License-Identifier: LGPL-2.1-or-later
"""Events for routers that want to know which engine has what: chunks that were stored, and chunks that have gone.

What is stored is announced when kvctx says that it is there, on all ranks: a STORE that was refused or a worker that
failed announces nothing. That a chunk has gone is announced when kvctx tells, or, by servers that tell nothing, when a
request looks for it in vain. What other engines store in the same pool is theirs to announce.

Threads. All of it belongs to the scheduler's thread; what may be answered late is asked by an Asker's.
"""
from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Iterable, List, Optional, Tuple

from vllm.v1.kv_offload.base import Locality, Medium, OffloadingEvent

from .. import Error, Gone, Keys, Session
from .asker import Asker
from .keys import RANK_BITS
from .link import Link, logger

_ANNOUNCED_MAX = 1 << 20
_LISTEN_S = 0.02  # kvctx is asked no oftener for what has gone
_PATIENCE_S = 2.0  # no step is made for the sake of an answer alone that takes longer
_GOING = ("evicted", "deleted", "dropped")
_AUDIT = 4096  # chunks in a question: lookups wait behind it


class Announcer:
    """See above.

    asker: the owner closes it. pages_of: makes Keys of chunks, of each one a rank, for all the same ranks. medium,
    locality, owner: what events say of the place.

    _known has the chunks that were announced, by digest and qualifier of their pages without the rank, and _audit those
    of which it is to be asked whether they are there yet. One question at a time is on its way: _asked is its answer,
    to be, and _take what is done with it.
    """

    def __init__(self, link: Link, asker: Asker, pages_of: Callable[[List[bytes]], Keys], medium: Medium,
                 locality: Optional[Locality], owner: Optional[str] = None) -> None:
        self._link, self._asker, self._pages_of = link, asker, pages_of
        self._place = {"medium": medium, "locality": locality, "ownership": owner}
        self._asked: Optional[Future] = None
        self._take: Callable[[Any], None] = self._hear
        self._from: Optional[Session] = None
        self._awaited, self._until = False, 0.0  # whether something is announced when it comes, and soon enough
        self._stored: List[bytes] = []
        self._known: OrderedDict = OrderedDict()
        self._audit: List[bytes] = []
        self._events: List[OffloadingEvent] = []
        self._next = 0.0
        self._heard_from: Optional[Session] = None

    def stored(self, keys: Iterable[bytes]) -> None:
        """Workers say that they have stored these."""
        self._stored.extend(keys)

    def missing(self, key: bytes) -> None:
        """A lookup has not found this."""
        if self._known and self._known.pop(self._names([key])[0], None):
            self._emit([key], removed=True)

    def _names(self, keys: List[bytes]) -> List[Tuple[bytes, int]]:
        """By what chunks are known."""
        pages = list(self._pages_of(keys))
        return [_name(*page) for page in pages[::len(pages) // len(keys)]] if keys else []

    def _emit(self, keys: List[bytes], removed: bool) -> None:
        """vLLM keeps what it knows of a chunk until the removal that it was told to expect."""
        if keys:
            self._events.append(OffloadingEvent(keys=keys, removed=removed, removal_expected=True, **self._place))

    def step(self) -> None:
        """Take answers, and ask kvctx for what was stored since the last step, and for what has gone."""
        self._take_answers()
        session, now = self._link.session, time.monotonic()
        if self._asked or session is None or now < self._next and not self._stored:
            return
        self._next = now + _LISTEN_S
        keys, self._stored = self._stored, []
        here, tells = self._here(session, keys), "events" in session.info.features
        self._ask(session, lambda: (here(), session.events() if tells else None), self._hear)
        self._awaited = bool(keys)
        self._take_answers()

    def _ask(self, session: Session, call: Callable[[], Any], take: Callable[[Any], None]) -> None:
        self._take, self._from, self._awaited, self._until = take, session, False, time.monotonic() + _PATIENCE_S
        self._asked = self._asker.ask(session, call)

    def _take_answers(self) -> None:
        """What was asked for may lead to another question."""
        while self._asked and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self._take(asked.result())
            except Gone:
                self._link.lost(self._from)
            except Error as e:
                logger.debug("kvctx: events: %s", e)
            except Exception as e:
                logger.error("kvctx: events: %r", e)

    def _here(self, session: Session, keys: List[bytes]) -> Callable[[], List[bytes]]:
        """A call that returns those of chunks that are there, on all ranks."""
        def call() -> List[bytes]:
            if not keys:
                return []
            pages = self._pages_of(keys)
            present, nr = session.match(pages, all=True).present, len(pages) // len(keys)
            return [key for n, key in enumerate(keys) if all(present[n * nr:(n + 1) * nr])]

        return call

    def _add(self, keys: List[bytes]) -> None:
        new = {name: key for name, key in zip(self._names(keys), keys) if name not in self._known}
        self._known.update(new)
        self._emit(list(new.values()), removed=False)
        while len(self._known) > _ANNOUNCED_MAX:
            self._known.popitem(last=False)

    def _hear(self, answer: Tuple[List[bytes], Any]) -> None:
        """Announce what is there, and what kvctx tells that has gone. A new session may have missed anything."""
        (keys, told), session = answer, self._from
        self._add(keys)
        if told is None:
            return
        again = session is not self._heard_from and self._heard_from is not None
        self._heard_from = session
        if told.lost or again or any(e.kind == "member_lost" for e in told.events):
            self._audit = list(self._known.values())
        else:
            last = {(e.key.digest, e.key.qualifier): e.kind for e in told.events}
            self._remove([_name(*key) for key, kind in last.items() if kind in _GOING])
        part = self._audit[-_AUDIT:]
        if part and session:
            self._ask(session, self._here(session, part), partial(self._keep, part))

    def _keep(self, part: List[bytes], keys: List[bytes]) -> None:
        """Of these that were announced, the keys are there."""
        del self._audit[-len(part):]
        here = set(keys)
        self._remove(self._names([key for key in part if key not in here]))

    def _remove(self, gone: List[Tuple[bytes, int]]) -> None:
        self._emit([self._known.pop(name) for name in dict.fromkeys(gone) if name in self._known], removed=True)

    def reset(self) -> None:
        """Nothing of what was announced is there any more."""
        self._emit(list(self._known.values()), removed=True)
        self._stored.clear()
        self._known.clear()
        self._audit.clear()
        self._asked = None

    def busy(self) -> bool:
        """Whether a step would announce something soon."""
        if self._link.session is None or self._asked and time.monotonic() > self._until:
            return False
        return bool(self._stored or self._asked and self._awaited)

    def take(self) -> List[OffloadingEvent]:
        events, self._events = self._events, []
        return events


def _name(digest: bytes, qualifier: int) -> Tuple[bytes, int]:
    """Of a page on any rank."""
    return digest, qualifier & ~RANK_BITS
