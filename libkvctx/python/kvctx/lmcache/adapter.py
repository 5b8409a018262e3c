# SPDX-License-Identifier: LGPL-2.1-or-later
"""KvctxL2Adapter: LMCache's L2AdapterInterface over a session of kvctx.

Vocabulary
  task    what LMCache submits: a list of keys, and objects to store from or load to. Each gets a number; its result is
          fetched once, after the event fd of its kind was signalled
  page    one object in kvctx; it has the object's bytes, and a name that keys.py makes of the key
  keeper  the adapter's own thread: now and then it renews leases, flushes, tells LMCache what kvctx has evicted, and
          opens a new session when one was lost

A task is one batch of kvctx from L1's memory, without a copy, and completes in the session's reaper thread. Lookups are
answered by kvctx at once, so they complete within their submission. No call raises what kvctx had to say: a page that
cannot be stored, found or loaded is not stored, not found, not loaded, and LMCache computes it again.

Threads: any, for every method; _lock guards the tables of results and nothing is called with it held.
"""
from __future__ import annotations

import errno
import threading
from array import array
from concurrent.futures import Future
from functools import partial
from itertools import compress
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .._lib import CQE_FLAGS
from ..errors import error
from ..keys import Keys
from ..results import Results
from . import keys as _keys
from .keeper import Keeper
from .ledger import Ledger
from .link import Link, Params
from .locks import LEASE_S, Locks

logger = init_logger(__name__)

_NOT_WRITTEN = CQE_FLAGS["DEDUP"] | CQE_FLAGS["UNADMITTED"]


class _Tasks:
    """Results of one kind of task, until they are fetched, and the event fd that tells of them."""

    def __init__(self) -> None:
        self.event = create_event_notifier()
        self._lock = threading.Lock()
        self._results: Dict[int, Any] = {}
        self._next = 0
        self.in_flight = 0
        self._closed = False

    def begin(self) -> int:
        with self._lock:
            self._next += 1
            self.in_flight += 1
            return self._next

    def end(self, task: int, result: Any) -> None:
        with self._lock:
            self._results[task] = result
            self.in_flight -= 1
            if not self._closed:
                self.event.notify()

    def take(self, task: int) -> Any:
        """The result, once; None: not yet, or taken before."""
        with self._lock:
            return self._results.pop(task, None)

    def take_all(self) -> Dict[int, Any]:
        with self._lock:
            results, self._results = self._results, {}
            return results

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self.event.close()


def _lens(objects: Sequence[Any]) -> array:
    """Bytes of each object."""
    return array("I", [o.get_size() for o in objects])


def _bitmap(nr: int, ones: Optional[Sequence[int]] = None) -> Bitmap:
    """Of nr bits, with those at ones set; None: all."""
    if ones is None:
        return Bitmap(nr, nr)
    bitmap = Bitmap(nr)
    if ones:
        bitmap.batched_set(ones)
    return bitmap


class KvctxL2Adapter(L2AdapterInterface):
    """See the head of the module, and link.Params for what adapter_params may have.

    Raises ValueError for wrong parameters, kvctx.Error when the pool cannot be made or opened.
    """

    def __init__(self, params: Dict[str, Any], l1_memory_desc: Any = None) -> None:
        arena = (l1_memory_desc.ptr, l1_memory_desc.size) if l1_memory_desc is not None else None
        self._link = Link(Params.of(params), arena)
        info, usage = self._link.session.info, self._link.session.usage()
        super().__init__(max_capacity_bytes=usage.limit or info.capacity)
        self._locks = Locks(min(LEASE_S, info.lease_ms_max / 1000))
        self._ledger = Ledger()
        self._stores, self._lookups, self._loads = _Tasks(), _Tasks(), _Tasks()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("stored", "loaded", "corrupt", "failed", "copied", "evicted"), 0)
        self._closed = False
        if self._link.trouble:
            logger.warning("kvctx: %s", self._link.trouble)
        logger.info("kvctx: %s, %s, %d of %d bytes used", params["path"], info.backend, usage.bytes,
                    self._max_capacity_bytes)
        self._keeper = Keeper(self._link, self._locks, self._ledger, self._max_capacity_bytes, self._gone)

    # Event fds

    def get_store_event_fd(self) -> int:
        return self._stores.event.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._lookups.event.fileno()

    def get_load_event_fd(self) -> int:
        return self._loads.event.fileno()

    # Store

    def submit_store_task(self, keys: List[Any], objects: List[Any]) -> int:
        task = self._stores.begin()
        self._transfer("store", keys, objects, partial(self._store_done, task))
        return task

    def _store_done(self, task: int, keys: List[Any], pages: Keys, lens: array, result: Optional[Results]) -> None:
        if result is None:
            self._stores.end(task, L2StoreResult(False, 0))
            return
        new: Sequence[int] = range(len(keys))
        told: Sequence[int] = result.flags or [0] * len(keys)
        if not result.all_ok or any(flags & _NOT_WRITTEN for flags in told):
            new = [n for n, res in enumerate(result.data) if res > 0 and not told[n] & _NOT_WRITTEN]
        total = 0
        if new:
            names, sizes = _keys.names(pages), [lens[n] for n in new]
            stored, total = [keys[n] for n in new], sum(sizes)
            self._tell_gone(*self._ledger.add([names[n] for n in new], stored, sizes))
            self._tell(self._notify_keys_stored, stored, sizes)
        self._count("stored", len(new))
        if not result.all_ok:
            self._count("failed", len(keys) - result.ok)
            self._keeper.heard(f"store: {error(min(result.data))}")
        self._stores.end(task, L2StoreResult(result.all_ok, total))

    def pop_completed_store_tasks(self) -> Dict[int, L2StoreResult]:
        return self._stores.take_all()

    # Lookup and lock

    def submit_lookup_and_lock_task(self, keys: List[Any], group_layout_descs: Dict[int, Any]) -> int:
        task = self._lookups.begin()
        found = Bitmap(len(keys))
        try:
            pages = _keys.pack(keys)
            match = self._link.session.match(pages, lease=self._locks.lease_s) if keys else None
        except Exception as e:
            self._trouble("lookup", e)
        else:
            if match is not None and match.count:
                self._locks.add(match, pages)
                found = Bitmap(len(keys), match.prefix)
                if match.prefix < match.count:
                    found.batched_set(list(compress(range(len(keys)), match.lengths)))
        self._lookups.end(task, found)
        return task

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: List[Any]) -> None:
        try:
            self._locks.unlock(_keys.names(_keys.pack(keys)))
        except Exception as e:
            self._trouble("unlock", e)

    # Load

    def submit_load_task(self, keys: List[Any], objects: List[Any]) -> int:
        task = self._loads.begin()
        nr, fit = len(keys), ()  # type: int, Sequence[int]
        try:
            pages, lens = _keys.pack(keys), _lens(objects)
            fit = self._fitting(keys, pages, lens)
        except Exception as e:
            self._trouble("load", e)
        if not fit:
            self._loads.end(task, _bitmap(nr, ()))
            return task
        if len(fit) < nr:
            keys, objects = [keys[n] for n in fit], [objects[n] for n in fit]
            pages, lens = _keys.pack(keys), _lens(objects)
        self._transfer("load", keys, objects, partial(self._load_done, task, nr, fit), (pages, lens))
        return task

    def _fitting(self, keys: List[Any], pages: Keys, lens: array) -> Sequence[int]:
        """Which pages are as long as their objects.

        A page of another length was stored with another layout. It would be found for ever and never be of use, so it
        is dropped and makes room for the one that fits.
        """
        names = _keys.names(pages)
        lengths = self._locks.lengths(names)
        unknown = [n for n, length in enumerate(lengths) if not length]
        if unknown:
            told = self._link.session.query(Keys.from_buffer(b"".join([names[n] for n in unknown])))
            for n, length in zip(unknown, told):
                lengths[n] = length
        if lengths == list(lens):
            return range(len(keys))
        wrong = [n for n, length in enumerate(lengths) if length != lens[n]]
        other = [n for n in wrong if lengths[n] > 0]
        if other:
            logger.warning("kvctx: %d pages have another size than their objects, as after a change of the model's "
                           "layout; dropped", len(other))
            self.delete([keys[n] for n in other])
        return sorted(set(range(len(keys))).difference(wrong))

    def _load_done(self, task: int, nr: int, places: Sequence[int], keys: List[Any], pages: Keys, lens: array,
                   result: Optional[Results]) -> None:
        """places: where in the task's list of nr keys these are."""
        if result is None:
            self._loads.end(task, _bitmap(nr, ()))
            return
        good: Sequence[int] = range(len(keys))
        if not result.all_ok:
            good = [n for n, res in enumerate(result.data) if res == lens[n]]
            corrupt = [n for n, res in enumerate(result.data) if res == -errno.EBADMSG]
            if corrupt:
                logger.warning("kvctx: %d pages failed verification; they are dropped, and misses", len(corrupt))
                self._count("corrupt", len(corrupt))
                names = _keys.names(pages)
                self._gone([names[n] for n in corrupt])
        if good:
            self._tell(self._notify_keys_accessed, [keys[n] for n in good])
        self._count("loaded", len(good))
        self._loads.end(task, _bitmap(nr, None if len(good) == nr else [places[n] for n in good]))

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        return self._loads.take(task_id)

    # Eviction

    def delete(self, keys: List[Any]) -> None:
        if not keys:
            return
        deleted: Sequence[int] = [-errno.EIO] * len(keys)
        known: Dict[Any, int] = {}
        try:
            pages = _keys.pack(keys)
            # before they go, or the keeper would hear of it and tell it, too
            known = dict(zip(*self._ledger.remove(_keys.names(pages))))
            deleted = self._link.session.delete(pages)
        except Exception as e:
            self._trouble("delete", e)
        gone = [key for key, res in zip(keys, deleted) if res == 0 or key in known]
        self._tell_gone(gone, [known.get(key, 0) for key in gone])

    def _gone(self, names: Sequence[bytes], evicted: bool = False) -> None:
        """Pages went without being asked for; tell LMCache of those that it knows."""
        keys, sizes = self._ledger.remove(names)
        if evicted:
            self._count("evicted", len(keys))
        self._tell_gone(keys, sizes)

    def _tell_gone(self, keys: List[Any], sizes: List[int]) -> None:
        if keys:
            self._tell(self._notify_keys_deleted, keys, sizes)

    def get_usage(self) -> AdapterUsage:
        """Bytes of all the tenant's pages, also those of earlier and other processes; by cache_salt only this one's."""
        mine = super().get_usage()
        try:
            used = self._link.session.usage().bytes
        except Exception as e:
            self._trouble("usage", e)
            used = mine.total_bytes_used
        return AdapterUsage(total_bytes_used=used, total_capacity_bytes=self._max_capacity_bytes,
                            bytes_by_cache_salt=mine.bytes_by_cache_salt)

    # Status and end

    def report_status(self) -> Dict[str, Any]:
        link = self._link
        status: Dict[str, Any] = {
            "is_healthy": False, "type": type(self).__name__, "path": link.params.path,
            "backend": link.session.info.backend, "max_capacity_bytes": self._max_capacity_bytes,
            "l1_bytes_registered": link.registered, "l1_trouble": link.trouble, "sessions_reopened": link.mended,
            "locked_key_count": len(self._locks), "stores_in_flight": self._stores.in_flight,
            "loads_in_flight": self._loads.in_flight, "last_error": self._keeper.trouble,
        }
        with self._lock:
            status.update({f"{name}_object_count": n for name, n in self._counts.items() if name != "stored"})
            status["written_object_count"] = self._counts["stored"]
        try:
            usage = link.session.usage()
        except Exception as e:
            self._trouble("status", e)
            return status
        status.update(is_healthy=not self._closed and not link.lost, stored_object_count=usage.pages,
                      current_size_bytes=usage.bytes)
        return status

    def close(self) -> None:
        """Let operations in flight end, then leases and session; what they came to can be fetched still."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._keeper.close()
        self._locks.clear()
        self._link.close()
        for tasks in (self._stores, self._lookups, self._loads):
            tasks.close()

    # Helpers

    @staticmethod
    def _tell(notify: Callable[..., None], *what: Any) -> None:
        """Call LMCache's listeners. One that fails may not keep a task from its end."""
        try:
            notify(*what)
        except Exception:
            logger.exception("kvctx: a listener failed")

    def _transfer(self, what: str, keys: List[Any], objects: List[Any], done: Callable[..., None],
                  known: Optional[Tuple[Keys, array]] = None) -> None:
        """Begin to store or load; done(keys, pages, lens, results or None) is called in whatever thread ends it.

        known: pages and lens, where they were worked out before.
        """
        pages, lens = known or (Keys(), array("I"))
        try:
            if not known:
                pages, lens = _keys.pack(keys), _lens(objects)
            operation = self._submit(what, pages, array("Q", [o.data_ptr for o in objects]), lens)
        except Exception as e:
            self._trouble(what, e)
            self._count("failed", len(keys))
            done(keys, pages, lens, None)
            return
        operation.add_done_callback(partial(self._transferred, what, done, keys, objects, pages, lens))

    def _submit(self, what: str, pages: Keys, addrs: array, lens: array) -> Future:
        operation = getattr(self._link.session, f"submit_{what}_packed")(pages, addrs, lens)
        self._count("copied", sum(not self._link.pins(a, n) for a, n in zip(addrs, lens)))
        return operation

    def _transferred(self, what: str, done: Callable[..., None], keys: List[Any], objects: List[Any], pages: Keys,
                     lens: array, operation: Future) -> None:
        """An operation is complete; objects are held until now, as their memory has to stay."""
        result = None
        try:
            result = operation.result()
            self._link.failed_pages(result)
        except Exception as e:
            self._trouble(what, e)
            self._count("failed", len(keys))
        done(keys, pages, lens, result)

    def _count(self, name: str, n: int) -> None:
        if n:
            with self._lock:
                self._counts[name] += n

    def _trouble(self, what: str, e: BaseException) -> None:
        self._link.failed(e)
        self._keeper.heard(f"{what}: {e}")
