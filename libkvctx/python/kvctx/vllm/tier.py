# SPDX-License-Identifier: LGPL-2.1-or-later
"""KvctxTier: kvctx as a secondary tier of TieringOffloadingSpec.

vLLM's primary tier is a region of host memory, of which a row has all workers' parts of a chunk. A row is a page here,
in one piece; the region is registered once. Lookups are finder.py's, transfers transfers.py's; leases last from the
lookup until the row is loaded, and a load that fails is a miss for the requests that wait for it. What is stored, and
what has gone, is announced by announcer.py. vLLM tells no tier that weights change: what was stored is found again
after a reset.

Threads. All calls are vLLM's, in the scheduler's thread; none of them waits for kvctxd but drain_jobs() and
shutdown(): lookups are asked in a thread of asker.py, jobs submitted in one of transfers.py.
"""
from __future__ import annotations

import ctypes
import errno
from array import array
from typing import Any, ClassVar, Iterable, List, Optional

from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, OffloadingEvent, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from .. import Keys, Session
from .announcer import Announcer
from .asker import Asker
from .finder import Finder
from .keys import describe, page_keys
from .link import Link, Options, logger
from .transfers import Job, Part, Transfers


class KvctxTier(SecondaryTierManager):
    """See above. An entry of secondary_tiers has:

    type: "KvctxTier". module_path: "kvctx.vllm". path and the other options of link.Options, but for staging_bytes and
    peer_memory, which it has no use for. enable_kv_events: announce what was stored, and what has gone.
    locality: "LOCAL" or "REMOTE", for kv_load_tiers and events.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None, *, enable_kv_events: bool = False,
                 locality: Optional[str] = None, **options: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        first = ctypes.c_char.from_buffer(primary_kv_view.cast("B"))
        self._address, self._nbytes = ctypes.addressof(first), primary_kv_view.nbytes
        del first
        opts = Options(**options)
        described = describe(offloading_spec.config, opts.keyspace, row_bytes=self.block_size_bytes)
        self._link = Link(opts, described, "tier", self._register)
        self._transfers = Transfers(self._link)
        self._asker = Asker()
        self._finder = Finder(self._link, self._asker, self._pages_of, opts.lease_seconds)
        self._announcer: Optional[Announcer] = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self._announcer = Announcer(self._link, self._asker, self._pages_of, self.medium, self.locality, tier_type)

    def _register(self, session: Session) -> None:
        most = session.info.page_len_max
        if self.block_size_bytes > most:
            raise ValueError(f"kvctx: a chunk has {self.block_size_bytes} bytes, and {most} is the most: set a smaller "
                             "'blocks_per_chunk' or 'block_size' in kv_connector_extra_config")
        session.register((self._address, self._nbytes))

    @staticmethod
    def _pages_of(keys: List[bytes]) -> Keys:
        return page_keys(keys, [0])

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        found = self._finder.lookup(key, req_context.req_id)
        if found is None:
            return LookupResult.RETRY
        if not found and self._announcer:
            self._announcer.missing(key)
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:
        self._start(job_metadata, False)

    def submit_load(self, job_metadata: Any) -> None:
        self._finder.hold(job_metadata.keys)
        self._start(job_metadata, True)

    def _start(self, work: Any, load: bool) -> None:
        keys, size = list(work.keys), self.block_size_bytes
        job = Job(work.job_id, load, size * len(keys), [-errno.EINVAL] * len(keys), keys)
        addrs = array("Q", [self._address + int(row) * size for row in work.chunk_ids])
        self._transfers.start(job, [Part(0, self._pages_of(keys), addrs, array("I", [size]) * len(keys), None)])

    def get_finished_jobs(self) -> Iterable[JobResult]:
        return [self._finish(job) for job in self._transfers.finished()]

    def _finish(self, job: Job) -> JobResult:
        good = [key for key, res in zip(job.about, job.results) if res > 0]
        if job.load:
            bad = set(job.about).difference(good)
            self._finder.drop(job.about)
            self._finder.miss(bad)
        else:
            self._finder.forget(good)
            if self._announcer:
                self._announcer.stored(good)
        return JobResult(job_id=job.id, success=not job.failed, successful_keys=good if job.load else None,
                         transfer_time=job.seconds, transfer_bytes=sum(res for res in job.results if res > 0))

    def has_pending_work(self) -> bool:
        return bool(self._announcer and self._announcer.busy())

    def take_events(self) -> Iterable[OffloadingEvent]:
        return self._announcer.take() if self._announcer else ()

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._finder.finish(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:
        self._finder.flush()
        if self._announcer:
            self._announcer.step()

    def drain_jobs(self) -> None:
        self._transfers.wait()

    def shutdown(self) -> None:
        self._finder.reset()
        self._transfers.wait()
        self._transfers.close()
        self._asker.close()
        self._link.flush()
        self._link.close()
        logger.info("kvctx: %s", self._transfers.report())
