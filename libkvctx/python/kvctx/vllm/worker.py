# SPDX-License-Identifier: LGPL-2.1-or-later
"""A worker's side of KvctxOffloadingSpec: blocks of its KV tensors to pages of kvctx and back.

A page is a chunk: its blocks in order, of each block the layers of its group. In memory that is a piece a block and
layer, so a page is a scatter list, and no byte is copied on the way where the tensors are memory that kvctx reaches;
their storage is registered once. Else staging.py copies whole chunks through host memory.

A load that fails fails for its blocks only. KvctxConnector asks for them (failed_loads) and has them recomputed; with
another connector the job fails, by which vLLM 0.32 ends the engine. A store that fails is no failure of the job: the
chunk is not found later.

Threads. All calls are vLLM's, in the worker's thread.
"""
from __future__ import annotations

import errno
from array import array
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult

from .. import Error, Session
from .keys import Pages, group_of, page_keys
from .link import Link, Options, logger
from .transfers import Job, Part, Transfers


class Layer(NamedTuple):
    """Where a group has the blocks of a layer: block b is nbytes at address + b * stride."""
    address: int
    stride: int
    nbytes: int
    tensor: Any


class Chunk(NamedTuple):
    """A chunk of a transfer, or a part of one. index: of its key. skip: blocks of the chunk before the first here."""
    index: int  # type: ignore[assignment]  # a tuple's own index() is not wanted
    group: int
    blocks: List[int]
    skip: int


def chunks(place: Any, per_chunk: int) -> Iterator[Chunk]:
    """The chunks of what vLLM calls a GPULoadStoreSpec: blocks of one group after the other, of which the first chunk
    may lack its first blocks, and the last one its last."""
    ids, at, index = place.block_ids.tolist(), 0, 0
    for group, (count, first) in enumerate(zip(place.group_sizes, place.block_indices)):
        skip, end = first % per_chunk, at + count
        while at < end:
            take = min(per_chunk - skip, end - at)
            yield Chunk(index, group, ids[at:at + take], skip)
            index, at, skip = index + 1, at + take, 0


class Layout:
    """The tensors of a worker.

    kv_caches: vLLM's CanonicalKVCaches. groups: their numbers in keys. stages: of the pipeline; with more than one the
    keyspace does not tell how long a page is.
    """

    def __init__(self, kv_caches: Any, groups: Sequence[int], per_chunk: int, stages: int = 1) -> None:
        self.per_chunk, self.groups, self._stages = per_chunk, list(groups), stages
        self.layers: List[List[Layer]] = []
        for refs in kv_caches.group_data_refs:
            tensors = [kv_caches.tensors[ref.tensor_idx].tensor for ref in refs]
            self.layers.append([Layer(t.data_ptr(), t.stride(0) * t.element_size(), ref.page_size_bytes, t)
                                for t, ref in zip(tensors, refs)])
        self._lens = [array("I", [layer.nbytes for layer in group]) for group in self.layers]
        self.block_bytes = [sum(lens) for lens in self._lens]
        self.device = kv_caches.tensors[0].tensor.device
        storages = [t.tensor.untyped_storage() for t in kv_caches.tensors]
        self.ranges = sorted({s.data_ptr(): s.nbytes() for s in storages}.items())

    def check(self, session: Session) -> None:
        """Raise ValueError when kvctx does not take pages of such a shape."""
        pieces = self.per_chunk * max(len(group) for group in self.layers)
        page = self.per_chunk * max(self.block_bytes)
        info = session.info
        if pieces > info.segs_max or page > info.page_len_max:
            raise ValueError(f"kvctx: a chunk of {self.per_chunk} blocks is {pieces} pieces and {page} bytes; "
                             f"{info.segs_max} and {info.page_len_max} is the most: set a smaller 'blocks_per_chunk' "
                             "or 'block_size' in kv_connector_extra_config")

    def place(self, chunk: Chunk, addrs: array, lens: array) -> int:
        """Append a chunk's pieces, and return how many they are."""
        layers = [(layer.address, layer.stride) for layer in self.layers[chunk.group]]
        for block in chunk.blocks:
            addrs.extend([address + block * stride for address, stride in layers])
        lens.extend(self._lens[chunk.group] * len(chunk.blocks))
        return len(layers) * len(chunk.blocks)

    def offset(self, chunk: Chunk) -> int:
        """Bytes of the page before the chunk's first block."""
        return chunk.skip * self.block_bytes[chunk.group]

    def nbytes(self, chunk: Chunk) -> int:
        return len(chunk.blocks) * self.block_bytes[chunk.group]

    def lengths(self, found: List[Chunk]) -> List[int]:
        """Of the pages of chunks, to be compared before they are loaded; none where that is not needed."""
        return [self.per_chunk * self.block_bytes[chunk.group] for chunk in found] if self._stages > 1 else []

    def fits(self, found: List[Chunk], keys: Sequence[bytes]) -> bool:
        """Whether there is a key for each chunk, of its group."""
        return len(found) == len(keys) and all(group_of(keys[c.index]) == self.groups[c.group] for c in found)


class KvctxWorker(OffloadingWorker):
    """See above.

    rank: of the pages that it stores and loads. failures_wanted: set by a connector that takes failed_loads().
    """

    def __init__(self, layout: Layout, options: Options, described: str, rank: int) -> None:
        self._layout, self._rank = layout, rank
        self.failures_wanted = False
        self._failed: Dict[int, Set[int]] = {}
        self._staging: Optional[Any] = None
        self._link = Link(options, described, f"worker {rank}", self._register)
        self._transfers = Transfers(self._link)
        if layout.device.type != "cpu":
            from .staging import Staging
            self._staging = Staging(layout, self._link, self._transfers, options, rank)

    def _register(self, session: Session) -> None:
        """Pin the tensors, or see that they are out of reach."""
        self._layout.check(session)
        if self._layout.device.type != "cpu":
            if self._staging:
                self._staging.register(session)
            return
        for address, nbytes in self._layout.ranges:
            session.register((address, nbytes))

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._submit(job_id, False, src_spec, dst_spec)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._submit(job_id, True, dst_spec, src_spec)
        return True

    def _submit(self, job_id: int, load: bool, place: Any, pages: Pages) -> None:
        found = list(chunks(place, self._layout.per_chunk))
        job = Job(job_id, load, sum(map(self._layout.nbytes, found)), [-errno.EINVAL] * len(found), found)
        if not self._layout.fits(found, pages.keys):
            logger.error("kvctx: job %d has %d chunks and %d keys, which do not fit", job_id, len(found),
                         len(pages.keys))
            self._transfers.start(job, [])
        elif self._staging:
            self._staging.start(job, pages)
        else:
            self._transfers.start(job, self._parts(job, pages))

    def _parts(self, job: Job, pages: Pages) -> List[Part]:
        """A job as few operations: chunks one behind the other, with depths that follow each other, at one offset."""
        parts: List[Part] = []
        for first, end, depth, offset in runs(job, pages, self._layout):
            addrs, lens, pieces = array("Q"), array("I"), array("I")
            for chunk in job.about[first:end]:
                pieces.append(self._layout.place(chunk, addrs, lens))
            keys = page_keys(pages.keys[first:end], [self._rank], pages.generation)
            lengths = self._layout.lengths(job.about[first:end]) if job.load else []
            parts.append(Part(first, keys, addrs, lens, pieces, depth, offset, lengths))
        return parts

    def get_finished(self) -> List[TransferResult]:
        results = []
        for job in self._transfers.finished():
            failed = {block for n in job.failed for block in job.about[n].blocks} if job.load else set()
            if failed and self.failures_wanted:
                self._failed[job.id] = failed
            results.append(TransferResult(job_id=job.id, success=not failed or self.failures_wanted,
                                          transfer_size=sum(res for res in job.results if res > 0),
                                          transfer_time=job.seconds))
        return results

    def failed_loads(self) -> Dict[int, Set[int]]:
        """Blocks that were not loaded, by job, of the jobs that get_finished() gave since the last call."""
        failed, self._failed = self._failed, {}
        return failed

    def wait(self, job_ids: Set[int]) -> None:
        self._transfers.wait(job_ids)

    def shutdown(self) -> None:
        if self._staging:
            self._staging.close()
        self._transfers.wait()
        self._transfers.close()
        self._link.flush()
        self._link.close()
        self._transfers.finished()
        logger.info("kvctx: %s", self._transfers.report())


def runs(job: Job, pages: Pages, layout: Layout) -> Iterator[Tuple[int, int, int, int]]:
    """Chunks that can go in one operation: (first, end, depth of the first, offset). What cannot be stored, a chunk
    that lacks blocks, is left out: its result says that nothing was stored."""
    first, depth, offset = 0, 0, 0
    for n, chunk in enumerate(job.about):
        whole = job.load or len(chunk.blocks) == layout.per_chunk
        this = pages.depths[n] if not job.load else 0
        here = layout.offset(chunk) if job.load else 0
        if n > first and not (whole and here == offset and this == (depth and depth + n - first)):
            yield first, n, depth, offset
            first = n
        if not whole:
            job.results[n] = 0
            first = n + 1
        elif n == first:
            depth, offset = this, here
    if first < len(job.about):
        yield first, len(job.about), depth, offset


__all__ = ["Chunk", "Error", "KvctxWorker", "Layer", "Layout", "chunks", "runs"]
