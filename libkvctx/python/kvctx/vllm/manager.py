# SPDX-License-Identifier: LGPL-2.1-or-later
"""The scheduler's side of KvctxOffloadingSpec: what is there, and what is to be loaded and stored.

Nothing here waits but shutdown(): see finder.py for lookups. The workers move the pages; this side never sees one.

What is stored and what has gone is announced by announcer.py.

Threads. All of it belongs to the scheduler's thread; what may be answered late is asked by an Asker's.
"""
from __future__ import annotations

import secrets
from typing import Any, Collection, Dict, Iterable, List, Optional, Set

from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, OffloadingManager,
                                     PrepareStoreOutput, RequestOffloadingContext)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .. import Keys
from .announcer import Announcer
from .asker import Asker
from .finder import Finder
from .keys import Pages, group_of, page_keys
from .link import Link

_LOADS_MAX = 3  # of one request: one that keeps failing is computed


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
        self._announcer: Optional[Announcer] = None
        if events:
            self._announcer = Announcer(link, self._asker, self.pages_of, Medium.STORAGE, Locality.LOCAL)
        self._storing: Set[bytes] = set()
        self._loads: Dict[str, int] = {}

    def pages_of(self, keys: List[bytes]) -> Keys:
        """The pages of chunks, on all ranks."""
        return page_keys(keys, self._ranks, self._generation)

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
