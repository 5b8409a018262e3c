# SPDX-License-Identifier: LGPL-2.1-or-later
"""`lmcache bench l2 --no-skip-verify` with KvctxL2Adapter: bench.py LMCACHE DIR

Every shape stores, looks up and loads on a new pool, in the process or through kvctxd ($KVCTX_BIN), and compares what
the last round loaded. Seen to is also that every key was stored, found as often as it could be, and loaded.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from kvctxd import Daemon

ROUNDS = 2
WARMUP = 1
MB = 1 << 20
# KiB an object, keys a submission, submissions in flight, hit rate, alignment of L1, daemon
SHAPES = [(64, 256, 4, 0.5, 4096, False), (64, 64, 1, 1.0, 4096, False), (1024, 64, 2, 0.5, 4096, False),
          (1024, 32, 1, 0.0, 4096, False), (8192, 16, 1, 1.0, 4096, False), (8192, 8, 3, 0.25, 4096, False),
          (100, 33, 3, 0.5, 1, False), (64, 2000, 1, 1.0, 4096, False), (1024, 32, 2, 0.5, 4096, True)]


def wanted(keys, hit_rate):
    return {"Store": keys, "Lookup": int(keys * hit_rate), "Load": keys}


def check(out, keys, hit_rate):
    """What is wrong in the output, or None."""
    for operation, want in wanted(keys, hit_rate).items():
        counts = re.findall(rf"\[{operation}\] Round \d+: .*?(?:success_keys|found|loaded)=(\d+)/{keys}\b", out)
        if [int(n) for n in counts] != [want] * (ROUNDS + WARMUP):
            return f"{operation}: {counts} of {keys}, not {want} each"
    if f"All {keys} keys data verified OK" not in out:
        return "not verified"
    return None


def one(lmcache, folder, size, keys, in_flight, hit_rate, align, through_daemon):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    daemon = Daemon(512 * MB) if through_daemon else None
    params = {"path": daemon.path} if daemon else {"path": f"{folder}/kv0/default", "max_bytes": 2048 * MB}
    adapter = {"type": "plugin", "module_path": "kvctx.lmcache", "class_name": "KvctxL2Adapter",
               "adapter_params": params}
    try:
        p = subprocess.run([lmcache, "bench", "l2", "--l2-adapter", json.dumps(adapter), "--no-skip-verify",
                            "--num-keys", str(keys), "--data-size-kb", str(size), "--in-flight", str(in_flight),
                            "--rounds", str(ROUNDS), "--warmup-rounds", str(WARMUP), "--lookup-max-hit-rate",
                            str(hit_rate), "--l1-align-bytes", str(align)],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    finally:
        if daemon:
            daemon.remove()
        shutil.rmtree(folder)
    print(p.stdout)
    return f"status {p.returncode}" if p.returncode else check(p.stdout, keys * in_flight, hit_rate)


def main():
    lmcache, folder = sys.argv[1:]
    for shape in SHAPES:
        size, keys, in_flight, hit_rate, align, through_daemon = shape
        wrong = one(lmcache, folder, *shape)
        name = (f"bench l2: {keys} keys of {size} KiB, {in_flight} in flight, hit rate {hit_rate:g}"
                f"{', not aligned' if align == 1 else ''}{', kvctxd' if through_daemon else ''}")
        print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


main()
