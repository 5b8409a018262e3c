# SPDX-License-Identifier: LGPL-2.1-or-later
"""The adapter's way to kvctx: its parameters, its session, L1's memory in it, and a new session when one is lost.

Threads: any may use Link.session; mend() and close() belong to one at a time.
"""
from __future__ import annotations

import errno
import os
import threading
from typing import Any, Dict, NamedTuple, Optional

from ..errors import Error, Gone
from ..pool import create_pool
from ..session import Session


class Params(NamedTuple):
    """adapter_params of the configuration; sizes in bytes.

    path: the tenant: DIR/POOL/TENANT, /dev/kvctx/POOL/TENANT or /run/kvctx/POOL/TENANT. max_bytes: of the pool that is
    made below DIR when there is none. segment_bytes, chunk_bytes: of that pool, 0: kvctx's choice. keyspace: pages of
    another keyspace are not seen. entries: pages that kvctx has in flight at once; more wait in the adapter.
    """
    path: str
    max_bytes: int = 0
    segment_bytes: int = 0
    chunk_bytes: int = 0
    keyspace: str = "lmcache"
    entries: int = 4096

    @classmethod
    def of(cls, params: Dict[str, Any]) -> Params:
        """ValueError for what is missing, unknown, or of another type."""
        unknown = sorted(set(params) - set(cls._fields))
        if unknown:
            raise ValueError(f"kvctx: adapter_params has {', '.join(unknown)}; known are {', '.join(cls._fields)}")
        if not params.get("path"):
            raise ValueError("kvctx: adapter_params needs path, as /var/lib/kvctx/kv0/default")
        made = cls(**params)
        for name, value in made._asdict().items():
            kind = str if name in ("path", "keyspace") else int
            if not isinstance(value, kind) or isinstance(value, bool) or isinstance(value, int) and value < 0:
                raise ValueError(f"kvctx: adapter_params has {name}={value!r}")
        return made

    def make_pool(self) -> None:
        """Have the pool, where there is a directory for it, and its size is given."""
        pool = os.path.dirname(os.path.abspath(self.path))
        if self.max_bytes and os.path.isdir(os.path.dirname(pool)):
            create_pool(pool, self.max_bytes, self.segment_bytes, self.chunk_bytes)


class Link:
    """A session with L1's arena registered.

    arena: (address, bytes) or None. registered: bytes of it that the session has pinned; 0: pages go through memory of
    the package, and why not is in .trouble. lost: whether the session ended and mend() has to make another.
    """

    def __init__(self, params: Params, arena: Any) -> None:
        self.params, self.arena = params, arena
        self.registered, self.trouble, self.lost, self.mended = 0, "", False, 0
        self._lock = threading.Lock()  # for lost, which is said of one session
        params.make_pool()
        self.session = self._open()

    def _open(self) -> Session:
        p = self.params
        session = Session(p.path, keyspace=p.keyspace, entries=p.entries)
        if "events" in session.info.features:
            session.events(1)  # they are told from the first call on
        self.registered, self.trouble = 0, ""
        if self.arena is not None:
            try:
                session.register(self.arena)
            except Error as e:
                self.trouble = f"L1's memory of {self.arena[1]} bytes cannot be registered, pages are copied: {e}"
            else:
                self.registered = self.arena[1]
        return session

    def pins(self, address: int, nbytes: int) -> bool:
        """Whether memory lies in what is registered, so that the package copies nothing."""
        return self.arena is not None and 0 <= address - self.arena[0] <= self.registered - nbytes

    def failed(self, e: BaseException) -> None:
        """A call failed so; note when that means that the session has ended. Not when mend() has closed it."""
        if isinstance(e, Gone):
            self._doubt()

    def failed_pages(self, results: Any) -> None:
        """As failed(), for results of pages."""
        if not results.all_ok and -errno.ENODEV in results.data:
            self._doubt()

    def _doubt(self) -> None:
        session = self.session
        if self.lost or not session.gone():
            return
        with self._lock:
            if self.session is session:
                self.lost = True

    def mend(self) -> Optional[str]:
        """Make another session. None: done, or why not."""
        self.session.close()
        try:
            session = self._open()
        except Error as e:
            return str(e)
        with self._lock:
            self.session, self.lost = session, False
        self.mended += 1
        return None

    def close(self) -> None:
        """End the session; operations in flight are waited for."""
        self.session.close()
