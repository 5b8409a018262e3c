# SPDX-License-Identifier: LGPL-2.1-or-later
"""KvctxConnector: vLLM's OffloadingConnector, for which a load that failed is something to recompute.

vLLM 0.32's own asserts that every transfer succeeds, and the engine ends when one does not. Here the worker reports the
blocks of a load that failed or did not verify. vLLM takes them from get_block_ids_with_load_errors(), and with
kv_load_failure_policy=recompute computes from the first of them on; models with more than one KV cache group, whose
block ids are not unique, take whole requests (failed_recving).
"""
from __future__ import annotations

from typing import Any, Dict, Set

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from .keys import SHAPE, shape_of
from .link import logger
from .worker import KvctxWorker


class KvctxConnector(OffloadingConnector):
    """See above. Without "spec_name" in kv_connector_extra_config it uses KvctxOffloadingSpec.

    Threads: as OffloadingConnector, of which one instance is made in the scheduler's process and one in each worker's.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        transfer = vllm_config.kv_transfer_config
        if "spec_name" not in transfer.kv_connector_extra_config:
            transfer.kv_connector_extra_config.update(spec_name="KvctxOffloadingSpec", spec_module_path="kvctx.vllm")
        transfer.kv_connector_extra_config[SHAPE] = shape_of(vllm_config)
        if transfer.kv_load_failure_policy != "recompute":
            logger.warning("kvctx: with kv_load_failure_policy=%s a request fails when a page does not load; "
                           "'recompute' computes it", transfer.kv_load_failure_policy)
        super().__init__(vllm_config, role, kv_cache_config)
        self._one_group = len(kv_cache_config.kv_cache_groups) == 1
        self._requests: Dict[int, str] = {}
        self._bad_blocks: Set[int] = set()

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        worker = self._kvctx_worker()
        if worker:
            worker.failures_wanted = True

    def _kvctx_worker(self) -> Any:
        worker = self.connector_worker.worker if self.connector_worker else None
        return worker if isinstance(worker, KvctxWorker) else None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for job_id, job in self._connector_metadata.load_jobs.items():
            self._requests[job_id] = job.req_id
        super().start_load_kv(forward_context, **kwargs)

    def get_transfer_results(self, finished_req_ids: Set[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)
        worker = self._kvctx_worker()
        for job_id, blocks in (worker.failed_loads() if worker else {}).items():
            if self._one_group:
                self._bad_blocks |= blocks
            elif job_id in self._requests:
                results.failed_recving.add(self._requests[job_id])
        for job_id in [j for j, request in self._requests.items() if request in results.finished_recving]:
            del self._requests[job_id]
        return results

    def get_block_ids_with_load_errors(self) -> Set[int]:
        blocks, self._bad_blocks = self._bad_blocks, set()
        return blocks
