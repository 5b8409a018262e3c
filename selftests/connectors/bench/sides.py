# SPDX-License-Identifier: GPL-2.0
"""What `make bench-connectors` compares, and at what.

Words: a side is one way to keep pages: kvctx through a connector (ours), what an engine brings itself (theirs), or bare
io_uring (raw). A part is an engine with its sides; a case is what its sides are asked for. One run is one side at one
case; it measures all operations of the case.
"""

import collections
import random

KIB, MIB = 1 << 10, 1 << 20

# name: unique in its part. env: environment of the worker. options: of the worker, see there; "@PROCESS@" and
# "@DAEMON@" become paths of tenants, in the process and of kvctxd. direct: past the page cache, so that bars compare
# with it
Side = collections.namedtuple("Side", "name kind env worker options direct needs", defaults=(True, ()))
# request: what the worker is sent. depth: pages in flight, for raw io_uring, or 0: raw has no such thing
Case = collections.namedtuple("Case", "name size request depth")
Part = collections.namedtuple("Part", "name title sides cases")

OURS, THEIRS, RAW = "ours", "theirs", "raw"
PROCESS, DAEMON = "kvctx in process", "kvctx through kvctxd"
LOOKUPS = 10000


def order(names, case, pair):
    """@names as they are run in that pair: by chance, and the same in each run of the bench. What a side leaves behind
    (a disk that is slower for a while) is so not always found by the same one."""
    found = list(names)
    random.Random(f"{case} {pair}").shuffle(found)
    return found


def size_name(size):
    return f"{size // MIB}m" if size >= MIB else f"{size // KIB}k"


def lmcache_adapter(path):
    return {"type": "plugin", "module_path": "kvctx.lmcache", "class_name": "KvctxL2Adapter",
            "adapter_params": {"path": path}}


def lmcache_sides():
    def side(name, kind, adapter, *needs):
        return Side(name, kind, "lmcache", "worker_lmcache.py", {"adapter": adapter}, needs=needs)

    return [
        side(PROCESS, OURS, lmcache_adapter("@PROCESS@"), "process"),
        side(DAEMON, OURS, lmcache_adapter("@DAEMON@"), "daemon"),
        side("fs", THEIRS, {"type": "fs", "base_path": "@DIR@", "use_odirect": True}),
        side("fs_native", THEIRS, {"type": "fs_native", "base_path": "@DIR@", "use_odirect": True}),
        side("nixl_store POSIX", THEIRS,
             {"type": "nixl_store", "backend": "POSIX", "pool_size": "@KEYS@",
              "backend_params": {"file_path": "@DIR@", "use_direct_io": "true", "use_uring": "true"}}),
    ]


# page: keys a submit, bytes a run to measure
LMCACHE_SHAPES = {64 * KIB: (32, 64 * MIB), MIB: (8, 128 * MIB), 8 * MIB: (4, 256 * MIB)}


def lmcache_cases():
    for size, (keys, total) in LMCACHE_SHAPES.items():
        for in_flight in (1, 8):
            rounds = max(total // (size * keys * in_flight), 1)
            yield Case(f"lmcache.{size_name(size)}.{in_flight}", size,
                       {"size": size, "keys": keys, "in_flight": in_flight, "rounds": rounds},
                       min(keys * in_flight, 64))


def sglang_sides():
    def side(name, kind, backend, extra, *needs, direct=True):
        return Side(name, kind, "sglang", "worker_sglang.py", {"backend": backend, "extra": extra}, direct, needs)

    def kvctx(path):
        return {"backend_name": "kvctx", "module_path": "kvctx.sglang", "class_name": "KvctxHiCache", "interface_v1": 1,
                "path": path}

    return [
        side(PROCESS, OURS, "dynamic", kvctx("@PROCESS@"), "process"),
        side(DAEMON, OURS, "dynamic", kvctx("@DAEMON@"), "daemon"),
        side("file", THEIRS, "file", {}, direct=False),
        side("nixl POSIX", THEIRS, "nixl",
             {"use_direct_io": True, "l3_cleaner_enabled": False,
              "plugin": {"posix": {"active": True, "use_uring": "true"}}}),
    ]


# what nine pairs store fits into a pool
SGLANG_SHAPES = {64 * KIB: 1024, MIB: 64, 8 * MIB: 8}


def sglang_cases():
    for size, pages in SGLANG_SHAPES.items():
        yield Case(f"sglang.{size_name(size)}", size, {"size": size, "pages": pages}, min(pages, 64))


def vllm_sides():
    def side(name, kind, connector, *needs, direct=True):
        return Side(name, kind, "vllm", "worker_vllm.py", {"connector": connector}, direct, needs)

    lmcache = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both"}
    own = {"kv_connector": "KvctxConnector", "kv_connector_module_path": "kvctx.vllm", "kv_role": "kv_both",
           "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {
               "spec_name": "KvctxOffloadingSpec", "spec_module_path": "kvctx.vllm", "path": "@PROCESS@"}}
    return [
        side("kvctx.vllm", OURS, {"transfer": own}, "process"),
        side("LMCache with kvctx", OURS, {"transfer": lmcache, "l2": lmcache_adapter("@DAEMON@")}, "daemon"),
        side("recompute", THEIRS, {}),
        side("LMCache with fs_native", THEIRS,
             {"transfer": lmcache, "l2": {"type": "fs_native", "base_path": "@DIR@", "use_odirect": True}}),
    ]


RAW_SIDE = Side("raw io_uring", RAW, None, None, None)

PARTS = [
    Part("lmcache", "lmcache bench l2", [*lmcache_sides(), RAW_SIDE], list(lmcache_cases())),
    # a part of its own: what is looked up stays stored while it is measured
    Part("lookup", f"lmcache bench l2, lookup of {LOOKUPS} keys", lmcache_sides(),
         [Case("lookup.10000", 4 * KIB, {"lookup": LOOKUPS}, 0)]),
    Part("sglang", "SGLang's host pool", [*sglang_sides(), RAW_SIDE], list(sglang_cases())),
    Part("vllm", "vLLM on the CPU, tiny random model, first token", vllm_sides(),
         [Case("vllm.first-token", 0, {"tokens": 1921}, 0)]),
]

# Adapters and backends that the packages name and that are not compared: name, why
LEFT_OUT = [
    ("LMCache raw_block", "its Rust extension is not in the package"),
    ("LMCache dax", "wants a DAX device"),
    ("LMCache hf3fs, mooncake, aerospike, bigtable, s3, resp and valkey", "want servers of their own"),
    ("NIXL's GDS plugins", "want a GPU"),
    ("SGLang hf3fs, mooncake, eic, simm, aibrix and others", "want servers of their own"),
]
