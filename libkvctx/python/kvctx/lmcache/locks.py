# SPDX-License-Identifier: LGPL-2.1-or-later
"""Locks that lookups take: leases in kvctx, each of all pages that one lookup found, until LMCache unlocks the keys.

Vocabulary
  hold   what one lookup has locked: one Match with its lease, and the names not yet unlocked
  lease  kvctx keeps the pages of one from eviction for LEASE_S at most; renew() takes it anew as long as the hold lasts

A hold ends when its last name is unlocked, or after HOLD_S, so that an unlock that never comes costs space for a while
and not for ever. Names are worked out only when somebody asks for one: a lookup of many keys does not wait for that.

Threads: any; the lock is not held while kvctx is called.
"""
from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from ..keys import Keys
from . import keys as _keys

LEASE_S = 60.0  # the longest that kvctx gives
HOLD_S = 600.0


class _Hold:
    def __init__(self, match: Any, pages: Keys, now: float) -> None:
        self.match, self.pages = match, pages
        self.leased, self.begun = now, now
        self._names: Optional[Dict[bytes, int]] = None

    @property
    def names(self) -> Dict[bytes, int]:
        """Bytes of each page that is locked, by name."""
        if self._names is None:
            self._names = {name: length for name, length in zip(_keys.names(self.pages), self.match.lengths) if length}
        return self._names


class Locks:
    """All holds of an adapter, the oldest first. lease_s: seconds of one lease, at most what the session allows."""

    def __init__(self, lease_s: float = LEASE_S, hold_s: float = HOLD_S) -> None:
        self.lease_s, self.hold_s = lease_s, hold_s
        self._lock = threading.Lock()
        self._holds: List[_Hold] = []

    def add(self, match: Any, pages: Keys) -> None:
        """A lookup of pages found those of match, and has leased them."""
        with self._lock:
            self._holds.append(_Hold(match, pages, time.monotonic()))

    def unlock(self, names: Sequence[bytes]) -> None:
        """One unlock of each name; a name that is not locked is left alone."""
        over = []
        todo = list(names)
        with self._lock:
            for hold in self._holds:
                if not todo:
                    break
                left = hold.names
                todo = [name for name in todo if left.pop(name, None) is None]
                if not left:
                    over.append(hold)
            self._holds = [hold for hold in self._holds if hold not in over]
        for hold in over:
            hold.match.release()

    def lengths(self, names: Sequence[bytes]) -> List[int]:
        """Bytes of each page; 0: it is not locked."""
        found = [0] * len(names)
        with self._lock:
            for hold in reversed(self._holds):
                if all(found):
                    break
                here = hold.names
                found = [length or here.get(name, 0) for length, name in zip(found, names)]
        return found

    def renew(self, session: Any) -> None:
        """Take leases anew that are half over, and end holds that nobody has unlocked. Now and then, in one thread.

        session: as in Session.match(). Raises what that raises; the holds stay then.
        """
        now = time.monotonic()
        with self._lock:
            late = [hold for hold in self._holds if now - hold.begun > self.hold_s]
            self._holds = [hold for hold in self._holds if hold not in late]
            old = [hold for hold in self._holds if now - hold.leased > self.lease_s / 2]
        for hold in late:
            hold.match.release()
        for hold in old:
            with self._lock:
                left = b"".join(hold.names)
            if left:
                match = session.match(Keys.from_buffer(left), lease=self.lease_s)
                if not match.leased:  # the session may have no more beside those that this one has
                    hold.match.release()
                    match = session.match(Keys.from_buffer(left), lease=self.lease_s)
                with self._lock:
                    gone = hold not in self._holds
                    former, hold.match, hold.leased = hold.match, match, now
                former.release()
                if gone:
                    match.release()

    def clear(self) -> None:
        """End all holds."""
        with self._lock:
            holds, self._holds = self._holds, []
        for hold in holds:
            hold.match.release()

    def __len__(self) -> int:
        """How many locks there are."""
        with self._lock:
            return sum(len(hold.names) for hold in self._holds)
