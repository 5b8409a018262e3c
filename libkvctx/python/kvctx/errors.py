# SPDX-License-Identifier: LGPL-2.1-or-later
"""Exceptions: an OSError with the errno that <linux/kvctx.h> gives one meaning, and its text.

``Error`` stands for all; the subclasses are those that a program handles differently. The result of one page of many
is no exception but a negative number in Results; Results.check() makes one of it.
"""
from __future__ import annotations

import errno as _errno

from ._lib import lib


class Error(OSError):
    """Something kvctx could not do; .errno says what, str() in words."""


class NotFound(Error):
    """ENOENT: no such page, pool or tenant."""


class Corrupt(Error):
    """EBADMSG: the page was here, failed verification, and has been dropped: recompute it."""


class NoSpace(Error):
    """ENOSPC: nothing can be evicted, or no lease, slot or space on the file system is left."""


class Busy(Error):
    """EBUSY: another process has the pool, or operations in flight use what was to go."""


class Gone(Error):
    """ENODEV: the member, the pool or the daemon is gone."""


_KINDS = {_errno.ENOENT: NotFound, _errno.EBADMSG: Corrupt, _errno.ENOSPC: NoSpace, _errno.EBUSY: Busy,
          _errno.ENODEV: Gone}


def error(res: int, what: str = "") -> Error:
    """The exception for a negative result.

    res: -errno, as C returns it. what: a path, or a few words on what was done; goes before the text.
    """
    text = lib.kvctx_strerror(res).decode()
    return _KINDS.get(-res, Error)(-res, f"{what}: {text}" if what else text)


def check(res: int, what: str = "") -> int:
    """res itself, or raise the exception for it."""
    if res < 0:
        raise error(res, what)
    return res
