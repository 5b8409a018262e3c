# SPDX-License-Identifier: LGPL-2.1-or-later
"""What kvctx.sglang touches of SGLang 0.5.23: the interface of storages, host pools, and tensors, small.

install() puts them where SGLang's would be imported from, before kvctx.sglang is. Names and arguments are SGLang's,
what they do is as much as a test can see. Host pools have their memory in an anonymous mapping. What SGLang itself does
with the storage is seen by tests/engines/sglang.
"""
import abc
import ctypes
import enum
import mmap
import os
import sys
import types
from dataclasses import dataclass, field
from typing import Any, List, Optional

DTYPE_BYTES = 2


class PoolName(str, enum.Enum):
    KV = "kv"
    MAMBA = "mamba"
    SWA = "swa"
    DRAFT = "draft"

    def __str__(self):
        return self.value


class PoolHitPolicy(str, enum.Enum):
    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


@dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Any = None
    device_indices: Any = None
    keys: Optional[List[str]] = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES
    nodes_to_load: Optional[List[Any]] = None
    indices_from_pool: Optional[PoolName] = None
    block_pages: int = 0
    group_pages: int = 0


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict
    restorable_prefix_pages: Optional[List[int]] = None

    @classmethod
    def empty(cls):
        return cls(0, {})


@dataclass
class HiCacheStorageExtraInfo:
    prefix_keys: Optional[List[str]] = None
    extra_info: Optional[dict] = None


@dataclass
class HiCacheStorageConfig:
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    is_mla_model: bool = False
    enable_storage_metrics: bool = False
    is_page_first_layout: bool = False
    model_name: Optional[str] = "model"
    tp_lcm_size: Optional[int] = None
    should_split_heads: bool = False
    dp_rank: int = 0
    extra_config: Optional[dict] = None
    dcp_size: int = 1
    dcp_rank: int = 0


class HiCacheStorage(abc.ABC):
    def register_mem_pool_host(self, mem_pool_host):
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        self.registered_pools[host_pool_name] = host_pool

    @abc.abstractmethod
    def get(self, key, target_location=None, target_sizes=None): ...

    @abc.abstractmethod
    def batch_get(self, keys, target_locations=None, target_sizes=None): ...

    @abc.abstractmethod
    def set(self, key, value=None, target_location=None, target_sizes=None): ...

    @abc.abstractmethod
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None): ...

    @abc.abstractmethod
    def exists(self, key): ...


@dataclass
class StorageMetrics:
    prefetch_pgs: List[int] = field(default_factory=list)
    backup_pgs: List[int] = field(default_factory=list)
    prefetch_bandwidth: List[float] = field(default_factory=list)
    backup_bandwidth: List[float] = field(default_factory=list)


class Tensor:
    """Contiguous bytes."""

    def __init__(self, nbytes):
        self.memory = mmap.mmap(-1, max(nbytes, 1))
        self.nbytes = nbytes
        self._at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def data_ptr(self):
        return self._at

    def numel(self):
        return self.nbytes // DTYPE_BYTES

    def element_size(self):
        return DTYPE_BYTES

    def is_contiguous(self):
        return True

    def contiguous(self):
        return self

    @property
    def bytes(self):
        return bytes(self.memory[:self.nbytes])

    @bytes.setter
    def bytes(self, value):
        self.memory[:len(value)] = value


class HostKVCache:
    """A host pool: LAYERS layers of K and V, PIECE bytes a page, layer and side, in one of SGLang's layouts."""
    LAYERS, PIECE, page_size = 3, 2048, 4

    def __init__(self, layout="page_first", pages=160):
        self.layout, self.dtype, self.pages = layout, "bfloat16", pages
        self.start_layer, self.end_layer = 0, self.LAYERS - 1
        self.kv_buffer = Tensor(2 * self.LAYERS * self.PIECE * pages)

    def _page(self, n):
        """(offset, bytes) of the pieces of page n."""
        side = self.LAYERS * self.PIECE * self.pages
        if self.layout == "layer_first":
            return [(s * side + (layer * self.pages + n) * self.PIECE, self.PIECE)
                    for layer in range(self.LAYERS) for s in (0, 1)]
        return [(s * side + n * self.LAYERS * self.PIECE, self.LAYERS * self.PIECE) for s in (0, 1)]

    def get_page_buffer_meta(self, indices):
        indices = indices.tolist()
        assert len(indices) % self.page_size == 0
        pieces = [p for i in indices[::self.page_size] for p in self._page(i // self.page_size)]
        return [self.kv_buffer.data_ptr() + at for at, _ in pieces], [size for _, size in pieces]

    def page(self, n):
        return b"".join(self.kv_buffer.memory[at:at + size] for at, size in self._page(n))

    def fill(self):
        self.kv_buffer.bytes = os.urandom(self.kv_buffer.nbytes)
        return [self.page(n) for n in range(self.pages)]

    def wipe(self):
        self.kv_buffer.bytes = bytes(self.kv_buffer.nbytes)

    # pages that are copied, in another order
    def get_data_page(self, index, flat=True):
        page = Tensor(2 * self.LAYERS * self.PIECE)
        page.bytes = self.page(index // self.page_size)[::-1]
        return page

    def get_dummy_flat_data_page(self):
        return Tensor(2 * self.LAYERS * self.PIECE)

    def set_from_flat_data_page(self, index, data_page):
        data, start = data_page.bytes[::-1], 0
        for at, size in self._page(index // self.page_size):
            self.kv_buffer.memory[at:at + size] = data[start:start + size]
            start += size


class MLATokenToKVPoolHost(HostKVCache):
    pass


class WithoutPieces(HostKVCache):
    def get_page_buffer_meta(self, indices):
        raise NotImplementedError("whole pages only")


class LogicalHostPool:
    """Indices without bytes, of a model all of whose state is in other host pools."""
    page_size, kv_buffer, layout = HostKVCache.page_size, None, "layer_first"

    def get_page_buffer_meta(self, indices):
        return None


class Indices(list):
    def tolist(self):
        return list(self)


def indices(first, count):
    """Of pages of a host pool."""
    return Indices(range(first * HostKVCache.page_size, (first + count) * HostKVCache.page_size))


def torch():
    """What is asked of the package of that name."""
    made = types.ModuleType("torch")
    made.arange = lambda n: Indices(range(n))
    return made


class Config:
    """What runtime_context tells of the server's arguments; with nothing set it was not published."""
    arguments: dict = {}

    @classmethod
    def get(cls):
        if not cls.arguments:
            raise ValueError("config namespace 'model' not published")
        return types.SimpleNamespace(**cls.arguments)


_MODULES = {
    "sglang": {}, "sglang.srt": {}, "sglang.srt.mem_cache": {}, "sglang.srt.observability": {},
    "sglang.srt.mem_cache.hicache_storage": {
        "HiCacheStorage": HiCacheStorage, "PoolName": PoolName, "PoolHitPolicy": PoolHitPolicy,
        "PoolTransfer": PoolTransfer, "PoolTransferResult": PoolTransferResult,
        "HiCacheStorageExtraInfo": HiCacheStorageExtraInfo, "HiCacheStorageConfig": HiCacheStorageConfig},
    "sglang.srt.runtime_context": {"get_model": Config.get, "get_spec": Config.get},
    "sglang.srt.observability.metrics_collector": {"StorageMetrics": StorageMetrics},
}


def install():
    for name, names in _MODULES.items():
        made = sys.modules[name] = types.ModuleType(name)
        vars(made).update(names, __path__=[])
