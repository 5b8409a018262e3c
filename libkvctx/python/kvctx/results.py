# SPDX-License-Identifier: LGPL-2.1-or-later
"""What calls return: Results of many pages, Match, Usage, Info."""
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _lib
from .errors import error
from .keys import Key

if TYPE_CHECKING:
    from .session import Session


class Results(Sequence[int]):
    """One number a page: its bytes (STORE: 0 when it was not admitted; DELETE: 0), or -errno.

    .ok: how many are not negative. .data and .flags: array('i') and array('I') of the results and of KVCTX_CQE_*.
    """
    __slots__ = ("data", "flags", "ok")

    def __init__(self, data: array, flags: Optional[array] = None, ok: Optional[int] = None) -> None:
        self.data = data
        self.flags = flags
        self.ok: int = ok if ok is not None else sum(r >= 0 for r in data)

    @property
    def all_ok(self) -> bool:
        """Whether no page failed."""
        return self.ok == len(self.data)

    def check(self) -> Results:
        """self, or raise the Error of the first page that failed."""
        if not self.all_ok:
            n = next(n for n, r in enumerate(self.data) if r < 0)
            raise error(self.data[n], f"page {n}")
        return self

    def failed(self) -> List[int]:
        """Numbers of the pages that failed."""
        return [] if self.all_ok else [n for n, r in enumerate(self.data) if r < 0]

    def verified(self, n: int) -> bool:
        """Whether every byte of page n was compared with its CRC32C."""
        return self.flags is not None and bool(self.flags[n] & _lib.CQE_FLAGS["VERIFIED"])

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: Any) -> Any:
        return self.data[i]

    def __iter__(self) -> Iterator[int]:
        return iter(self.data)

    def __repr__(self) -> str:
        return f"<Results: {self.ok} of {len(self.data)} ok>"


class Present(Sequence[bool]):
    """Which keys have a page, a bool each. .words: array('Q'), bit n % 64 of word n // 64 is key n's."""
    __slots__ = ("words", "_nr")

    def __init__(self, words: array, nr: int) -> None:
        self.words, self._nr = words, nr

    def __len__(self) -> int:
        return self._nr

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(self._nr))]
        n = i + self._nr if i < 0 else i
        if not 0 <= n < self._nr:
            raise IndexError("no such key")
        return bool(self.words[n >> 6] >> (n & 63) & 1)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (Present, list, tuple)) else NotImplemented

    def __repr__(self) -> str:
        return f"<Present: {sum(self)} of {self._nr}>"


class Match:
    """Which pages of a prefix are here, and the lease that keeps them. As a context manager it ends the lease.

    count: pages present (with all=False: leading ones). prefix: leading pages present. present: Present. lengths:
    array('I') of bytes a page, 0 where it is missing. prefetched: leading pages that lie in slots or are on their way
    there. leased: whether it has a lease that was not released; the session may have had none left. n, bitmap: count
    and present again, as a number and bytes.
    """
    __slots__ = ("count", "prefix", "present", "lengths", "prefetched", "_leases", "_session")

    def __init__(self, session: Session, count: int, prefix: int, present: Present, lengths: array, prefetched: int,
                 leases: Tuple[int, ...]) -> None:
        self.count, self.prefix, self.present, self.lengths = count, prefix, present, lengths
        self.prefetched = prefetched
        self._session, self._leases = session, list(leases)

    @property
    def n(self) -> int:
        """Pages found: count, which is as many as bitmap has bits set. With all=False these are the leading ones."""
        return self.count

    @property
    def bitmap(self) -> bytes:
        """present as bytes: bit i % 8 of byte i // 8, the lowest is bit 0, tells whether page i was found.

        (len + 7) // 8 bytes on machines of either byte order, made anew each time; bits behind the last page are 0.
        """
        whole = b"".join(word.to_bytes(8, "little") for word in self.present.words)
        return whole[:(len(self.present) + 7) // 8]

    @property
    def leased(self) -> bool:
        """Whether there is a lease to release: one was given, and release() was not called.

        Asks nobody and does not block; a lease that has run out, or ended with the session, still counts.
        """
        return bool(self._leases)

    def release(self) -> None:
        """End the lease; nothing when it has ended, or run out, or the session is closed.

        Asks no device; with kvctxd it waits for the daemon's answer, whatever the session's timeout. Raises Gone
        (ENODEV) when the pool or kvctxd is.
        """
        while self._leases:
            try:
                lease = self._leases.pop()  # one thread gets it: another match may have its number soon
            except IndexError:
                return
            self._session._release(lease)

    def __len__(self) -> int:
        return len(self.present)

    def __enter__(self) -> Match:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Match: {self.count} of {len(self)}, the first {self.prefix}{', leased' if self._leases else ''}>"


class Usage(NamedTuple):
    """What a tenant has in its pool: pages, their bytes, and the bytes it may have (0: all there are)."""
    pages: int
    bytes: int
    limit: int


class Event(NamedTuple):
    """A page came or went.

    kind: "stored", "evicted", "deleted", "dropped" (it failed verification) or "member_lost": those on a member are not
    here any more; then key and length (bytes of the page) are zeros.
    """
    kind: str
    key: Key
    length: int


class Events(NamedTuple):
    """What Session.events() tells: events, the oldest first, and how many were missed since the call before."""
    events: List[Event]
    lost: int


class Info(NamedTuple):
    """What serves a session, its limits and geometry; sizes in bytes, as struct kvctx_info."""
    backend: str  # "module", "daemon" or "process"
    pool: str
    tenant: str
    pool_uuid: bytes
    features: Tuple[str, ...]
    readonly: bool
    capacity: int
    page_len_max: int
    arena_max: int
    segment_size: int
    chunk_size: int
    block_size: int
    members: int
    segs_max: int
    batch_max: int
    cq_max: int
    match_max: int
    lease_ms_max: int
    leases_max: int
    mem_max: int
    dma_align: int
    slots_max: int
    slot_bytes_max: int
    events_max: int

    @classmethod
    def _of(cls, raw: _lib.Info, backend: str) -> Info:
        names = tuple(n.lower() for n, bit in _lib.FEATURES.items() if raw.features & bit)
        return cls(backend, raw.pool.decode(), raw.tenant.decode(), bytes(raw.pool_uuid), names,
                   bool(raw.session_flags & 1), *(getattr(raw, f) for f in cls._fields[6:]))
