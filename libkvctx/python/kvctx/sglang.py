# SPDX-License-Identifier: LGPL-2.1-or-later
"""SGLang's hierarchical cache on kvctx: a storage for --hicache-storage-backend dynamic.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name": "kvctx",
    "module_path": "kvctx.sglang", "class_name": "KvctxHiCache", "interface_v1": 1, "path": "/run/kvctx/kv0/default"}'

Vocabulary. A *host pool* is SGLang's cache in host memory: that of KV, and, for hybrid models, one for each other kind
of state. A page of a host pool is one page of kvctx, whose pieces are what get_page_buffer_meta() tells: 2 a page
(page_first, page_first_direct, page_head), or 2 a layer (layer_first). The memory of a host pool is pinned once, and
pages move between it and the medium without a copy. A *flat* page is one that SGLang has copied into a tensor of its
own: that of a host pool that cannot tell its pieces, or of a configuration without interface_v1.

Names. A page's digest is SGLang's hash; the qualifier stands for what else makes its bytes: the host pool, its shape,
the rank where ranks hold different bytes, and the epoch. The keyspace stands for model, layout, dtype and parallel
shape. So a page of another shape is never found.

Epoch. clear() cannot delete pages that it does not know. It changes the epoch instead, 32 bytes in a page that all
servers and ranks read now and then; pages of the former one are never found again and leave with time. Ranks agree
without talking: the next epoch follows from the last, and who finds one that it has not left yet adopts it. When the
page itself was evicted while nobody ran, a new one begins: the cache is empty then, never stale.

Errors. Calls of SGLang's threads raise nothing, since that would end them: what went wrong is a page that is not there,
or was not stored. It is logged the first time for each kind, and counted (.errors). When kvctxd has gone, a session is
opened anew.

Threads. SGLang calls from a prefetch and a backup thread, and from the scheduler. Any number may.
"""
from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

import kvctx

from ._sglang import HostPool, Settings, contiguous, depth_of, digest, leading, name_of, span, windows

logger = logging.getLogger(__name__)

KV = PoolName.KV.value
REOPEN_SECONDS = 1.0  # between attempts to open a session anew
EPOCH = kvctx.Keys(["sglang epoch"])
EPOCH_BYTES = 32
EPOCH_LEASE_SECONDS = 60.0  # so long the epoch's page is kept, renewed by lookups


def _quiet(fallback: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method of the interface that raises nothing: fallback(its arguments) is returned when it would."""
    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: KvctxHiCache, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # whatever it is: the thread that called has to go on
                self._failed(method.__name__, error)
                return fallback(*args, **kwargs)
        return call
    return wrap


def kv_arguments() -> Dict[str, str]:
    """What the server was told of the dtype of KV, resolved: --kv-cache-dtype and the like, and which FP8 it takes.

    Empty where this process has no server's configuration.
    """
    try:
        from sglang.srt.runtime_context import get_model, get_spec
        told = {"kv_cache_dtype": get_model().kv_cache_dtype,
                "draft": getattr(get_spec(), "speculative_draft_kv_cache_dtype", None),
                # fp8_e4m3 is another type on some AMD GPUs; the module that chooses is loaded where a model is
                "fp8": getattr(sys.modules.get("sglang.srt.mem_cache.kv_cache_dtype"), "fp8_dtype", None)}
    except Exception as why:  # another version of SGLang, or no server: that is no reason not to start
        logger.info("kvctx: SGLang does not tell its arguments: %s", why)
        return {}
    return {what: str(value) for what, value in told.items() if value is not None}


def _none_of_v2(transfers: Sequence[Any], *_: Any, **__: Any) -> Dict[Any, List[bool]]:
    return {t.name: [False] * len(t.keys or []) for t in transfers}


class KvctxHiCache(HiCacheStorage):
    """The storage. config: HiCacheStorageConfig, with our Settings in its extra_config; ignored: of the factory.

    Raises at the start only: ValueError for the extra config, kvctx.Error when the pool cannot be made or opened.
    """

    def __init__(self, config: Any, ignored: Any = None) -> None:
        extra = config.extra_config or {}
        self.settings = Settings.of(extra)
        self.config = config
        self.errors: Counter = Counter()  # what went wrong, and how often
        self.counts: Counter = Counter()  # pages: stored, unadmitted, loaded, missed
        self.registered_pools: Dict[Any, Any] = {}
        self._flat = not extra.get("interface_v1")
        self._pools: Dict[str, HostPool] = {}
        self._qualifiers: Dict[Tuple[str, bool], int] = {}
        self._lock = threading.RLock()  # guards what follows, and changes of the two above
        self._session: Optional[kvctx.Session] = None
        self._pinned: Dict[int, int] = {}  # bytes by address, of the session
        self._opened = 0.0  # when a session was last tried
        self._epoch = b""
        self._former: Set[bytes] = set()  # epochs that were left
        self._epoch_kept = 0.0
        self._metrics: Dict[str, List[float]] = {}
        if self.settings.max_bytes:
            kvctx.create_pool(os.path.dirname(self.settings.path), self.settings.max_bytes)

    # What went wrong

    def _failed(self, what: str, error: BaseException, pages: int = 1) -> None:
        """Count it, and tell of the first of its kind."""
        code = getattr(error, "errno", None)
        kind = f"{what}: {type(error).__name__}" + (f" {code}" if code else "")
        with self._lock:
            self.errors[kind] += pages
            first = self.errors[kind] == pages
        if first:
            logger.error("kvctx: %s failed, further failures of this kind are only counted: %s", what, error,
                         exc_info=None if isinstance(error, kvctx.Error) else error)

    def _count(self, what: str, pages: int) -> None:
        with self._lock:
            self.counts[what] += pages

    def _tell(self, what: str, results: Sequence[int], good: Sequence[bool]) -> None:
        """Count pages that failed, by reason. A page that is not there is none."""
        for res in {r for r, ok in zip(results, good) if not ok}:
            pages = sum(r == res for r in results)
            if res == 0:
                self._count("unadmitted", pages)
            elif res == -errno.ENOENT:
                self._count("missed", pages)
            elif res > 0:
                self._failed(what, ValueError(f"a page has {res} bytes, another number was expected"), pages)
            else:
                self._failed(what, kvctx.errors.error(res, self.settings.path), pages)

    # The session

    def _open(self) -> kvctx.Session:
        """A session with all memory pinned, and the epoch known."""
        anchor, c = self._pools[KV], self.config
        text = "|".join(str(part) for part in (
            "sglang 1", self.settings.keyspace, c.model_name, c.is_mla_model, c.pp_size, c.attn_cp_size, anchor.shape))
        s = kvctx.Session(self.settings.path, keyspace=text, entries=self.settings.entries,
                          timeout=self.settings.timeout)
        try:
            self._pinned = {}
            for pool in self._pools.values():
                self._pin(s, pool)
            self._agree(s)
        except Exception:
            s.close()
            raise
        return s

    def _pin(self, s: kvctx.Session, pool: HostPool) -> None:
        for address, size in pool.spans():
            if self._pinned.get(address, 0) >= size:
                continue
            try:
                s.register((address, size))
                self._pinned[address] = size
            except kvctx.Error as error:
                self._failed(f"pinning {size} bytes of the host pool {pool.name} (its pages are copied)", error)

    def _use(self) -> kvctx.Session:
        """The session; opened anew where it was lost. Raises kvctx.Gone until that succeeds."""
        s = self._session
        if s is not None:
            return s
        with self._lock:
            if self._session is None:
                if KV not in self._pools:
                    raise RuntimeError("no host pool was registered")
                if time.monotonic() < self._opened + REOPEN_SECONDS:
                    raise kvctx.Gone(errno.ENODEV, f"{self.settings.path}: not served")
                self._opened = time.monotonic()
                self._session = self._open()
            return self._session

    @contextmanager
    def _serving(self) -> Iterator[kvctx.Session]:
        """The session, for one call."""
        s = self._use()
        try:
            yield s
        except kvctx.Gone:
            self._lost(s)
            raise

    def _lost(self, s: kvctx.Session) -> None:
        """Somebody got ENODEV from this session, once a call: close it, unless that was a member's alone."""
        if self._session is not s or not s.gone():
            return
        with self._lock:
            if self._session is not s:
                return
            self._session = None
            self._opened = time.monotonic()
        s.close()

    # Names

    def _rank(self, pool: HostPool) -> str:
        c = self.config
        own = f"tp{c.tp_rank}/{c.tp_size}" if pool.sharded else "all"
        if getattr(c, "dcp_size", 1) > 1:  # earlier versions of SGLang have none
            own += f" dcp{c.dcp_rank}/{c.dcp_size}"
        return f"{own} pp{c.pp_rank}/{c.pp_size} cp{c.attn_cp_rank}/{c.attn_cp_size}"

    def _set_epoch(self, epoch: bytes) -> None:
        """All names are of this epoch from now on. Raises ValueError for one that was left."""
        with self._lock:
            if epoch in self._former:
                raise ValueError("an epoch that was left comes back")
            if epoch != self._epoch:
                self._former.add(self._epoch)
            self._epoch = epoch
            self._qualifiers = {
                (name, flat): int.from_bytes(hashlib.sha256(
                    "|".join((pool.shape, self._rank(pool), str(flat), epoch.hex())).encode()).digest()[:8], "little")
                for name, pool in self._pools.items() for flat in (False, True)}

    def _keys(self, pool: HostPool, names: Sequence[str], flat: bool) -> kvctx.Keys:
        return kvctx.Keys.of_digests([digest(n) for n in names], self._qualifiers[pool.name, flat])

    # The epoch

    @staticmethod
    def _read_epoch(s: kvctx.Session) -> Optional[bytes]:
        """The epoch that is stored; None: there is none, or none that can be read, which a store replaces.

        Raises kvctx.Error where there may be one.
        """
        room = bytearray(EPOCH_BYTES)
        found = s.load(EPOCH, [room])
        if found[0] in (-errno.ENOENT, -errno.EBADMSG, -errno.ENODEV):
            return None
        found.check()
        return bytes(room)

    def _agree(self, s: kvctx.Session) -> bool:
        """Have one epoch with all who share the pool: ours where theirs is one that we have left, else theirs.

        Whether it is stored. Raises kvctx.Error when it is not known what is, or that is one that we have left.
        """
        mine = os.urandom(EPOCH_BYTES)
        found = self._read_epoch(s)
        for _ in range(2):  # another rank may be first, also with one that we have left
            if found is not None and found not in self._former:
                break
            s.store(EPOCH, [self._epoch or mine], replace=found is not None).check()
            found = self._read_epoch(s)
        if found in self._former:
            raise kvctx.Error(errno.EAGAIN, f"{self.settings.path}: others are at an epoch that was left")
        epoch = found or self._epoch or mine
        if epoch != self._epoch:
            self._set_epoch(epoch)
        return found is not None

    def _keep_epoch(self, s: kvctx.Session) -> None:
        """From time to time, see whether others have gone on, and keep the page from eviction."""
        now = time.monotonic()
        if now < self._epoch_kept + EPOCH_LEASE_SECONDS / 3:
            return
        self._epoch_kept = now
        self._agree(s)
        s.match(EPOCH, lease=min(EPOCH_LEASE_SECONDS, s.info.lease_ms_max / 1000))

    @_quiet(lambda: False)
    def clear(self) -> bool:
        """All pages of this model and shape are gone, for all who share them. Ranks may be told one after another.

        False: others do not know of it yet; this server has forgotten them nevertheless.
        """
        # without one there is nothing that the next follows from: another's first would be the same
        epoch = hashlib.sha256(self._epoch).digest() if self._epoch else os.urandom(EPOCH_BYTES)
        while epoch in self._former:
            epoch = hashlib.sha256(epoch).digest()
        self._set_epoch(epoch)
        self._epoch_kept = 0.0  # the next lookup tells others if this does not
        with self._serving() as s:
            if not self._agree(s):
                raise kvctx.Error(errno.EAGAIN, f"{self.settings.path}: the next epoch was not stored")
            s.flush()
        return True

    # Host pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """SGLang's: the host pool of KV. Opens the session; raises kvctx.Error when that fails."""
        super().register_mem_pool_host(mem_pool_host)
        with self._lock:
            old, self._session = self._session, None
        if old is not None:
            old.close()
        with self._lock:
            self._pools[KV] = HostPool(KV, mem_pool_host, self.config.is_mla_model, kv_arguments())
            try:
                self._session = self._open()
            except kvctx.Busy as error:
                raise kvctx.Busy(error.errno, f"{error}; several ranks or servers share a pool through kvctxd or the "
                                 "module, not in files") from error

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """SGLang's: a host pool beside that of KV."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = name_of(host_pool_name)
        if name == KV:
            return
        with self._lock:
            self._pools[name] = HostPool(name, host_pool, self.config.is_mla_model, kv_arguments())
            if self._session is not None:
                self._pin(self._session, self._pools[name])
                self._set_epoch(self._epoch)

    # Moving pages

    def _move(self, store: bool, pool: HostPool, names: Sequence[str], indices: Any, extra_info: Any) -> List[bool]:
        """Store or load pages of a host pool: whether each succeeded."""
        if not names or pool.logical:
            return [True] * len(names)
        if pool.flat:
            return self._move_flat(store, pool, names, indices)
        addrs, lens, pieces, size = pool.pieces(indices, len(names))
        began = time.perf_counter()
        with self._serving() as s:
            keys = self._keys(pool, names, False)
            if store:
                results = s.store_packed(keys, addrs, lens, pieces, depth=depth_of(extra_info))
            else:
                results = s.load_packed(keys, addrs, lens, pieces)
        good = self._judge(s, store, results, [size] * len(names))
        self._measure(store, len(names), size * sum(good), time.perf_counter() - began)
        return good

    def _move_flat(self, store: bool, pool: HostPool, names: Sequence[str], indices: Any) -> List[bool]:
        """The same of pages that SGLang copies, one by one."""
        firsts = [int(indices[i * pool.tokens]) for i in range(len(names))]
        if store:
            return self._move_tensors(True, pool, names, [pool.host.get_data_page(i, flat=True) for i in firsts])
        pages = [pool.host.get_dummy_flat_data_page() for _ in names]
        good = self._move_tensors(False, pool, names, pages)
        for ok, first, page in zip(good, firsts, pages):
            if ok:
                pool.host.set_from_flat_data_page(first, page)
        return good

    def _move_tensors(self, store: bool, pool: HostPool, names: Sequence[str], tensors: Sequence[Any]) -> List[bool]:
        """Store or load flat pages: each in a tensor of its own."""
        spans = [span(t) for t in tensors]
        with self._serving() as s:
            keys = self._keys(pool, names, True)
            results = s.store(keys, spans) if store else s.load(keys, spans)
        return self._judge(s, store, results, [size for _, size in spans])

    def _judge(self, s: kvctx.Session, store: bool, results: Sequence[int], sizes: Sequence[int]) -> List[bool]:
        good = [r == size for r, size in zip(results, sizes)]
        self._count("stored" if store else "loaded", sum(good))
        if not all(good):
            self._tell("store" if store else "load", results, good)
            if -errno.ENODEV in results:
                self._lost(s)
        return good

    def _anchor(self) -> HostPool:
        return self._pools[KV]

    def _pool(self, name: Any) -> HostPool:
        return self._pools[name_of(name)]

    @_quiet(lambda keys, *_, **__: [False] * len(keys))
    def batch_get_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        """SGLang's: load pages into the host pool of KV."""
        return self._move(False, self._anchor(), keys, host_indices, extra_info)

    @_quiet(lambda keys, *_, **__: [False] * len(keys))
    def batch_set_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        """SGLang's: store pages of the host pool of KV."""
        return self._move(True, self._anchor(), keys, host_indices, extra_info)

    @_quiet(_none_of_v2)
    def batch_get_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[Any, List[bool]]:
        """SGLang's: load pages into several host pools. One that fails does not keep the others from it."""
        return {t.name: self._one_of_v2(False, t, extra_info) for t in transfers}

    @_quiet(_none_of_v2)
    def batch_set_v2(self, transfers: List[Any], extra_info: Any = None) -> Dict[Any, List[bool]]:
        """SGLang's: store pages of several host pools."""
        return {t.name: self._one_of_v2(True, t, extra_info) for t in transfers}

    def _one_of_v2(self, store: bool, transfer: Any, extra_info: Any) -> List[bool]:
        keys = transfer.keys or []
        try:
            return self._move(store, self._pool(transfer.name), keys, transfer.host_indices, extra_info)
        except Exception as error:  # the other host pools are not concerned
            self._failed(f"{'store' if store else 'load'} of {name_of(transfer.name)}", error)
            return [False] * len(keys)

    # Lookup

    def _present(self, pool: HostPool, names: Sequence[str], all: bool = True) -> Sequence[bool]:
        """Whether each page is here; all=False: False for those behind the first that is not."""
        if not names:
            return []
        flat = pool.flat or (self._flat and pool.name == KV)
        with self._serving() as s:
            self._keep_epoch(s)
            return s.match(self._keys(pool, names, flat), all=all).present

    @_quiet(lambda *_, **__: 0)
    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        """SGLang's: leading pages of KV that are here."""
        pool = self._anchor()
        return 0 if pool.logical else leading(self._present(pool, keys, all=False))

    def exists(self, key: str) -> bool:
        """SGLang's: whether a page of KV is here."""
        return self.batch_exists([key]) == 1

    @_quiet(lambda *_, **__: PoolTransferResult.empty())
    def batch_exists_v2(self, keys: List[str], pool_transfers: Optional[List[Any]] = None,
                        extra_info: Any = None) -> PoolTransferResult:
        """SGLang's: the longest prefix that all host pools can serve, by the policy of each, and every such prefix."""
        anchor = self._anchor()
        pages = len(keys) if anchor.logical else leading(self._present(anchor, keys, all=False))
        hits: Dict[Any, int] = {PoolName.KV: pages} if pages else {}
        restorable = set(range(1, pages + 1))
        for transfer in pool_transfers or ():
            if not restorable:
                break
            served, boundary = self._served(transfer, keys[:pages])
            if boundary:
                hits[transfer.name] = boundary
            if served is not None:
                restorable &= served
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def _served(self, transfer: Any, keys: Sequence[str]) -> Tuple[Optional[set], int]:
        """Lengths of prefixes that a host pool can serve (None: it forbids none), and the longest."""
        pool = self._pool(transfer.name)
        if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
            present, group = self._present(pool, transfer.keys or []), max(1, transfer.group_pages)
            return None, leading(present) // group * transfer.block_pages
        present = self._present(pool, keys)
        if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
            lengths = windows(present, max(1, len(transfer.keys or ())))
        else:
            lengths = list(range(1, leading(present) + 1))
        return set(lengths), max(lengths, default=0)

    # Without interface_v1: pages that SGLang has copied into tensors

    @_quiet(lambda *_, **__: None)
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """SGLang's: load one flat page into target_location; that, or None."""
        return self.batch_get([key], [target_location])[0]

    @_quiet(lambda keys, *_, **__: [None] * len(keys))
    def batch_get(self, keys: List[str], target_locations: Any = None, target_sizes: Any = None) -> List[Any]:
        """SGLang's: load flat pages into target_locations, contiguous tensors; each of them, or None."""
        good = self._move_tensors(False, self._anchor(), keys, [contiguous(t) for t in target_locations])
        return [t if ok else None for t, ok in zip(target_locations, good)]

    @_quiet(lambda *_, **__: False)
    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """SGLang's: store one flat page, a tensor."""
        return self.batch_set([key], [value])

    @_quiet(lambda *_, **__: False)
    def batch_set(self, keys: List[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        """SGLang's: store flat pages, tensors; whether all of them were."""
        return all(self._move_tensors(True, self._anchor(), keys, [v.contiguous() for v in values]))

    # Figures, and the end

    def _measure(self, store: bool, pages: int, size: int, seconds: float) -> None:
        if not self.config.enable_storage_metrics:
            return
        what = "backup" if store else "prefetch"
        with self._lock:
            self._metrics.setdefault(f"{what}_pgs", []).append(pages)
            self._metrics.setdefault(f"{what}_bandwidth", []).append(size / seconds / (1 << 30))

    @_quiet(lambda: None)
    def get_stats(self) -> Any:
        """SGLang's: pages and GiB/s of each call since the last time; None where SGLang does not want them."""
        if not self.config.enable_storage_metrics:
            return None
        from sglang.srt.observability.metrics_collector import StorageMetrics
        with self._lock:
            taken, self._metrics = self._metrics, {}
        return StorageMetrics(**taken)

    @_quiet(lambda: None)
    def close(self) -> None:
        """SGLang's: the storage is detached. Waits for operations in flight."""
        with self._lock:
            s, self._session = self._session, None
            self._pools = {}
        if s is not None:
            s.close()
        if self.errors:
            logger.warning("kvctx: failures until the end: %s", dict(self.errors))
