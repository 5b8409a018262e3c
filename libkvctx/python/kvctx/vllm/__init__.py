# SPDX-License-Identifier: LGPL-2.1-or-later
"""vLLM's KV cache in kvctx. Documentation/vllm.rst tells how to configure it.

  KvctxConnector        what most want: OffloadingConnector, where a load that fails is recomputed; uses
                        KvctxOffloadingSpec unless spec_name says otherwise
  KvctxOffloadingSpec   blocks move between vLLM's KV tensors and kvctx, without a tier in host memory between them
  KvctxTier             kvctx as a secondary tier of TieringOffloadingSpec, below vLLM's own tier in host memory

vLLM finds these names by kv_connector_module_path, spec_module_path and module_path: "kvctx.vllm". Each is imported
when it is asked for, and needs vLLM only then.

Vocabulary, vLLM's: a block is some tokens' keys and values in the KV tensors, a chunk is blocks_per_chunk blocks that
are offloaded as one, a group is layers that share block ids. kvctx's: a chunk of a worker is one page.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {"KvctxConnector": "connector", "KvctxOffloadingSpec": "spec", "KvctxTier": "tier"}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("." + _WHERE[name], __name__), name)
