# SPDX-License-Identifier: LGPL-2.1-or-later
"""The scheduler's side of KvctxOffloadingSpec: what is there, what is to be loaded and stored, and what was evicted.

Nothing here waits: see finder.py for lookups. The workers move the pages; this side never sees one.

What is stored is announced (take_events) when kvctx says that it is there, on all ranks: a STORE that was refused or a
worker that failed announces nothing. That a chunk has gone is announced when kvctx tells, or, by servers that tell
nothing, when a request looks for it in vain. What other engines store in the same pool is theirs to announce.

Threads. All of it belongs to the scheduler's thread.
"""
from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Any, Collection, Dict, Iterable, List, Optional, Set, Tuple

from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, OffloadingManager,
                                     PrepareStoreOutput, RequestOffloadingContext)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .. import Error, Gone, Keys, Session
from .finder import Finder
from .keys import RANK_BITS, Pages, group_of, page_keys
from .link import Link, logger

_LOADS_MAX = 3  # of one request: one that keeps failing is computed
_ANNOUNCED_MAX = 1 << 20
_LISTEN_S = 0.02  # kvctx is asked no oftener for what has gone
_GOING = ("evicted", "deleted", "dropped")


class Announcer:
    """Events for routers that want to know which engine has what: OffloadingEvent of chunks stored and gone.

    _known has the chunks that were announced, by digest and qualifier of their pages without the rank.
    """

    def __init__(self, link: Link, manager: KvctxManager) -> None:
        self._link, self._manager = link, manager
        self._stored: List[bytes] = []
        self._known: OrderedDict = OrderedDict()
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
        """Ask kvctx for what was stored since the last step, and for what has gone."""
        session, now = self._link.session, time.monotonic()
        if session is None or now < self._next and not self._stored:
            return
        self._next = now + _LISTEN_S
        keys, self._stored = self._stored, []
        try:
            if keys:
                self._add(self._here(session, keys))
            self._listen(session)
        except Gone:
            self._link.lost(session)
        except Error as e:
            logger.debug("kvctx: events: %s", e)

    def _here(self, session: Session, keys: List[bytes]) -> List[bytes]:
        """Those of chunks that are there, on all ranks."""
        present = session.match(self._manager.pages_of(keys), all=True).present
        pages = len(present) // len(keys)
        return [key for n, key in enumerate(keys) if all(present[n * pages:(n + 1) * pages])]

    def _add(self, keys: List[bytes]) -> None:
        new = {name: key for name, key in zip(self._names(keys), keys) if name not in self._known}
        self._known.update(new)
        self._emit(list(new.values()), removed=False)
        while len(self._known) > _ANNOUNCED_MAX:
            self._known.popitem(last=False)

    def _listen(self, session: Session) -> None:
        """Announce what kvctx tells that has gone. A new session may have missed anything."""
        if "events" not in session.info.features:
            return
        told, again = session.events(), session is not self._heard_from and self._heard_from is not None
        self._heard_from = session
        if told.lost or again or any(e.kind == "member_lost" for e in told.events):
            here = set(self._here(session, list(self._known.values()))) if self._known else set()
            gone = [name for name, key in self._known.items() if key not in here]
        else:
            gone = [(e.key.digest, e.key.qualifier & ~RANK_BITS) for e in told.events if e.kind in _GOING]
        self._emit([self._known.pop(name) for name in dict.fromkeys(gone) if name in self._known], removed=True)

    def reset(self) -> None:
        """Nothing of what was announced is there any more."""
        self._emit(list(self._known.values()), removed=True)
        self._stored.clear()
        self._known.clear()

    def busy(self) -> bool:
        return bool(self._stored)

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
        self._finder = Finder(link, self.pages_of, lease_seconds)
        self._announcer = Announcer(link, self) if events else None
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
        self._link.close()
