# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operations in flight: futures, callbacks, asyncio, threads, more than there is room for, the end of a session."""
import asyncio
import concurrent.futures
import contextlib
import errno
import os
import sys
import threading
from array import array
from typing import List

import numpy as np
import pytest
from conftest import until

import kvctx
from kvctx import Keys, Operation

PAGE = 4096


class OnDevice:
    """Like a tensor in a device's memory."""

    def __init__(self):
        self.a = np.zeros(PAGE, dtype="u1")

    def __dlpack__(self, **how):
        return self.a.__dlpack__(**how)

    def __dlpack_device__(self):
        return 2, 0


class Region:
    """Registered memory of n pages, with the columns of a packed call."""

    def __init__(self, session, n, prefix=""):
        self.memory = bytearray(os.urandom(n * PAGE))
        self.want = bytes(self.memory)
        self.reg = session.register(self.memory)
        self.keys = Keys([f"{prefix}{i}" for i in range(n)])
        self.addrs = array("Q", range(self.reg.address, self.reg.address + n * PAGE, PAGE))
        self.lens = array("I", [PAGE] * n)
        self.columns = self.keys, self.addrs, self.lens

    def clear(self):
        self.memory[:] = bytes(len(self.memory))

    def right(self):
        return self.memory == self.want


@contextlib.contextmanager
def held_reaper(session):
    """Operations submitted meanwhile are not done yet: the callbacks that they are given are called by the reaper."""
    held, go = threading.Event(), threading.Event()

    def hold(op):
        if threading.current_thread() is not threading.main_thread():  # as it is when the flush was done already
            held.set()
            go.wait(60)

    try:
        while not held.wait(0.01):
            session.submit_flush().add_done_callback(hold)
        yield
    finally:
        go.set()


def test_futures_and_callbacks(served):
    r = Region(served, 40)
    op = served.submit_store_packed(*r.columns)
    assert isinstance(op, concurrent.futures.Future) and not op.cancel()
    assert op.result(60).ok == 40 and op.done() and op.exception() is None
    r.clear()
    called = []
    there = threading.Event()

    def callback(op):
        called.append((op.result().ok, threading.current_thread().name, served.match(r.keys).count,
                       served.delete(r.keys[:2]).ok))
        there.set()

    with held_reaper(served):
        op = served.submit_load_packed(*r.columns)
        op.add_done_callback(callback)
    assert there.wait(60) and called == [(40, "kvctx-reaper", 40, 2)]
    assert r.right()
    ops = [served.submit_load_packed(r.keys[i:i + 10], r.addrs[i:i + 10], r.lens[i:i + 10]) for i in range(0, 40, 10)]
    done, rest = concurrent.futures.wait(ops, 10)
    assert len(done) == 4 and not rest
    assert [op.result().ok for op in ops] == [8, 10, 10, 10]
    assert list(ops[0].result())[:3] == [-errno.ENOENT, -errno.ENOENT, PAGE]
    assert ops[0].result().verified(2)


def test_asyncio(served):
    r = Region(served, 64)

    async def all():
        op = served.submit_store_packed(*r.columns)
        assert (await op).all_ok
        r.clear()
        many = await asyncio.gather(*(served.submit_load_packed(r.keys[i:i + 4], r.addrs[i:i + 4], r.lens[i:i + 4])
                                      for i in range(0, 64, 4)))
        assert [m.ok for m in many] == [4] * 16 and r.right()
        assert (await served.submit_match(r.keys, lease=1)).prefix == 64
        assert await served.submit_flush() is None
        # who stops waiting does not stop the operation
        op = served.submit_load_packed(*r.columns)
        task = asyncio.ensure_future(op)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await op).all_ok

    asyncio.run(asyncio.wait_for(all(), 30))


def test_memory_that_is_not_registered(served):
    """Begun one after the other, of all lengths, beside memory that is registered; what is read only is stored too."""
    staged = kvctx._lib.CQE_FLAGS["STAGED"]
    sizes = [1, 4096, 5000, 300000, 70, 700000]
    data = [[os.urandom(size) for _ in range(10)] for size in sizes]
    ops = [served.submit_store([f"{size}-{n}" for n in range(10)], pages) for size, pages in zip(sizes, data)]
    r = Region(served, 16)
    registered = served.submit_store_packed(*r.columns)
    for op in ops:
        results = op.result(30)
        assert results.all_ok and all(results.flags[n] & staged for n in range(10))
    assert registered.result(30).all_ok
    room = [[bytearray(size) for _ in range(10)] for size in sizes]
    loads = [served.submit_load([f"{size}-{n}" for n in range(10)], [[memoryview(p)[:1], memoryview(p)[1:]] if size > 1
                                                                     else p for p in pages])
             for size, pages in zip(sizes, room)]
    assert all(op.result(30).all_ok for op in loads) and room == data
    assert served.load(["70-3", "0"], [room[4][0], r.memory]).ok == 1 and room[4][0] == data[4][3]


def test_much_more_than_the_slots_hold(served, monkeypatch):
    """Slots for four pages; several operations of 200, and a longer page, which waits until the former are done."""
    monkeypatch.setattr(kvctx.stage, "STAGE_BYTES", 4 * PAGE)
    data = [bytearray(os.urandom(PAGE)) for _ in range(600)]
    names = [str(n) for n in range(600)]
    ops = [served.submit_store(names[at:at + 200], data[at:at + 200]) for at in (0, 200, 400)]
    long = os.urandom(10 * PAGE)
    ops.append(served.submit_store(["long"], [long]))
    ahead = served.store(["longer"], [long + b"*"])
    assert ahead.all_ok and all(op.result(30).all_ok for op in ops)
    room = [bytearray(PAGE) for _ in range(600)] + [bytearray(len(long))]
    ops = [served.submit_load(names[at:at + 50], room[at:at + 50]) for at in range(0, 600, 50)]
    ops.append(served.submit_load(["long"], room[600:]))
    assert all(op.result(30).all_ok for op in ops) and room == data + [long]


def test_a_callback_stores_what_is_not_registered(session):
    """A synchronous call in the reaper's thread, which is the one that brings staged pages further."""
    there, after = threading.Event(), []

    def callback(op):
        after.append(session.store(["b"], [b"*" * 50000]).ok + session.load(["a"], [bytearray(100)]).ok)
        there.set()

    others = [session.submit_store([f"{n}"], [b"*" * 5000]) for n in range(30)]
    op = session.submit_store(["a"], [b"*" * 100])
    op.add_done_callback(callback)
    assert there.wait(20) and after == [2] and all(o.result(20).all_ok for o in others)


def test_memory_that_nobody_can_copy_is_refused(session):
    """A device's, which is not registered."""
    session.info = session.info._replace(backend="module")
    with pytest.raises(kvctx.Error) as e:
        session.submit_store(["k"], [OnDevice()])
    assert e.value.errno == errno.EFAULT
    assert session.drain(5) and session._reaper.in_flight() == 0
    # and the session goes on
    r = Region(session, 4)
    assert session.submit_store_packed(*r.columns).result(60).all_ok


def test_a_part_that_is_refused_late_has_results(pool):
    """The first pages are on their way when one that is refused gets its turn."""
    with pool.session(entries=16) as s:
        s.info = s.info._replace(backend="module")
        r = Region(s, 16)
        pages = [memoryview(r.memory)[at:at + PAGE] for at in range(0, 15 * PAGE, PAGE)]
        op = s.submit_store(r.keys, [*pages, OnDevice()])
        assert list(op.result(60)) == [PAGE] * 12 + [-errno.EFAULT] * 4
        assert op.result().ok == 12


def test_no_pages_are_done_at_once(session):
    """Nothing would ever tell of an operation that has no part."""
    for op in (session.submit_store([], []), session.submit_load_packed(Keys(), array("Q"), array("I"))):
        assert list(op.result(60)) == []
    assert list(session.delete([])) == [] and session.drain(5)


def test_columns_belong_to_the_operation(pool):
    """What a caller does to his columns later changes nothing, also of operations that wait for room."""
    with pool.session(entries=8) as s:
        r = Region(s, 400)
        s.store_packed(*r.columns).check()
        r.clear()
        ops = []
        for n in range(0, 400, 2):
            addrs, lens, pieces = r.addrs[n:n + 2], r.lens[n:n + 2], array("I", [1, 1])
            ops.append(s.submit_load_packed(r.keys[n:n + 2], addrs, lens, pieces))
            addrs.reverse()
            lens[0] = pieces[1] = 7
            addrs.extend(range(4096))
        assert all(op.result(30).all_ok for op in ops) and r.right()


def test_a_callback_may_not_end_the_reaper(session):
    """sys.exit() means the thread that it is called in, and that one is not the callback's."""
    r, called = Region(session, 1), threading.Event()
    session.store_packed(*r.columns).check()
    op = Operation(session)
    op.add_done_callback(lambda op: sys.exit(1))
    op.add_done_callback(lambda op: called.set())
    threading.Thread(target=op.set_result, args=(1,)).start()
    assert called.wait(60)
    reaped: List[threading.Thread] = []

    def exits(op):
        if threading.current_thread() is not threading.main_thread():  # as it is when the load was done already
            reaped.append(threading.current_thread())
            sys.exit(1)

    while len(reaped) < 3:
        op = session.submit_load_packed(*r.columns)
        op.add_done_callback(exits)
        assert op.result(60).all_ok
    assert len(set(reaped)) == 1


def test_threads_share_a_session(served):
    """Each with pages of its own, submitted, synchronous and matched, all at once."""
    errors = []

    def work(t):
        try:
            r = Region(served, 30, f"{t}-")
            for _ in range(8):
                assert served.submit_store_packed(*r.columns, replace=True).result(30).all_ok
                r.clear()
                assert served.match(r.keys, lease=5).prefix == 30
                assert served.load_packed(*r.columns).all_ok and r.right()
                r.clear()
                ops = [served.submit_load_packed(r.keys[i:i + 6], r.addrs[i:i + 6], r.lens[i:i + 6])
                       for i in range(0, 30, 6)]
                assert all(op.result(30).all_ok for op in ops) and r.right()
                assert served.query(r.keys).ok == served.delete(r.keys).ok == 30
            r.reg.close()
        except BaseException as e:
            errors.append(e)
            raise

    threads = [threading.Thread(target=work, args=(t,)) for t in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_close_waits_for_what_is_in_flight(pool):
    s = pool.session(entries=32)
    r = Region(s, 400)
    op = s.submit_store_packed(*r.columns)
    s.close()
    assert op.done() and op.result().all_ok
    with pytest.raises(kvctx.Error):
        s.submit_store_packed(*r.columns)


def test_close_by_a_callback_and_by_nobody(pool):
    s = pool.session()
    r = Region(s, 4)
    op = s.submit_store_packed(*r.columns)
    op.add_done_callback(lambda op: s.close())
    assert op.result(60).all_ok
    until(lambda: s._handle is None, "its end")
    assert s.closed
    with pytest.warns(ResourceWarning):
        pool.session()
    # and then nobody has the pool
    pool.session().close()


def test_callbacks_may_not_wait(session):
    r = Region(session, 1)
    seen = []

    def callback(op):
        with pytest.raises(RuntimeError):
            session.drain()
        with pytest.raises(RuntimeError):
            session.match(r.keys, prefetch=True)
        others = [session.submit_load_packed(*r.columns) for _ in range(2)]
        for wait in others[0].result, others[1].exception:
            with pytest.raises(RuntimeError):
                wait(1)
        for over in 0, -1:
            with pytest.raises(concurrent.futures.TimeoutError):
                others[1].result(over)
        seen.extend(others)

    with held_reaper(session):
        op = session.submit_store_packed(*r.columns)
        op.add_done_callback(callback)
    op.result(60)
    assert session.drain(10)
    until(lambda: seen, "the callback")
    assert all(other.result(60).all_ok for other in seen)


def test_abandoned_operations_end(pool):
    """Memory of what did not end before its session is kept for ever, and who waits is told."""
    s = pool.session()
    r = Region(s, 2)
    op = kvctx.Operation()
    packed = kvctx.memory.pack_columns(r.addrs, r.lens, None, 2)
    part = kvctx.operation.BatchPart(op, s._batch(1, r.keys, packed, 0, 0, 0, 0), 0, array("i", [0, 0]), r, packed,
                                     s._stage)
    op._finish = lambda: list(part.res)
    op._parts = 1
    s._reaper._parts[99] = part
    s._reaper._out.add(99)
    kvctx.session.CLOSE_SECONDS, kept = 0.1, kvctx.session.CLOSE_SECONDS
    try:
        s.close()
    finally:
        kvctx.session.CLOSE_SECONDS = kept
    assert op.result(1) == [-errno.ECANCELED] * 2
    assert part in kvctx.session._never_freed
