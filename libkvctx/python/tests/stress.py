# SPDX-License-Identifier: LGPL-2.1-or-later
"""Threads that do at once what threads may do: with one session, with what it gives, and with many sessions.

python stress.py PATH [SECONDS] does each thing in ALL on a pool for so long, and tells whether there is a GIL;
test_threads.py runs it. What goes wrong in a thread is raised in the end.
"""
import errno
import os
import sys
import threading
import time
from array import array

import kvctx

THREADS, PAGES, PAGE = 6, 16, 8192


def together(function, nr=THREADS):
    """Call function(n) in nr threads, as much at once as can be; raise what one of them did."""
    start, wrong = threading.Barrier(nr), []

    def run(n):
        start.wait()
        try:
            function(n)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(nr)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


def until(seconds):
    """Numbers, until the time is over."""
    end, n = time.monotonic() + seconds, 0
    while not n or time.monotonic() < end:
        yield n
        n += 1


def share_a_session(pool, seconds):
    """Store, find, load and delete, in memory that is registered and that is not, each thread pages of its own."""
    with pool.session(keyspace="share", timeout=60, entries=64) as s:
        def use(me):
            keys = kvctx.Keys([f"{me} {n}" for n in range(PAGES)])
            memory, other = bytearray(PAGES * PAGE), [bytearray(PAGE) for _ in range(PAGES)]
            lens, done = array("I", [PAGE] * PAGES), []
            for turn in until(seconds):
                want = bytes([(me * 16 + turn) % 251 + 1]) * PAGE
                with s.register(memory) as reg:
                    addrs = array("Q", range(reg.address, reg.address + PAGES * PAGE, PAGE))
                    memory[:] = want * PAGES
                    if turn % 2:
                        s.store_packed(keys, addrs, lens, replace=True).check()
                    else:
                        op = s.submit_store(keys, [want] * PAGES, replace=True)
                        op.add_done_callback(lambda _, turn=turn: done.append(turn))
                        assert op.result(60).check().all_ok
                    memory[:] = bytes(PAGES * PAGE)
                    with s.match(keys, lease=5, prefetch=turn % 8 == 3) as m:
                        assert m.prefix == PAGES, m
                        ops = s.submit_load_packed(keys, addrs, lens), s.submit_load(keys, other)
                        assert s.submit_query(keys).result(60).all_ok
                        assert ops[0].result(60).check().all_ok and memory == want * PAGES
                        assert ops[1].result(60).check().all_ok and all(o == want for o in other)
                assert list(s.query(keys[:2])) == [PAGE] * 2
                if turn % 4 == 2:
                    assert s.submit_delete(keys).result(60).all_ok and s.match(keys).count == 0
                s.usage()
            assert done == list(range(0, turn + 1, 2))
            assert s.drain(60)

        together(use)
        assert s._reaper.in_flight() == 0 and not s._inside and not s._registered


def close_under_calls(pool, seconds):
    """A session is closed while others call: each call is made, or told that the session is closed."""
    key = kvctx.Keys(["a"])
    for _ in until(seconds):
        s, calls = pool.session(keyspace="close"), [0] * THREADS
        s.store(key, [bytes(PAGE)], replace=True)
        ops = []

        def call(n):
            memory = bytearray(PAGE)
            if not n:
                while not all(calls[1:]):
                    time.sleep(0.001)
                return s.close()
            try:
                while True:
                    if n % 2:
                        assert s.load(key, [memory]).all_ok
                        s.match(key, lease=1).release()
                    else:
                        ops.append(s.submit_load(key, [memory]))
                        s.register(bytearray(PAGE)).close()
                    calls[n] += 1
            except kvctx.Error as e:
                assert e.errno == errno.EBADF, e

        together(call)
        assert s.closed and all(op.result(60).all_ok for op in ops) and not s._inside


def end_once(pool, seconds):
    """A lease and a registration end once, whoever ends them: their numbers are others' then."""
    ended, lib = [], kvctx._lib.lib
    with pool.session(keyspace="once") as s:
        s.store(["a"], [bytes(PAGE)], replace=True).check()
        calls = {name: getattr(lib, name) for name in ("kvctx_release", "kvctx_mem_unregister")}
        for name, call in calls.items():
            setattr(lib, name, lambda handle, id, call=call: ended.append(id) or call(handle, id))
        try:
            for _ in until(seconds):
                m, reg = s.match(["a"], lease=5), s.register(bytearray(PAGE))
                assert m.leased
                for what in (m.release, reg.close):
                    ended.clear()
                    together(lambda _: what())
                    assert len(ended) == 1, ended
        finally:
            for name, call in calls.items():
                setattr(lib, name, call)


def many_sessions(pool, seconds):
    """Threads with sessions of their own, which one that is open all the time keeps a pool for."""
    def use(me):
        key = [f"sessions {me}"]
        for turn in until(seconds):
            with pool.session(keyspace="many") as s:
                s.submit_store(key, [bytes([turn % 256]) * PAGE], replace=True).result(60).check()
                memory = bytearray(PAGE)
                s.load(key, [memory]).check()
                assert memory == bytes([turn % 256]) * PAGE

    known = len(kvctx.session._open)
    with pool.session():
        together(use)
    assert len(kvctx.session._open) == known


ALL = [share_a_session, close_under_calls, end_once, many_sessions]


if __name__ == "__main__":
    for thing in ALL:
        thing(kvctx.Pool(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    sys.stdout.write(f"{len(ALL)} good, {'with a' if gil else 'without a'} GIL, {os.cpu_count()} processors\n")
