# SPDX-License-Identifier: LGPL-2.1-or-later
"""A session of kvctx that comes back: when the server goes, the engine goes on without it until it is there again.

Threads. Link.session and Link.lost() may be used by all of them. One thread, which exists only while the server is
gone, opens the session anew; it also closes the old one, which waits for its operations.
"""
from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from typing import Callable, List, Optional

from vllm.logger import init_logger

from .. import Session, create_pool
from ..pool import SERVED

logger = init_logger("vllm.kvctx")

_AGAIN_S, _AGAIN_MAX_S = 0.5, 5.0
_BY = {"process": "served in this process", "daemon": "served by kvctxd", "module": "served by the kernel"}


@dataclass(frozen=True)
class Options:
    """What kv_connector_extra_config, or the tier's entry in secondary_tiers, may have for kvctx.

    path: the tenant: DIR/POOL/TENANT (in this process), /run/kvctx/POOL/TENANT (kvctxd), /dev/kvctx/POOL/TENANT.
    pool_bytes: make the pool DIR/POOL of so many bytes, if it is not there. keyspace: any text; engines with another
    one share nothing. lease_seconds: how long a chunk that was found stays, until it is loaded. timeout_seconds: after
    which a transfer that has not begun fails; 0: never. staging_bytes: host memory that chunks of GPU memory pass
    through. peer_memory: let devices reach GPU memory themselves, where the module finds a path.
    """
    path: str
    pool_bytes: int = 0
    keyspace: str = ""
    lease_seconds: float = 30.0
    timeout_seconds: float = 0.0
    staging_bytes: int = 256 << 20
    peer_memory: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not os.path.isabs(self.path):
            raise ValueError(f"kvctx: 'path' has to be the absolute path of a tenant, not {self.path!r}")
        if not 0 < self.lease_seconds <= 60:
            raise ValueError("kvctx: 'lease_seconds' has to be more than 0 and at most 60")

    @classmethod
    def of(cls, config: object) -> Options:
        """From a mapping that has other options too. ValueError when one does not fit."""
        known = {name: config[name] for name in cls.__dataclass_fields__ if name in config}  # type: ignore
        if "path" not in known:
            raise ValueError("kvctx: kv_connector_extra_config needs 'path', the tenant's path")
        return cls(**known)


class Link:
    """The session of one owner, or None while its server is gone.

    described: what its keyspace is made of. what: the owner, for the log.
    on_open: called with each new session, before anybody else has it: registers memory. Its exceptions are those of
    the constructor.
    """

    def __init__(self, options: Options, described: str, what: str,
                 on_open: Optional[Callable[[Session], None]] = None) -> None:
        self._options, self._described, self._on_open = options, described, on_open
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None
        try:
            if options.pool_bytes:
                above = os.path.dirname(os.path.dirname(options.path))
                if above not in SERVED:
                    os.makedirs(above, exist_ok=True)
                create_pool(os.path.dirname(options.path), options.pool_bytes)
            self._session: Optional[Session] = self._open()
        except OSError as e:
            if e.errno == errno.EBUSY:
                raise RuntimeError(f"kvctx: {options.path} is in use by another process. A pool's directory is served "
                                   "in one process: for more engines, or workers in processes of their own, start "
                                   "kvctxd and use its path below /run/kvctx") from e
            raise RuntimeError(f"kvctx: {options.path}: {e}") from e
        logger.info("kvctx: %s of %s, %s", what, options.path, _BY[self._session.info.backend])

    def _open(self) -> Session:
        session = Session(self._options.path, keyspace=self._described,
                          timeout=self._options.timeout_seconds or None)
        try:
            if self._on_open:
                self._on_open(session)
        except BaseException:
            session.close()
            raise
        return session

    @property
    def session(self) -> Optional[Session]:
        """The session, or None."""
        return self._session

    def lost(self, session: Optional[Session]) -> None:
        """Somebody got ENODEV from this session, which goes on if that was a member's alone.

        Short; may be called by callbacks, and again, but not for each page.
        """
        if session is None or self._session is not session or not session.gone():
            return
        with self._lock:
            if self._session is not session or self._closing.is_set():
                return
            self._session = None
            self._thread = threading.Thread(target=self._reopen, args=(session,), name="kvctx-link", daemon=True)
            self._thread.start()
        logger.warning("kvctx: %s is gone; going on without it", self._options.path)

    def _reopen(self, old: Session) -> None:
        old.close()
        delay = _AGAIN_S
        while not self._closing.wait(delay):
            delay = min(delay * 2, _AGAIN_MAX_S)
            try:
                session: Optional[Session] = self._open()
            except OSError as e:
                logger.debug("kvctx: %s: %s", self._options.path, e)
                continue
            with self._lock:
                if not self._closing.is_set():
                    self._session, session = session, None
            if session:
                session.close()
            else:
                logger.info("kvctx: %s is back", self._options.path)
            return

    def flush(self) -> None:
        """Let what was stored, and what was dropped, survive a power cut. Waits; a failure is only told."""
        session = self._session
        try:
            if session:
                session.flush()
        except OSError as e:
            logger.warning("kvctx: %s: flush: %s", self._options.path, e)

    def close(self) -> None:
        """End it. Waits for operations in flight."""
        with self._lock:
            self._closing.set()
            session, self._session = self._session, None
            thread = self._thread
        if thread:
            thread.join()
        if session:
            session.close()


def errno_counts(results: List[int]) -> str:
    """The errors among results in words, as "EBADMSG 8, ENOENT 1"."""
    counts: dict = {}
    for res in results:
        if res < 0:
            name = errno.errorcode.get(-res, str(-res))
            counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
