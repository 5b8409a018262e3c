# SPDX-License-Identifier: LGPL-2.1-or-later
"""What Python adds to a batch does not grow with its pages: a large one executes as many bytecodes as a small one.

cost.py measures the time.
"""
import os
import sys
from array import array

import kvctx

PAGE = 4096


class Bytecodes:
    """Counts what this thread executes in the package."""

    def __init__(self):
        self.executed = 0
        self._package = os.path.dirname(kvctx.__file__)

    def _trace(self, frame, event, _arg):
        if not frame.f_code.co_filename.startswith(self._package):
            return None
        frame.f_trace_opcodes = True
        self.executed += event == "opcode"
        return self._trace

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)


def bytecodes_of(call):
    with Bytecodes() as counter:
        call()
    return counter.executed


def of_a_batch(pool, pages):
    """{what: bytecodes} of calls for so many pages; of load_packed those that are there, and those that are not."""
    digests = [os.urandom(32) for _ in range(pages)]
    memory = bytearray(pages * PAGE)
    with pool.session(entries=4096) as s, s.register(memory) as reg:
        there, absent = kvctx.Keys.of_digests(digests), kvctx.Keys.of_digests(digests, 1)
        addrs = array("Q", range(reg.address, reg.address + pages * PAGE, PAGE))
        lens = array("I", [PAGE] * pages)
        s.store_packed(there, addrs, lens).check()
        pending = []
        counts = {
            "of_digests": bytecodes_of(lambda: kvctx.Keys.of_digests(digests)),
            "load_packed, absent": bytecodes_of(lambda: s.load_packed(absent, addrs, lens)),
            "load_packed": bytecodes_of(lambda: s.load_packed(there, addrs, lens)),
            "submit_load_packed": bytecodes_of(lambda: pending.append(s.submit_load_packed(there, addrs, lens))),
        }
        assert pending[0].result(20).ok == pages
        return counts


def test_python_adds_nothing_for_each_page(pool):
    small, large = of_a_batch(pool, 16), of_a_batch(pool, 1024)
    assert min(small.values()) > 0
    assert small == large


def test_bytecodes_are_counted(pool):
    """What has a turn for each key is seen to grow."""
    with pool.session() as s:
        names = [[str(i) for i in range(n)] for n in (16, 256)]
        few, many = (bytecodes_of(lambda keys=keys: s.match(list(keys)).release()) for keys in names)
        assert many > few
