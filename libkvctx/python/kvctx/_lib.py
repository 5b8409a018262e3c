# SPDX-License-Identifier: LGPL-2.1-or-later
"""libkvctx through ctypes: finding it, its structures, its prototypes.

Nothing else of the package knows how a structure of <kvctx.h> or <linux/kvctx.h> is laid out. Every call of ``lib``
releases the GIL while it runs. Results are as in C: not negative, or -errno; errors.py turns them into exceptions.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import (POINTER, Structure, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint8, c_uint16,
                    c_uint32, c_uint64, c_void_p)

OP_STORE, OP_LOAD, OP_DELETE, OP_QUERY, OP_FLUSH, OP_MATCH = 1, 2, 3, 4, 8, 11
OP_NOWAIT, OP_NO_VERIFY, OP_NO_SLOT, OP_REPLACE = 1, 2, 4, 8
OP_MATCH_LEASE, OP_MATCH_PREFETCH, OP_MATCH_ALL = 1 << 8, 2 << 8, 4 << 8
CQE_FLAGS = {"VERIFIED": 1, "P2P": 2, "STAGED": 4, "DEDUP": 8, "FROM_DRAM": 16, "PENDING": 32, "UNADMITTED": 64}
FEATURES = {"VERIFY": 1, "P2P": 2, "URING": 4, "SLOTS": 8, "EVENTS": 16, "PROCESS": 1 << 32, "IOTHREADS": 1 << 33,
            "UNREGISTERED": 1 << 34}
EVENTS = {"STORED": 1, "EVICTED": 2, "DELETED": 3, "DROPPED": 4, "MEMBER_LOST": 5}
KEY_BYTES = 40
BATCH_RUN_MAX = 65536
POOL_DROP = 1
BATCH_STAGE = 1
TIMEOUT_NONE = (1 << 64) - 1


class Params(Structure):
    """struct kvctx_params"""
    _fields_ = [("size", c_size_t), ("flags", c_uint64), ("keyspace", c_uint8 * 16), ("arena_bytes", c_uint64),
                ("cq_entries", c_uint32), ("eventfd", c_int), ("timeout_ns", c_uint64), ("slot_bytes", c_uint32),
                ("nr_slots", c_uint32)]


class PoolParams(Structure):
    """struct kvctx_pool_params"""
    _fields_ = [("size", c_size_t), ("flags", c_uint64), ("bytes", c_uint64), ("segment_bytes", c_uint64),
                ("chunk_bytes", c_uint32), ("reserved", c_uint32)]


class Info(Structure):
    """struct kvctx_info"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("abi_version", c_uint32), ("session_flags", c_uint32),
                ("features", c_uint64), ("op_mask", c_uint64), ("op_flags", c_uint64), ("capacity", c_uint64),
                ("page_len_max", c_uint64), ("arena_max", c_uint64), ("segment_size", c_uint64),
                ("chunk_size", c_uint32), ("block_size", c_uint32), ("members", c_uint32), ("segs_max", c_uint32),
                ("batch_max", c_uint32), ("cq_max", c_uint32), ("match_max", c_uint32), ("lease_ms_max", c_uint32),
                ("leases_max", c_uint32), ("mem_max", c_uint32), ("dma_align", c_uint32), ("tenant_flags", c_uint32),
                ("pool_uuid", c_uint8 * 16), ("pool", c_char * 32), ("tenant", c_char * 32),
                ("slots_max", c_uint32), ("slot_bytes_max", c_uint32), ("tenant_pages", c_uint64),
                ("tenant_bytes", c_uint64), ("tenant_limit", c_uint64), ("events_max", c_uint32),
                ("reserved", c_uint32)]


class Key(Structure):
    """struct kvctx_key"""
    _fields_ = [("digest", c_uint8 * 32), ("qualifier", c_uint64)]


class Seg(Structure):
    """struct kvctx_seg"""
    _fields_ = [("offset", c_uint64), ("mem", c_uint32), ("length", c_uint32)]


class Sqe(Structure):
    """struct kvctx_sqe"""
    _fields_ = [("opcode", c_uint8), ("prio", c_uint8), ("nr_segs", c_uint16), ("flags", c_uint32),
                ("user_data", c_uint64), ("key", Key), ("offset", c_uint64), ("length", c_uint64),
                ("segs", c_uint64), ("timeout_ns", c_uint64), ("depth", c_uint32), ("lease_ms", c_uint32),
                ("lease", c_uint32), ("mem", c_uint32), ("crcs", c_uint64), ("keys", c_uint64),
                ("nr_keys", c_uint32), ("reserved2", c_uint32)]


class Found(Structure):
    """struct kvctx_found, without the bits and lengths behind it"""
    _fields_ = [("nr_present", c_uint32), ("nr_prefetched", c_uint32), ("lease", c_uint32), ("reserved", c_uint32)]


class Cqe(Structure):
    """struct kvctx_cqe"""
    _fields_ = [("user_data", c_uint64), ("res", c_int32), ("flags", c_uint32)]


class Event(Structure):
    """struct kvctx_event"""
    _fields_ = [("key", Key), ("kind", c_uint32), ("length", c_uint32)]


class Batch(Structure):
    """struct kvctx_batch; addresses are plain numbers, whoever fills it keeps the arrays"""
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("opcode", c_uint8), ("prio", c_uint8),
                ("reserved", c_uint16), ("nr", c_uint32), ("op_flags", c_uint32), ("depth", c_uint32),
                ("reserved2", c_uint32), ("keys", c_size_t), ("addrs", c_size_t), ("lens", c_size_t),
                ("pieces", c_size_t), ("res", c_size_t), ("cqe_flags", c_size_t), ("user_data", c_uint64),
                ("offset", c_uint64)]


# name: (result, arguments). Arrays are passed as addresses (c_size_t), which array.array tells without a wrapper
_PROTOTYPES = {
    "kvctx_pool_create": (c_int, [c_char_p, POINTER(PoolParams)]),
    "kvctx_pool_add": (c_int, [c_char_p, c_char_p, c_uint64]),
    "kvctx_pool_remove": (c_int, [c_char_p, c_char_p, c_uint]),
    "kvctx_open": (c_int, [c_char_p, c_int, POINTER(Params), POINTER(c_void_p)]),
    "kvctx_close": (None, [c_void_p]),
    "kvctx_fd": (c_int, [c_void_p]),
    "kvctx_get_info": (POINTER(Info), [c_void_p]),
    "kvctx_usage": (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
    "kvctx_events": (c_int, [c_void_p, POINTER(Event), c_uint32, POINTER(c_uint64)]),
    "kvctx_arena": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "kvctx_mem_register": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(c_uint32)]),
    "kvctx_mem_unregister": (c_int, [c_void_p, c_uint32]),
    "kvctx_mem_find": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(c_uint32), POINTER(c_uint64)]),
    "kvctx_delete": (c_int, [c_void_p, c_size_t]),
    "kvctx_query": (c_int64, [c_void_p, c_size_t]),
    "kvctx_flush": (c_int, [c_void_p]),
    "kvctx_match": (c_int64, [c_void_p, c_size_t, c_uint32, c_size_t, c_uint32, POINTER(c_uint32)]),
    "kvctx_match_all": (c_int64, [c_void_p, c_size_t, c_uint32, c_size_t, c_size_t, c_uint32, POINTER(c_uint32)]),
    "kvctx_release": (c_int, [c_void_p, c_uint32]),
    "kvctx_batch_submit": (c_int, [c_void_p, POINTER(Batch)]),
    "kvctx_stage_init_at": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint32, c_uint32]),
    "kvctx_batch_run": (c_int64, [c_void_p, POINTER(Batch)]),
    "kvctx_submit_sqes": (c_int, [c_void_p, c_size_t, c_uint32]),
    "kvctx_wait": (c_int, [c_void_p, c_uint32, c_uint64]),
    "kvctx_drain": (c_int, [c_void_p, c_uint64]),
    "kvctx_take": (c_uint, [c_void_p, POINTER(Cqe), c_uint]),
    "kvctx_key_from_bytes": (None, [POINTER(Key), c_char_p, c_size_t, c_uint64]),
    "kvctx_keyspace_from_bytes": (None, [c_void_p, c_char_p, c_size_t]),
    "kvctx_strerror": (c_char_p, [c_int]),
    "kvctx_version": (c_char_p, []),
}


def _candidates() -> list:
    """Names to try, in order: what the environment says decides alone, then the wheel's own, then the loader's."""
    named = os.environ.get("KVCTX_LIBRARY")
    if named:
        return [named]
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libkvctx.so.0")
    return ([own] if os.path.exists(own) else []) + ["libkvctx.so.0"]


def _load() -> ctypes.CDLL:
    tried = []
    for name in _candidates():
        try:
            found = ctypes.CDLL(name, use_errno=False)
        except OSError as e:
            tried.append(str(e))
            continue
        for function, (result, arguments) in _PROTOTYPES.items():
            f = getattr(found, function)
            f.restype, f.argtypes = result, arguments
        return found
    raise ImportError("kvctx: no libkvctx.so.0 (" + "; ".join(tried) + "); KVCTX_LIBRARY names one")


lib = _load()
