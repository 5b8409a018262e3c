# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx: KV cache pages on NVMe and NVMe-oF namespaces or in files, for Python.

    pool = kvctx.create_pool("/var/lib/kvctx/kv0", 1 << 30)
    with pool.session(keyspace="model, dtype, layout, ranks") as s:
        s.store(["page 0"], [bytes_like]).check()
        with s.match(["page 0"], lease=5.0) as m:
            s.load(["page 0"][:m.prefix], [room]).check()

Vocabulary, limits and errors are those of <linux/kvctx.h>; sizes are bytes, times are seconds.
"""
from ._lib import lib as _c
from .errors import Busy, Corrupt, Error, Gone, NoSpace, NotFound
from .keys import Key, Keys, keyspace
from .memory import shared_memory
from .operation import Operation
from .pool import Pool, create_pool
from .results import Event, Events, Info, Match, Present, Results, Usage
from .session import BACKGROUND, DEFAULT, NORMAL, URGENT, Registration, Session

__version__ = _c.kvctx_version().decode()

__all__ = ["BACKGROUND", "Busy", "Corrupt", "DEFAULT", "Error", "Event", "Events", "Gone", "Info", "Key", "Keys",
           "Match", "NORMAL", "NoSpace", "NotFound", "Operation", "Pool", "Present", "Registration", "Results",
           "Session", "URGENT", "Usage", "create_pool", "keyspace", "shared_memory"]
