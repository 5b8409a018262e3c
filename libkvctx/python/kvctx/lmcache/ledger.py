# SPDX-License-Identifier: LGPL-2.1-or-later
"""What LMCache was told is stored, so that it can be told when kvctx evicts it.

kvctx evicts by itself and knows keys by digests; LMCache's listeners and its accounts want the ObjectKey and the size
that they were told before. A page that an earlier process stored is in no ledger, and its going is not reported.

Threads: any.
"""
from __future__ import annotations

import threading
from typing import Any, Dict, Iterable, List, Sequence, Tuple

Told = Tuple[List[Any], List[int]]  # ObjectKeys and their bytes, as LMCache's _notify_* want them


class Ledger:
    """Pages by name, see keys.names()."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: Dict[bytes, Tuple[Any, int]] = {}
        self._added = 0

    def add(self, names: Sequence[bytes], keys: Sequence[Any], sizes: Sequence[int]) -> Told:
        """Pages were stored. Those that were here before: they have gone, and LMCache was not told yet."""
        with self._lock:
            before = [self._entries[name] for name in names if name in self._entries]
            self._entries.update(zip(names, zip(keys, sizes)))
            self._added += sum(sizes)
        return [key for key, _ in before], [size for _, size in before]

    def added(self) -> int:
        """Bytes stored since the last call."""
        with self._lock:
            added, self._added = self._added, 0
            return added

    def remove(self, names: Iterable[bytes]) -> Told:
        """Pages are gone; those of them that were here."""
        with self._lock:
            found = [self._entries.pop(name) for name in names if name in self._entries]
        return [key for key, _ in found], [size for _, size in found]

    def names(self) -> List[bytes]:
        """Names of all pages, now."""
        with self._lock:
            return list(self._entries)

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)
