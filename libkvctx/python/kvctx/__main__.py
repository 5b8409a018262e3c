# SPDX-License-Identifier: LGPL-2.1-or-later
"""python -m kvctx: what is there, and does it work.

Tells the library, then each pool of the module, of kvctxd and of the paths given, with each tenant that can be opened,
then stores and loads pages: on a pool in a temporary file, or on the tenant that --on names. The status is 1 when the
self-test, or a path that was given, fails.
"""
from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from array import array
from typing import List, Optional

import kvctx

from . import _lib
from .pool import SERVED

WHERE = SERVED
_POOL_BYTES = 16 << 20
_PAGES, _PAGE_BYTES = 64, 65536


def _size(n: int) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    value = float(n)
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.4g} {units[0]}"


def tell_tenant(pool: kvctx.Pool, tenant: str) -> bool:
    """Print what a session of the tenant can do. Whether it could be opened."""
    try:
        with pool.session(tenant, readonly=True) as s:
            info, usage = s.info, s.usage()
    except kvctx.Error as e:
        print(f"  {tenant}: {e.strerror}")
        return False
    limit = f" of {_size(usage.limit)}" if usage.limit else ""
    print(f"  {tenant}: {info.backend}; {usage.pages} pages, {_size(usage.bytes)}{limit}, of a pool of "
          f"{_size(info.capacity)}, {info.members} members")
    print(f"    features: {', '.join(info.features)}")
    print(f"    limits: page {_size(info.page_len_max)}, {info.segs_max} pieces a page, {info.cq_max} in flight, "
          f"{info.match_max} keys a match, lease {info.lease_ms_max // 1000} s, {info.mem_max} registrations, "
          f"arena {_size(info.arena_max)}, {info.slots_max} slots")
    print(f"    geometry: chunk {_size(info.chunk_size)}, block {_size(info.block_size)}, "
          f"aligned to {info.dma_align} B moves without a copy")
    return True


def tell_pool(path: str) -> bool:
    """Print a pool and its tenants; path: of the pool, or of one tenant of it. Whether something could be opened."""
    pool, tenants = kvctx.Pool(path), None
    if not os.path.isdir(path):
        pool, tenants = kvctx.Pool(os.path.dirname(path)), [os.path.basename(path)]
    print(f"{pool.path}:")
    try:
        return any([tell_tenant(pool, t) for t in tenants or pool.tenants()])
    except OSError as e:
        print(f"  {e.strerror}")
        return False


def pools() -> List[str]:
    """Paths of the pools that the module and kvctxd serve."""
    found = []
    for where in WHERE:
        if os.path.isdir(where):
            found += sorted(e.path for e in os.scandir(where) if e.is_dir())
    return found


def self_test(tenant: str) -> bool:
    """Store, find, load and verify pages of a keyspace of its own in a tenant, with another session; then delete."""
    keyspace = os.urandom(16)  # others may be at it, too
    keys = kvctx.Keys([f"page {n}" for n in range(_PAGES)])
    lens = array("I", [_PAGE_BYTES] * _PAGES)
    bytes_ = _PAGES * _PAGE_BYTES
    memory = kvctx.shared_memory(bytes_)
    want = os.urandom(bytes_)
    with kvctx.Session(tenant, keyspace=keyspace) as s, s.register(memory) as reg:
        addrs = array("Q", range(reg.address, reg.address + bytes_, _PAGE_BYTES))
        memory[:] = want
        s.store_packed(keys, addrs, lens).check()
        s.flush()
        features = s.info.features
    with kvctx.Session(tenant, keyspace=keyspace) as s, s.register(memory) as reg:
        memory[:] = bytes(bytes_)
        with s.match(keys, lease=10) as m:
            r = s.submit_load_packed(keys, addrs, lens).result(30).check()
        good = m.prefix == _PAGES and memory[:] == want and all(r.verified(n) for n in range(_PAGES))
        good = good and s.delete(keys).all_ok and s.match(keys).count == 0
    memory.close()
    print(f"self-test: {_PAGES} pages of {_size(_PAGE_BYTES)} stored, found by another session, loaded and verified"
          if good else "self-test: wrong bytes, or pages are missing")
    if "iothreads" in features:
        print("  io_uring is not available here: threads move pages, which is slower")
    return good


def self_test_of_file(dir: Optional[str]) -> bool:
    """The same on a pool in a temporary file below dir, or where temporary files are."""
    where = tempfile.mkdtemp(prefix="kvctx-", dir=dir)
    try:
        return self_test(os.path.join(kvctx.create_pool(os.path.join(where, "kv0"), _POOL_BYTES).path, "default"))
    finally:
        shutil.rmtree(where)


def main(arguments: List[str]) -> int:
    """What the command does, with the arguments behind its name; prints to stdout. Returns the exit status, 0 or 1.

    Pools that cannot be opened, and a self-test that fails with an Error, are printed and make it 1. Raises SystemExit
    for arguments that are wrong (2), or --help (0); OSError when the temporary pool cannot be made or removed;
    TimeoutError when its pages have not come after 30 s. Blocks until all has been told and tried.
    """
    parser = argparse.ArgumentParser(prog="python -m kvctx", description="Tell what kvctx finds on this machine, and "
                                     "test it.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a pool's directory, or POOL/TENANT, to tell of "
                        f"beside those in {' and '.join(WHERE)}")
    parser.add_argument("--on", metavar="POOL/TENANT", help="run the self-test there, in a keyspace of its own "
                        "(default: on a pool in a temporary file)")
    parser.add_argument("--tmp", metavar="DIR", help="where that file is (default: TMPDIR, or /tmp)")
    parser.add_argument("--no-self-test", action="store_true", help="only tell what is there")
    how = parser.parse_args(arguments)
    print(f"kvctx {kvctx.__version__}, {_lib.lib._name}")
    served = pools()
    if not served:
        print(f"no pools in {' and '.join(WHERE)}; name the directory of a pool that is elsewhere")
    for path in served:
        tell_pool(path)
    good = all([tell_pool(path) for path in how.paths])
    if not how.no_self_test:
        try:
            good &= self_test(how.on) if how.on else self_test_of_file(how.tmp)
        except kvctx.Error as e:
            print(f"self-test: {e}")
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
