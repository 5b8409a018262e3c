# SPDX-License-Identifier: LGPL-2.1-or-later
"""Chunks of device memory: gathered on the device, and moved through pinned host memory that kvctx reaches.

With the option peer_memory the tensors' storage is registered with the module as peer memory, and pages move without
the host's memory where there is a path; what has none (-EREMOTEIO), or may not take it since nobody would verify it
(-EPERM), goes the usual way. Nobody verifies what a device moved to or from peer memory itself, which is why it is an
option.

Threads. start() is called by the worker's thread, and notes what the device has to finish first. Jobs are done one
after the other by one thread, with a stream of its own, and in inference mode, as vLLM may have made its tensors in it.

The host memory has slots, one a chunk, and up to eight parts: while kvctx moves the chunks of some, the device copies
those of another. On the device chunks are gathered and scattered some at a time, in memory that torch keeps for it.
"""
from __future__ import annotations

import errno
import queue
import threading
from array import array
from collections import deque
from contextlib import nullcontext
from typing import Any, Deque, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .. import Error, Operation, Session
from ..memory import View
from .keys import Pages, page_keys
from .link import Link, Options, logger
from .transfers import Job, Transfers

_ALIGN = 4096
_PARTS = 8
_AT_ONCE = 16 << 20  # bytes that the device gathers or scatters together, unless one chunk has more
_STAGE = (-errno.EREMOTEIO, -errno.EPERM)  # of a chunk that does not move directly, and does through host memory


class _Flight(NamedTuple):
    """Chunks of a job in slots from this one, and what kvctx does with them: operations, and the chunks of each."""
    todo: List[int]
    slot: int
    operations: List[Tuple[Operation, List[int]]]


class Staging:
    """See above. layout: a worker.Layout, all of whose tensors are on one device, or, to try this, in host memory."""

    def __init__(self, layout: Any, link: Link, transfers: Transfers, options: Options, rank: int) -> None:
        self._layout, self._link, self._transfers, self._rank = layout, link, transfers, rank
        self._peer_wanted = options.peer_memory
        self._peer: Optional[Session] = None  # that reaches the tensors
        self._cuda = layout.device.type == "cuda"
        page = layout.per_chunk * max(layout.block_bytes)
        self._slot = -(-page // _ALIGN) * _ALIGN
        slots = max(1, options.staging_bytes // self._slot)
        self._parts = min(_PARTS, slots)
        self._part = slots // self._parts  # slots in it
        self._host = torch.empty(self._parts * self._part * self._slot, dtype=torch.int8, pin_memory=self._cuda)
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
                with torch.inference_mode(), torch.cuda.stream(self._stream) if self._cuda else nullcontext():
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
        self._move_staged(session, job, pages, todo)
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
            pieces = [View(a, size, device=True) for a, size in zip(addrs, lens)]
            results = self._call(session, job, pages, [n], [pieces], "load", "store")
            if results is not None:
                self._note(job, [n], list(results))

    def _move_staged(self, session: Session, job: Job, pages: Pages, todo: List[int]) -> None:
        flights: Deque[_Flight] = deque()
        try:
            for nr, at in enumerate(range(0, len(todo), self._part)):
                if nr >= self._parts:
                    self._land(job, flights.popleft())
                flights.append(_Flight(todo[at:at + self._part], nr % self._parts * self._part, []))
                self._take_off(session, job, pages, flights[-1])
            while flights:
                self._land(job, flights.popleft())
        finally:  # one may have failed: nobody gets slots or blocks before the other is done with them
            for flight in flights:
                self._await(job, flight)
            self._synchronize()

    def _take_off(self, session: Session, job: Job, pages: Pages, flight: _Flight) -> None:
        """Begin the operations; of stores, when the device has filled the slots."""
        todo, at = flight.todo, 0
        if not job.load:
            self._gather([(job.about[n], flight.slot + i) for i, n in enumerate(todo)])
            self._synchronize()
        while at < len(todo):
            end = at + 1
            while end < len(todo) and self._follows(job, pages, todo[at], todo[end], end - at):
                end += 1
            buffers = [(self._host.data_ptr() + (flight.slot + i) * self._slot, self._layout.nbytes(job.about[todo[i]]))
                       for i in range(at, end)]
            operation = self._call(session, job, pages, todo[at:end], buffers, "submit_load", "submit_store")
            if operation is not None:
                flight.operations.append((operation, todo[at:end]))
            at = end

    def _land(self, job: Job, flight: _Flight) -> None:
        """Wait for the operations, and have the device take what was loaded."""
        self._await(job, flight)
        if job.load:
            self._scatter([(job.about[n], flight.slot + i) for i, n in enumerate(flight.todo) if job.results[n] >= 0])
            self._synchronize()

    def _await(self, job: Job, flight: _Flight) -> None:
        for operation, todo in flight.operations:
            try:
                results = list(operation.result())
            except Exception as e:  # whatever it is, the others have to be waited for
                results = [-(getattr(e, "errno", None) or errno.EIO)] * len(todo)
            self._note(job, todo, results)

    def _follows(self, job: Job, pages: Pages, a: int, b: int, far: int) -> bool:
        """Whether chunk b can be in the operation that chunk a begins, as number far."""
        if job.load:
            return self._layout.offset(job.about[a]) == self._layout.offset(job.about[b])
        return pages.depths[b] == (pages.depths[a] and pages.depths[a] + far)

    def _call(self, session: Session, job: Job, pages: Pages, todo: List[int], buffers: List[Any], load: str,
              store: str) -> Any:
        """Call one of two methods of the session for chunks with one offset; None, with their results, if it raises."""
        names = page_keys([pages.keys[n] for n in todo], [self._rank], pages.generation)
        try:
            if job.load:
                return getattr(session, load)(names, buffers, offset=self._layout.offset(job.about[todo[0]]))
            return getattr(session, store)(names, buffers, depth=pages.depths[todo[0]])
        except Error as e:
            self._note(job, todo, [-(e.errno or errno.EIO)] * len(todo))
            return None

    @staticmethod
    def _note(job: Job, todo: List[int], results: List[int]) -> None:
        for n, res in zip(todo, results):
            job.results[n] = res

    # On the device. placed: chunks with the numbers of their slots

    def _gather(self, placed: List[Tuple[Any, int]]) -> None:
        """Blocks of chunks to slots."""
        for some, index in self._together(placed):
            self._gather_some(some, index)

    def _gather_some(self, placed: List[Tuple[Any, int]], index: torch.Tensor) -> None:
        layers, at = self._layout.layers[placed[0][0].group], 0
        rows = torch.cat([layer.tensor.index_select(0, index)[:, :layer.nbytes] for layer in layers], dim=1)
        for host in self._host_rows(placed):
            host.copy_(rows[at:at + len(host)], non_blocking=True)
            at += len(host)

    def _scatter(self, placed: List[Tuple[Any, int]]) -> None:
        """Slots to blocks of chunks."""
        for some, index in self._together(placed):
            self._scatter_some(some, index)

    def _scatter_some(self, placed: List[Tuple[Any, int]], index: torch.Tensor) -> None:
        layers, at = self._layout.layers[placed[0][0].group], 0
        rows = torch.empty((len(index), sum(layer.nbytes for layer in layers)), dtype=torch.int8,
                           device=self._layout.device)
        for host in self._host_rows(placed):
            rows[at:at + len(host)].copy_(host, non_blocking=True)
            at += len(host)
        at = 0
        for layer in layers:
            layer.tensor[:, :layer.nbytes].index_copy_(0, index, rows[:, at:at + layer.nbytes])
            at += layer.nbytes

    def _together(self, placed: List[Tuple[Any, int]]) -> Iterator[Tuple[List[Tuple[Any, int]], torch.Tensor]]:
        """What the device does at a time: chunks of one group, with the numbers of their blocks there."""
        index = torch.tensor([b for chunk, _ in placed for b in chunk.blocks], device=self._layout.device)
        first, nbytes, row, rows = 0, 0, 0, 0
        for n, (chunk, _) in enumerate(placed):
            more = self._layout.nbytes(chunk)
            if n > first and (chunk.group != placed[first][0].group or nbytes + more > _AT_ONCE):
                yield placed[first:n], index[row:row + rows]
                first, nbytes, row, rows = n, 0, row + rows, 0
            nbytes, rows = nbytes + more, rows + len(chunk.blocks)
        if placed:
            yield placed[first:], index[row:]

    def _host_rows(self, placed: List[Tuple[Any, int]]) -> Iterator[torch.Tensor]:
        """Blocks in the slots of chunks of one group, in as few tensors as the slots' lengths allow."""
        start = end = rows = 0
        for chunk, slot in placed:
            if rows and end != slot * self._slot:
                yield self._host[start:end].view(rows, -1)
                rows = 0
            if not rows:
                start = end = slot * self._slot
            end, rows = end + self._layout.nbytes(chunk), rows + len(chunk.blocks)
        if rows:
            yield self._host[start:end].view(rows, -1)

    def _synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()
