# SPDX-License-Identifier: LGPL-2.1-or-later
"""Chunks of device memory: gathered on the device, and moved through pinned host memory that kvctx reaches.

With the option peer_memory the tensors' storage is registered with the module as peer memory, and pages move without
the host's memory where there is a path; what has none (-EREMOTEIO), or may not take it since nobody would verify it
(-EPERM), goes the usual way. Nobody verifies what a device moved to or from peer memory itself, which is why it is an
option.

Threads. start() is called by the worker's thread, and notes what the device has to finish first. Jobs are done one
after the other by one thread, with a stream of its own.
"""
from __future__ import annotations

import errno
import queue
import threading
from array import array
from contextlib import nullcontext
from typing import Any, List, Optional

import torch

from .. import Error, Session
from ..memory import View
from .keys import Pages, page_keys
from .link import Link, Options, logger
from .transfers import Job, Transfers

_ALIGN = 4096
_STAGE = (-errno.EREMOTEIO, -errno.EPERM)  # of a chunk that does not move directly, and does through host memory


class Staging:
    """See above. layout: a worker.Layout, all of whose tensors are on one device, or, to try this, in host memory."""

    def __init__(self, layout: Any, link: Link, transfers: Transfers, options: Options, rank: int) -> None:
        self._layout, self._link, self._transfers, self._rank = layout, link, transfers, rank
        self._peer_wanted = options.peer_memory
        self._peer: Optional[Session] = None  # that reaches the tensors
        self._cuda = layout.device.type == "cuda"
        page = layout.per_chunk * max(layout.block_bytes)
        self._slot = -(-page // _ALIGN) * _ALIGN
        self._slots = max(1, options.staging_bytes // self._slot)
        self._host = torch.empty(self._slots * self._slot, dtype=torch.int8, pin_memory=self._cuda)
        self._stream = torch.cuda.Stream(layout.device) if self._cuda else None
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        if link.session is not None:
            self.register(link.session)
        self._thread = threading.Thread(target=self._run, name="kvctx-staging", daemon=True)
        self._thread.start()

    def register(self, session: Session) -> None:
        """Pin what a new session has to reach."""
        session.register((self._host.data_ptr(), self._host.numel()))
        self._peer = session if self._peer_wanted and self._register_tensors(session) else None

    def _register_tensors(self, session: Session) -> bool:
        """All of them, or none, which is no error."""
        if session.info.backend != "module":
            logger.warning("kvctx: 'peer_memory' is for the module alone: chunks pass through host memory")
            return False
        done: List[Any] = []
        try:
            for address, nbytes in self._layout.ranges:
                done.append(session.register((address, nbytes)))
        except Error as e:
            logger.warning("kvctx: the KV tensors are out of reach (%s): chunks pass through host memory", e)
            for registration in done:
                registration.close()
            return False
        return True

    def start(self, job: Job, pages: Pages) -> None:
        """Begin a job. What the current stream has to do with its blocks is done before."""
        ready = None
        if self._cuda:
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(self._layout.device))
        self._transfers.begin(job)
        self._queue.put((job, pages, ready))

    def close(self) -> None:
        """Finish what was begun, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            if work is None:
                return
            job, pages, ready = work
            try:
                if ready is not None:
                    ready.synchronize()
                with torch.cuda.stream(self._stream) if self._cuda else nullcontext():
                    self._move(job, pages)
            except Exception as e:  # a job has to end, whatever torch says
                logger.error("kvctx: job %d: %s", job.id, e)
                job.results[:] = [-errno.EIO] * len(job.results)
            self._transfers.complete(job)

    def _move(self, job: Job, pages: Pages) -> None:
        session = self._link.session
        todo = []
        for n, chunk in enumerate(job.about):
            if job.load or len(chunk.blocks) == self._layout.per_chunk:
                job.results[n] = -errno.ENODEV
                todo.append(n)
            else:
                job.results[n] = 0
        if session is None:
            return
        if job.load:
            todo = self._fitting(session, job, pages, todo)
        if self._peer is session:
            self._move_peer(session, job, pages, todo)
            todo = [n for n in todo if job.results[n] in _STAGE]
        for at in range(0, len(todo), self._slots):
            self._move_staged(session, job, pages, todo[at:at + self._slots])
        if -errno.ENODEV in job.results:
            self._link.lost(session)

    def _fitting(self, session: Session, job: Job, pages: Pages, todo: List[int]) -> List[int]:
        """Of chunks to be loaded, those whose pages have the length that they need; others are dropped."""
        lengths = self._layout.lengths([job.about[n] for n in todo])
        if not lengths:
            return todo
        names = list(page_keys([pages.keys[n] for n in todo], [self._rank], pages.generation))
        try:
            told = list(session.query(names))
            session.delete([name for name, here, want in zip(names, told, lengths) if here >= 0 and here != want])
        except Error as e:
            told = [-(e.errno or errno.EIO)] * len(todo)
        for n, here in zip(todo, told):
            job.results[n] = here if here < 0 else -errno.EMSGSIZE
        return [n for n, here, want in zip(todo, told, lengths) if here == want]

    def _move_peer(self, session: Session, job: Job, pages: Pages, todo: List[int]) -> None:
        """As a device's memory, or the library would stage what has no path, as if the memory were the host's."""
        for n in todo:
            addrs, lens = array("Q"), array("I")
            self._layout.place(job.about[n], addrs, lens)
            self._call(session, job, pages, [n], [[View(a, size, device=True) for a, size in zip(addrs, lens)]])

    def _move_staged(self, session: Session, job: Job, pages: Pages, todo: List[int]) -> None:
        slots = [self._host[i * self._slot:i * self._slot + self._layout.nbytes(job.about[n])]
                 for i, n in enumerate(todo)]
        if not job.load:
            for slot, n in zip(slots, todo):
                self._gather(job.about[n], slot)
            self._synchronize()
        at = 0
        while at < len(todo):
            end = at + 1
            while end < len(todo) and self._follows(job, pages, todo[at], todo[end], end - at):
                end += 1
            self._call(session, job, pages, todo[at:end], [(s.data_ptr(), s.numel()) for s in slots[at:end]])
            at = end
        if job.load:
            for slot, n in zip(slots, todo):
                if job.results[n] >= 0:
                    self._scatter(job.about[n], slot)
            self._synchronize()

    def _follows(self, job: Job, pages: Pages, a: int, b: int, far: int) -> bool:
        """Whether chunk b can be in the operation that chunk a begins, as number far."""
        if job.load:
            return self._layout.offset(job.about[a]) == self._layout.offset(job.about[b])
        return pages.depths[b] == (pages.depths[a] and pages.depths[a] + far)

    def _call(self, session: Session, job: Job, pages: Pages, todo: List[int], buffers: List[Any]) -> None:
        """One call of kvctx for chunks with one offset, and their results."""
        names = page_keys([pages.keys[n] for n in todo], [self._rank], pages.generation)
        try:
            if job.load:
                results = list(session.load(names, buffers, offset=self._layout.offset(job.about[todo[0]])))
            else:
                results = list(session.store(names, buffers, depth=pages.depths[todo[0]]))
        except Error as e:
            results = [-(e.errno or errno.EIO)] * len(todo)
        for n, res in zip(todo, results):
            job.results[n] = res

    def _rows(self, chunk: Any, slot: torch.Tensor) -> torch.Tensor:
        return slot.view(len(chunk.blocks), -1)

    def _gather(self, chunk: Any, slot: torch.Tensor) -> None:
        """The chunk's blocks to a slot."""
        index = torch.tensor(chunk.blocks, device=self._layout.device)
        parts = [layer.tensor.index_select(0, index)[:, :layer.nbytes] for layer in self._layout.layers[chunk.group]]
        self._rows(chunk, slot).copy_(torch.cat(parts, dim=1), non_blocking=True)

    def _scatter(self, chunk: Any, slot: torch.Tensor) -> None:
        """A slot to the chunk's blocks."""
        index = torch.tensor(chunk.blocks, device=self._layout.device)
        rows, at = self._rows(chunk, slot).to(self._layout.device, non_blocking=True), 0
        for layer in self._layout.layers[chunk.group]:
            layer.tensor[:, :layer.nbytes].index_copy_(0, index, rows[:, at:at + layer.nbytes])
            at += layer.nbytes

    def _synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()
