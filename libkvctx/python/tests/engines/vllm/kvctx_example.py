# SPDX-License-Identifier: LGPL-2.1-or-later
"""KvctxTier in place of vLLM's ExampleSecondaryTierManager, for vLLM's own tests: pytest -p kvctx_example.

Those tests know that the example keeps chunks in a dict, .chunks, that its jobs are done at once, and are in
.completed_jobs until they are asked for. All tiers of a run are in one pool, each with a keyspace of its own. At the
end it tells how many pages went each way, and fails when there were none: then it was not our tier that was tested.
"""
import itertools
import os
import tempfile
from types import SimpleNamespace

import vllm.v1.kv_offload.tiering.example.manager as example
from vllm.v1.kv_offload.base import LookupResult, Medium
from vllm.v1.kv_offload.config import OffloadingCacheConfig, OffloadingConfig, OffloadingModelConfig
from vllm.v1.kv_offload.config import OffloadingParallelConfig

import kvctx
from kvctx.vllm.keys import page_keys
from kvctx.vllm.tier import KvctxTier

_pool = tempfile.TemporaryDirectory(prefix="kvctx-vllm-")
_numbers = itertools.count()
_tiers = []
_pages = {"stored": 0, "loaded": 0, "tiers": 0}
_CONFIG = OffloadingConfig(
    groups=(), worker_kv_bytes_per_block=16, enable_kv_cache_events=False, extra_config={}, engine_id="test",
    model=OffloadingModelConfig("test", "int8"), cache=OffloadingCacheConfig(16, 1),
    parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False))


class Chunks:
    """What the tests take for a dict of keys."""

    def __init__(self, tier):
        self._tier, self._keys = tier, set()

    def seen(self, keys):
        self._keys.update(keys)

    def __setitem__(self, key, _):
        session = self._tier._link.session
        session.store(page_keys([key], [0]), [bytes(self._tier.block_size_bytes)]).check()
        self._tier._finder.forget([key])
        self._keys.add(key)

    def __contains__(self, key):
        return self._tier._link.session.query(page_keys([key], [0]))[0] >= 0

    def __len__(self):
        return sum(key in self for key in self._keys)


class ExampleSecondaryTierManager(KvctxTier):
    medium = Medium.CPU

    def __init__(self, offloading_spec, primary_kv_view, tier_type, custom_param=0, backpressure_detector=None):
        if not isinstance(primary_kv_view, memoryview):  # tests of the factory give a mock
            primary_kv_view = memoryview(bytearray(160)).cast("B", (10, 16))
        spec = SimpleNamespace(config=_CONFIG, kv_events_config=offloading_spec.kv_events_config)
        super().__init__(spec, primary_kv_view, tier_type, backpressure_detector,
                         path=os.path.join(_pool.name, "kv0", "default"), keyspace=str(next(_numbers)))
        self.completed_jobs = []
        self.chunks = Chunks(self)
        _tiers.append(self)
        _pages["tiers"] += 1

    def lookup(self, key, req_context):
        if super().lookup(key, req_context) is LookupResult.RETRY:
            self._finder.flush()
        return super().lookup(key, req_context)

    def submit_store(self, job):
        super().submit_store(job)
        self.chunks.seen(job.keys)
        self._done()

    def submit_load(self, job):
        super().submit_load(job)
        self._done()

    def _done(self):
        KvctxTier.drain_jobs(self)  # the tests count calls of .drain_jobs()
        self.completed_jobs.extend(super().get_finished_jobs())

    def get_finished_jobs(self):
        jobs, self.completed_jobs = self.completed_jobs, []
        return jobs

    def get_num_chunks(self):
        return len(self.chunks)


kvctx.create_pool(os.path.join(_pool.name, "kv0"), 64 << 20)
example.ExampleSecondaryTierManager = ExampleSecondaryTierManager


def pytest_runtest_teardown():
    while _tiers:
        tier = _tiers.pop()
        _pages["stored"] += tier._transfers.stored.pages
        _pages["loaded"] += tier._transfers.loaded.pages
        tier.shutdown()


def pytest_sessionfinish(session, exitstatus):
    print(f"\nkvctx: {_pages['tiers']} tiers, {_pages['stored']} pages stored, {_pages['loaded']} loaded")
    if not (_pages["stored"] and _pages["loaded"]):
        session.exitstatus = 1
