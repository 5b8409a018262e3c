# SPDX-License-Identifier: LGPL-2.1-or-later
"""KvctxOffloadingSpec: what vLLM makes in the scheduler's process and in each worker's, from the same configuration."""
from __future__ import annotations

from typing import Any, Optional

from vllm.v1.kv_offload.base import OffloadingSpec

from .keys import describe
from .link import Link, Options
from .manager import KvctxManager
from .worker import KvctxWorker, Layout


class KvctxOffloadingSpec(OffloadingSpec):
    """Offload KV blocks to kvctx, without a tier in host memory.

    kv_connector_extra_config: "path" and the others of link.Options, beside vLLM's own.

    Where vLLM says that all workers hold the same bytes (MLA), rank 0 stores them for all.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if config.canonical_layout:
            raise ValueError("kvctx: 'canonical_layout' is not served: remove it from kv_connector_extra_config")
        self.replicated_layout = config.replicated_layout
        self._options = Options.of(self.extra_config)
        self._described = describe(config, self._options.keyspace)
        self._manager: Optional[KvctxManager] = None
        self._worker: Optional[KvctxWorker] = None

    def get_manager(self) -> KvctxManager:
        if self._manager is None:
            config = self.config
            ranks = [0] if self.replicated_layout else list(range(config.parallel.world_size))
            tokens = {g.group_id: g.tokens_per_block * config.cache.blocks_per_chunk for g in config.groups}
            self._manager = KvctxManager(Link(self._options, self._described, "scheduler"), ranks, tokens,
                                         self._options.lease_seconds, self.kv_events_config.enable_kv_cache_events)
        return self._manager

    def get_worker(self, kv_caches: Any) -> KvctxWorker:
        if self._worker is None:
            config = self.config
            layout = Layout(kv_caches, [g.group_id for g in config.groups], config.cache.blocks_per_chunk,
                            config.parallel.pp_size)
            rank = 0 if self.replicated_layout else config.parallel.rank
            self._worker = KvctxWorker(layout, self._options, self._described, rank)
        return self._worker
