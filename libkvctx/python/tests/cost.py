# SPDX-License-Identifier: LGPL-2.1-or-later
"""What Python adds to a batch: the processor's time for a whole call less that inside the library, a page.

python cost.py prints the figures, of batches of 1,024. With pages that are not there nothing but the calls is measured;
where pages are moved the processor's caches are cold. test_cost.py holds what does not depend on the machine.
"""
import os
import statistics
import sys
import tempfile
import time
from array import array

import kvctx
from kvctx import _lib

PAGES, PAGE, ROUNDS = 1024, 4096, 15


class Clock:
    """In the place of the library's two functions: adds up the time inside them."""

    def __init__(self):
        self.inside = 0
        for name in ("kvctx_batch_run", "kvctx_batch_submit"):
            setattr(self, name, self._timed(getattr(_lib.lib, name)))

    def _timed(self, function):
        def call(*arguments):
            began = time.thread_time_ns()
            ret = function(*arguments)
            self.inside += time.thread_time_ns() - began
            return ret
        return call

    def __getattr__(self, name):
        return getattr(_lib.lib, name)


def measure(pool):
    """{what: ns a page}, medians over rounds."""
    digests = [os.urandom(32) for _ in range(PAGES)]
    memory = bytearray(PAGES * PAGE)
    figures = {}
    with pool.session(entries=4 * PAGES) as s, s.register(memory) as reg:
        keys = kvctx.Keys.of_digests(digests)
        addrs = array("Q", range(reg.address, reg.address + PAGES * PAGE, PAGE))
        lens = array("I", [PAGE] * PAGES)
        s.store_packed(keys, addrs, lens).check()
        absent = kvctx.Keys.of_digests(digests, 1)
        clock = kvctx.session.lib = kvctx.operation.lib = Clock()
        try:
            for what, call in (("load_packed, absent", lambda: s.load_packed(absent, addrs, lens)),
                               ("submit_load_packed, absent", lambda: s.submit_load_packed(absent, addrs, lens)),
                               ("load_packed", lambda: s.load_packed(keys, addrs, lens)),
                               ("submit_load_packed", lambda: s.submit_load_packed(keys, addrs, lens))):
                took = []
                for _ in range(ROUNDS):
                    clock.inside = 0
                    began = time.thread_time_ns()
                    r = call()
                    took.append((time.thread_time_ns() - began - clock.inside) / PAGES)
                    r = r if isinstance(r, kvctx.Results) else r.result(20)
                    assert r.ok == (0 if "absent" in what else PAGES)
                figures[what] = statistics.median(took)
        finally:
            kvctx.session.lib = kvctx.operation.lib = _lib.lib
    took = []
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        kvctx.Keys.of_digests(digests)
        took.append((time.thread_time_ns() - began) / PAGES)
    figures["Keys.of_digests"] = statistics.median(took)
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        for what, ns in measure(kvctx.create_pool(os.path.join(where, "kv0"), 64 << 20)).items():
            sys.stdout.write(f"{what:27} {ns:6.1f} ns a page\n")
