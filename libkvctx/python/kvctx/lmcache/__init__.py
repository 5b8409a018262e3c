# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx as an L2 adapter of LMCache's MP mode, selected by configuration alone; see Documentation/lmcache.rst.

    lmcache server ... --l2-adapter '{"type": "plugin", "module_path": "kvctx.lmcache", "class_name": "KvctxL2Adapter",
        "adapter_params": {"path": "/var/lib/kvctx/kv0/default", "max_bytes": 200000000000}}'

Needs lmcache; nothing else of the package imports this.
"""
from .adapter import KvctxL2Adapter

__all__ = ["KvctxL2Adapter"]
