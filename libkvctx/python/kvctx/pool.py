# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools: making one in a file, and what is in one."""
from __future__ import annotations

import ctypes
import os
import stat
from typing import Any, List, Union

from . import _lib
from ._lib import lib
from .errors import check
from .session import Session

Path = Union[str, os.PathLike]


def create_pool(dir: Path, bytes: int, segment_bytes: int = 0, chunk_bytes: int = 0) -> Pool:
    """Have a pool below a directory, to be served in this process; where there is one, it stays as it is.

    dir: made when it is absent, but not what is above it. bytes: of the file that is made, which has all its space from
    the beginning. segment_bytes: unit of reclaim, no page is longer; 0: 256 MiB, less for a small pool. chunk_bytes:
    under one checksum; 0: 64 KiB.

    Raises Error: NoSpace, Busy, EINVAL (too few bytes for four segments), and others of kvctx_pool_create().
    """
    params = _lib.PoolParams(size=ctypes.sizeof(_lib.PoolParams), bytes=bytes, segment_bytes=segment_bytes,
                             chunk_bytes=chunk_bytes)
    check(lib.kvctx_pool_create(os.fsencode(dir), params), os.fspath(dir))
    return Pool(dir)


class Pool:
    """A pool by its directory: /dev/kvctx/POOL, /run/kvctx/POOL, or one with the pool's files."""

    def __init__(self, dir: Path) -> None:
        self.path = os.fspath(dir)

    def session(self, tenant: str = "default", **how: Any) -> Session:
        """A session of one of its tenants; how: arguments of Session."""
        return Session(os.path.join(self.path, tenant), **how)

    def tenants(self) -> List[str]:
        """Names of the tenants that have a node here; of a pool in files, "default", which always is there."""
        served = [e.name for e in os.scandir(self.path)
                  if stat.S_ISCHR(e.stat().st_mode) or stat.S_ISSOCK(e.stat().st_mode)]
        return sorted(served) or ["default"]

    def __repr__(self) -> str:
        return f"<kvctx.Pool {self.path}>"
