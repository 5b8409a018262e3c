# SPDX-License-Identifier: LGPL-2.1-or-later
"""The scheduler's side of KvctxOffloadingSpec: what is there, what is to be loaded and stored, and what was evicted.

Nothing here waits but shutdown(): see finder.py for lookups. The workers move the pages; this side never sees one.

What is stored is announced (take_events) when kvctx says that it is there, on all ranks: a STORE that was refused or a
worker that failed announces nothing. That a chunk has gone is announced when kvctx tells, or, by servers that tell
nothing, when a request looks for it in vain. What other engines store in the same pool is theirs to announce.

Threads. All of it belongs to the scheduler's thread; what may be answered late is asked by an Asker's.
"""
from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Set, Tuple

from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, OffloadingManager,
                                     PrepareStoreOutput, RequestOffloadingContext)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .. import Error, Gone, Keys, Session
from .asker import Asker
from .finder import Finder
from .keys import RANK_BITS, Pages, group_of, page_keys
from .link import Link, logger

_LOADS_MAX = 3  # of one request: one that keeps failing is computed
_ANNOUNCED_MAX = 1 << 20
_LISTEN_S = 0.02  # kvctx is asked no oftener for what has gone
_PATIENCE_S = 2.0  # no step is made for the sake of an answer alone that takes longer
_GOING = ("evicted", "deleted", "dropped")
_AUDIT = 4096  # chunks in a question: lookups wait behind it


class Announcer:
    """Events for routers that want to know which engine has what: OffloadingEvent of chunks stored and gone.

    _known has the chunks that were announced, by digest and qualifier of their pages without the rank, and _audit those
    of which it is to be asked whether they are there yet. One question at a time is on its way: _asked is its answer,
    to be, and _take what is done with it.
    """

    def __init__(self, link: Link, asker: Asker, manager: KvctxManager) -> None:
        self._link, self._asker, self._manager = link, asker, manager
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
        """Keys of the pages of chunks on rank 0."""
        return list(self._manager.pages_of(keys, [0]))

    def _emit(self, keys: List[bytes], removed: bool) -> None:
        if keys:
            self._events.append(OffloadingEvent(keys=keys, medium=Medium.STORAGE, removed=removed,
                                                locality=Locality.LOCAL))

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
            pages = self._manager.pages_of(keys)
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
            self._remove([(digest, qualifier & ~RANK_BITS) for (digest, qualifier), kind in last.items()
                          if kind in _GOING])
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


class KvctxManager(OffloadingManager):
    """See above.

    ranks: of the workers that have a page of each chunk. tokens_per_chunk: of each group, by its number.
    """

    def __init__(self, link: Link, ranks: List[int], tokens_per_chunk: Dict[int, int], lease_seconds: float,
                 events: bool) -> None:
        self._link, self._ranks, self._tokens = link, ranks, tokens_per_chunk
        self._generation = 0
        self._asker = Asker()
        self._finder = Finder(link, self._asker, self.pages_of, lease_seconds)
        self._announcer = Announcer(link, self._asker, self) if events else None
        self._storing: Set[bytes] = set()
        self._loads: Dict[str, int] = {}

    def pages_of(self, keys: List[bytes], ranks: Optional[List[int]] = None) -> Keys:
        """The pages of chunks, on all ranks or these."""
        return page_keys(keys, self._ranks if ranks is None else ranks, self._generation)

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        if key in self._storing:
            return LookupResult.HIT_PENDING
        if self._loads.get(req_context.req_id, 0) >= _LOADS_MAX:
            return LookupResult.MISS
        found = self._finder.lookup(key, req_context.req_id)
        if found is None:
            return LookupResult.RETRY
        if not found and self._announcer:
            self._announcer.missing(key)
        return LookupResult.HIT if found else LookupResult.MISS

    def get_load_source(self, key: bytes, req_context: Any) -> CacheHitSource:
        return CacheHitSource.DISK

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Pages:
        self._finder.hold(keys)
        return Pages(list(keys), [], self._generation)

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        self._finder.drop(keys)
        if req_context.req_id in self._loads:
            self._loads[req_context.req_id] += 1

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Optional[PrepareStoreOutput]:
        if self._link.session is None:
            return None
        new = [key for key in keys if key not in self._storing and not self._finder.known(key)]
        self._storing.update(new)
        depths = [self._depth(key, req_context) for key in new]
        return PrepareStoreOutput(keys_to_store=new, store_spec=Pages(new, depths, self._generation), evicted_keys=[])

    def _depth(self, key: bytes, req_context: Any) -> int:
        end = req_context.get_offload_key_position(key)
        tokens = self._tokens.get(group_of(key))
        return -(-end // tokens) if end and tokens else 0

    def complete_store(self, keys: Collection[bytes], req_context: Any, success: bool = True) -> None:
        self._storing.difference_update(keys)
        self._finder.forget(keys)
        if success and self._announcer:
            self._announcer.stored(keys)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        self._loads[req_context.req_id] = 0
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._finder.finish(req_context.req_id)
        self._loads.pop(req_context.req_id, None)

    def on_schedule_end(self, context: Any) -> None:
        self._finder.flush()
        if self._announcer:
            self._announcer.step()

    def has_pending_work(self) -> bool:
        return bool(self._announcer and self._announcer.busy())

    def take_events(self) -> Iterable[OffloadingEvent]:
        return self._announcer.take() if self._announcer else ()

    def reset_cache(self) -> None:
        """Nothing stored so far is found again by this engine: its weights may be others now."""
        self._generation = secrets.randbits(32) or 1
        self._storing.clear()
        self._finder.reset()
        if self._announcer:
            self._announcer.reset()

    def shutdown(self) -> None:
        self._finder.reset()
        self._asker.close()
        self._link.close()
