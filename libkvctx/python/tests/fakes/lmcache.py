# SPDX-License-Identifier: LGPL-2.1-or-later
"""As much of LMCache 0.5.6 as kvctx.lmcache uses, for tests without it; install() puts it where imports find it.

Written from the contract: names, arguments and what callers rely on are LMCache's, the bodies are the shortest that
keep it. What real LMCache does with the adapter is seen by tests/engines/lmcache.
"""
import logging
import os
import sys
import types
from dataclasses import dataclass, field


class Bitmap:
    def __init__(self, size, prefix_bits=0):
        self._bits = [n < prefix_bits for n in range(size)]

    def batched_set(self, indices):
        for n in indices:
            self._bits[n] = True

    def test(self, index):
        return self._bits[index]

    def popcount(self):
        return sum(self._bits)

    def get_indices_list(self):
        return [n for n, bit in enumerate(self._bits) if bit]

    def __len__(self):
        return len(self._bits)


class L2StoreResult(int):
    def __new__(cls, success, bytes_transferred):
        return super().__new__(cls, bytes_transferred if success else -1)

    def is_successful(self):
        return self >= 0

    def bytes_transferred(self):
        return max(0, int(self))


@dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""


@dataclass(frozen=True)
class L1MemoryDesc:
    ptr: int
    size: int
    align_bytes: int
    stable_registration_size: int = None


@dataclass(frozen=True)
class AdapterUsage:
    total_bytes_used: int
    total_capacity_bytes: int
    bytes_by_cache_salt: dict = field(default_factory=dict)


class L2AdapterInterface:
    """The accounts and the listeners of LMCache's base class; sizes below zero would be the adapter's mistake."""

    def __init__(self, max_capacity_bytes=0):
        self._max_capacity_bytes = max_capacity_bytes
        self._listeners, self._salts = [], {}

    def register_listener(self, listener):
        self._listeners.append(listener)

    def _notify_keys_stored(self, keys, sizes):
        for key, size in zip(keys, sizes):
            self._salts[key.cache_salt] = self._salts.get(key.cache_salt, 0) + size
        for listener in self._listeners:
            listener.on_l2_keys_stored(keys, sizes)

    def _notify_keys_accessed(self, keys):
        for listener in self._listeners:
            listener.on_l2_keys_accessed(keys)

    def _notify_keys_deleted(self, keys, sizes):
        for key, size in zip(keys, sizes):
            self._salts[key.cache_salt] = self._salts.get(key.cache_salt, 0) - size
            assert self._salts[key.cache_salt] >= 0, "more deleted than stored"
        for listener in self._listeners:
            listener.on_l2_keys_deleted(keys)

    def get_usage(self):
        salts = {salt: n for salt, n in self._salts.items() if n}
        return AdapterUsage(sum(salts.values()), self._max_capacity_bytes, salts)


class EventNotifier:
    def __init__(self):
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)

    def fileno(self):
        return self._read

    def notify(self):
        os.write(self._write, b"x")

    def close(self):
        os.close(self._read)
        os.close(self._write)


class MemoryObj:
    """length bytes at an address."""

    def __init__(self, address, length):
        self.data_ptr, self._length = address, length

    def get_size(self):
        return self._length


_MODULES = {
    "lmcache": {},
    "lmcache.lmcache_native": {"Bitmap": Bitmap},
    "lmcache.logging": {"init_logger": logging.getLogger},
    "lmcache.v1": {},
    "lmcache.v1.platform": {"create_event_notifier": EventNotifier},
    "lmcache.v1.distributed": {},
    "lmcache.v1.distributed.internal_api": {"L2StoreResult": L2StoreResult},
    "lmcache.v1.distributed.l2_adapters": {},
    "lmcache.v1.distributed.l2_adapters.base": {"AdapterUsage": AdapterUsage,
                                                "L2AdapterInterface": L2AdapterInterface},
}


def install():
    """Real LMCache is not touched where it is imported already."""
    for name, names in _MODULES.items():
        if name not in sys.modules:
            module = sys.modules[name] = types.ModuleType(name)
            vars(module).update(names, __path__=[])
