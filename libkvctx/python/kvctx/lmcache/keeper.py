# SPDX-License-Identifier: LGPL-2.1-or-later
"""What has to be done now and then, by one thread of the adapter's: see Keeper.tick().

Pages that were stored are made durable every FLUSH_S: a server that is killed, or loses power, has those of before.

Pages go without LMCache asking for it: kvctx evicts what is used least when a pool is full, and drops what fails
verification. Where the session has events they tell; where it has none, or some were missed, the keeper asks for all
pages in the ledger once so much was stored that eviction may have been at work.
"""
from __future__ import annotations

import threading
import time
from typing import Callable

from lmcache.logging import init_logger

from ..keys import Keys
from . import keys as _keys
from .ledger import Ledger
from .link import Link
from .locks import Locks

logger = init_logger(__name__)

KEEP_S = 1.0
FLUSH_S = 5.0
_AUDIT_SHARE = 64  # of the capacity: so much is stored between two audits
_AUDIT_PAGES = 16384  # asked for at once
_EVENTS = 4096  # taken at once
_GONE_KINDS = ("evicted", "deleted", "dropped")


class Keeper:
    """Runs tick() every KEEP_S seconds, until close().

    capacity: bytes of the pool. gone(names, evicted): told of pages that are no more.
    """

    def __init__(self, link: Link, locks: Locks, ledger: Ledger, capacity: int, gone: Callable[..., None]) -> None:
        self._link, self._locks, self._ledger, self._gone = link, locks, ledger, gone
        self._audit_bytes = max(1, capacity // _AUDIT_SHARE)
        self._stored, self._reopened = 0, False
        self._dirty, self._flushed = 0, time.monotonic()
        self.trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvctx-keeper", daemon=True)
        self._thread.start()

    def heard(self, trouble: str) -> None:
        """Something failed; it is logged when it is news."""
        if trouble != self.trouble:
            logger.warning("kvctx: %s", trouble)
        self.trouble = trouble

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(KEEP_S):
            try:
                self.tick()
            except Exception as e:
                self._link.failed(e)
                self.heard(f"keeper: {e}")

    def tick(self) -> None:
        """Another session for one that was lost; leases; a flush; what went."""
        if self._link.lost:
            why = self._link.mend()
            if why is not None:
                self.heard(f"no session: {why}")
                return
            logger.warning("kvctx: a new session, after the one before was lost (%s)", self.trouble)
            self._locks.clear()
            self._reopened = True  # what went meanwhile, nobody told
        self._locks.renew(self._link.session)
        added = self._ledger.added()
        self._stored += added
        self._dirty += added
        if self._dirty and time.monotonic() - self._flushed > FLUSH_S:
            self._flushed, self._dirty = time.monotonic(), 0
            self._link.session.flush()
        if self._listen() or self._reopened:
            self._stored, self._reopened = 0, False
            self._audit()

    def _listen(self) -> bool:
        """Take the session's events. Whether all pages have to be asked for."""
        session, ask = self._link.session, False
        while "events" in session.info.features:
            events, lost = session.events(_EVENTS)
            kinds = {_keys.name(key): kind for kind, key, _ in events}  # the last that happened to each
            self._gone([name for name, kind in kinds.items() if kind in _GONE_KINDS], True)
            ask = ask or lost > 0 or "member_lost" in kinds.values()
            if len(events) < _EVENTS:
                return ask
        return self._stored >= self._audit_bytes

    def _audit(self) -> None:
        """Ask for every page in the ledger."""
        names = self._ledger.names()
        for n in range(0, len(names), _AUDIT_PAGES):
            some = names[n:n + _AUDIT_PAGES]
            here = self._link.session.query(Keys.from_buffer(b"".join(some)))
            self._gone([name for name, length in zip(some, here) if length < 0], True)
