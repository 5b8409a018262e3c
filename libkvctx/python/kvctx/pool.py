# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools: making one in a file, and what is in one."""
from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import Any, List, Union

from . import _lib
from ._lib import lib
from .errors import check, error
from .session import Session

Path = Union[str, os.PathLike]
SERVED = ("/dev/kvctx", "/run/kvctx")  # where pools of the module and of kvctxd appear


def create_pool(dir: Path, bytes: int, segment_bytes: int = 0, chunk_bytes: int = 0) -> Pool:
    """Have a pool below a directory, to be served in this process; where there is one, it stays as it is.

    dir: made when it is absent, but not what is above it. bytes: of the file that is made, which has all its space from
    the beginning. segment_bytes: unit of reclaim, no page is longer; 0: 256 MiB, less for a small pool. chunk_bytes:
    under one checksum; 0: 64 KiB.

    A pool that the module or kvctxd serves is one that is there; where only they have pools nothing is made.

    Raises Error: NoSpace, Busy, NotFound (nobody serves it, and dir is theirs), EINVAL (too few bytes for four
    segments), and others of kvctx_pool_create().
    """
    pool = Pool(dir)
    if os.path.isdir(dir) and pool._nodes():
        return pool
    if os.path.dirname(os.path.abspath(dir)) in SERVED:
        raise error(-errno.ENOENT, f"{pool.path}: nobody serves it")
    params = _lib.PoolParams(size=ctypes.sizeof(_lib.PoolParams), bytes=bytes, segment_bytes=segment_bytes,
                             chunk_bytes=chunk_bytes)
    check(lib.kvctx_pool_create(os.fsencode(dir), params), pool.path)
    return pool


class Pool:
    """A pool by its directory: /dev/kvctx/POOL, /run/kvctx/POOL, or one with the pool's files."""

    def __init__(self, dir: Path) -> None:
        self.path = os.fspath(dir)

    def session(self, tenant: str = "default", **how: Any) -> Session:
        """A session of one of its tenants; how: arguments of Session."""
        return Session(os.path.join(self.path, tenant), **how)

    def tenants(self) -> List[str]:
        """Names of the tenants that have a node here; of a pool in files, "default", which always is there."""
        return self._nodes() or ["default"]

    def _nodes(self) -> List[str]:
        """Of the module or kvctxd."""
        return sorted(e.name for e in os.scandir(self.path)
                      if stat.S_ISCHR(e.stat().st_mode) or stat.S_ISSOCK(e.stat().st_mode))

    def add(self, path: Path, bytes: int = 0) -> None:
        """Have a file or block device as a member too, of a pool that this process serves; sessions go on.

        What it holds is lost. bytes: of a new file that is made as path; 0: path is there. See kvctx_pool_add().

        Raises Error: NoSpace, Busy, EEXIST (it is a member of a pool, or there), and others of kvctx_pool_add().
        """
        check(lib.kvctx_pool_add(os.fsencode(self.path), os.fsencode(path), bytes), os.fspath(path))

    def remove(self, member: Union[Path, int], drop: bool = False) -> None:
        """Have a member less, of a pool that this process serves; its file in the pool's directory is deleted.

        member: a path that leads to it, or its number. Its pages move to the others, as far as these have room; with
        drop they are dropped. Returns when it is over, which leases delay; sessions go on.

        Raises Error: NotFound (no such member), Busy (the last one), EALREADY, EIO (another one was lost meanwhile).
        """
        what = str(member) if isinstance(member, int) else os.fspath(member)
        check(lib.kvctx_pool_remove(os.fsencode(self.path), os.fsencode(what), _lib.POOL_DROP if drop else 0), what)

    def __repr__(self) -> str:
        return f"<kvctx.Pool {self.path}>"
