# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pages go in and come back, by whoever serves them; what is found, kept and dropped; what fails."""
import errno
import os
from array import array

import pytest

import kvctx
from kvctx import Key, Keys

PAGE = 8192


def names(n, start=0):
    return Keys([f"page {i}" for i in range(start, start + n)])


def pages(n, size=PAGE):
    return [os.urandom(size) for _ in range(n)]


def rooms(n, size=PAGE):
    return [bytearray(size) for _ in range(n)]


def test_store_and_load(served):
    data, room = pages(20), rooms(20)
    r = served.store(names(20), data)
    assert list(r) == [PAGE] * 20 and r.ok == 20 and r.all_ok and r.check() is r
    r = served.load(names(20), room)
    assert list(r) == [PAGE] * 20 and room == data
    assert all(r.verified(n) for n in range(20))
    assert served.usage() == (20, 20 * PAGE, 0)


def test_a_result_for_each_page(served):
    served.store(names(2), [b"a" * 100, b"b" * 200]).check()
    room = rooms(3, 150)
    r = served.load(["page 0", "absent", "page 1"], [room[0], room[1], memoryview(room[2])])
    assert list(r) == [-errno.ERANGE, -errno.ENOENT, 150]
    assert (r.ok, r.all_ok, r.failed(), len(r), r[2], r[-1]) == (1, False, [0, 1], 3, 150, 150)
    assert room[2] == b"b" * 150
    with pytest.raises(kvctx.Error) as e:
        r.check()
    assert e.value.errno == errno.ERANGE and "page 0" in str(e.value)
    with pytest.raises(kvctx.NotFound):
        served.load("absent", room[0]).check()


def test_one_key_goes_with_one_buffer(served):
    room = bytearray(5)
    served.store("name", b"hello").check()
    assert list(served.load(Key.of("name"), room)) == [5] and room == b"hello"


def test_a_part_of_each_page(served):
    data, room = pages(3), rooms(3, 10)
    served.store(names(3), data).check()
    served.load(names(3), room, offset=PAGE - 10).check()
    assert room == [d[-10:] for d in data]
    assert set(served.load(names(3), room, offset=PAGE - 9)) == {-errno.ERANGE}


def test_pieces_of_a_page(served):
    data = os.urandom(10000)
    served.store(["scattered", "whole"], [[data[:100], data[100:5000], bytearray(data[5000:])], data]).check()
    whole, parts = bytearray(10000), [bytearray(1), bytearray(9000), bytearray(999)]
    assert list(served.load(["scattered", "whole"], [whole, parts])) == [10000, 10000]
    assert whole == b"".join(parts) == data


def test_packed(served):
    n = 50
    memory = bytearray(os.urandom(n * PAGE))
    want = bytes(memory)
    with served.register(memory) as reg:
        keys = Keys.of_digests([os.urandom(32) for _ in range(n)], 9)
        addrs = array("Q", range(reg.address, reg.address + n * PAGE, PAGE))
        lens = array("I", [PAGE] * n)
        assert served.store_packed(keys, addrs, lens, depth=1).all_ok
        memory[:] = bytes(n * PAGE)
        assert served.load_packed(keys, addrs, lens).all_ok
        assert memory == want
        # two pieces a page, in another order, of lists and of other buffers
        half = [a + PAGE // 2 * h for a in reversed(addrs) for h in (1, 0)]
        r = served.load_packed(keys, half, memoryview(array("I", [PAGE // 2] * 2 * n)), [2] * n)
        assert r.all_ok
        assert bytes(memory[-PAGE // 2:]) == want[:PAGE // 2]
        assert bytes(memory[-PAGE:-PAGE // 2]) == want[PAGE // 2:PAGE]
        # from the middle of each page on
        assert served.load_packed(keys, addrs, [10] * n, offset=PAGE // 2).all_ok
        assert bytes(memory[:10]) == want[PAGE // 2:PAGE // 2 + 10]
        for wrong in ((addrs[1:], lens, None), (addrs, lens[1:], None), (addrs, lens, [1] * (n - 1)),
                      (addrs, lens, [0] + [1] * (n - 2) + [2])):
            with pytest.raises(ValueError):
                served.load_packed(keys, *wrong)
        with pytest.raises(TypeError):
            served.load_packed(keys, array("I", [1] * n), lens)


def test_more_pages_than_fit_in_flight(pool):
    with pool.session(entries=16) as s:
        n = 300
        memory = bytearray(os.urandom(n * 4096))
        with s.register(memory) as reg:
            want = bytes(memory)
            addrs = array("Q", range(reg.address, reg.address + n * 4096, 4096))
            lens = array("I", [4096] * n)
            assert s.submit_store_packed(names(n), addrs, lens).result(30).all_ok
            memory[:] = bytes(len(memory))
            ops = [s.submit_load_packed(names(n)[i:i + 20], addrs[i:i + 20], lens[i:i + 20])
                   for i in range(0, n, 20)]
            assert all(op.result(30).all_ok for op in ops)
            assert memory == want


def test_what_the_library_is_told(session, monkeypatch):
    """Depth goes on from part to part of a call, however it is parted; flags and priorities are of all."""
    told = []

    class Listener:
        def __getattr__(self, name):
            return getattr(kvctx._lib.lib, name)

        def kvctx_batch_run(self, handle, b):
            told.append((b.nr, b.depth, b.prio, b.op_flags))
            return kvctx._lib.lib.kvctx_batch_run(handle, b)

        def kvctx_batch_submit(self, handle, b):
            told.append((b.nr, b.depth, b.prio, b.op_flags))
            return kvctx._lib.lib.kvctx_batch_submit(handle, b)

    monkeypatch.setattr(kvctx.session, "lib", Listener())
    monkeypatch.setattr(kvctx.operation, "lib", Listener())
    monkeypatch.setattr(kvctx._lib, "BATCH_RUN_MAX", 4)
    monkeypatch.setattr(session._reaper, "part_pages", 3)
    memory = bytearray(6 * PAGE)
    with session.register(memory) as reg:
        columns = names(6), range(reg.address, reg.address + 6 * PAGE, PAGE), [PAGE] * 6
        session.store_packed(*columns, depth=11, replace=True, prio=kvctx.BACKGROUND).check()
        assert told == [(4, 11, 3, 8), (2, 15, 3, 8)]
        del told[:]
        session.submit_store_packed(*columns, depth=1, verify=False).result(60).check()
        assert told == [(3, 1, 0, 2), (3, 4, 0, 2)]
        del told[:]
        session.submit_load_packed(*columns, prio=kvctx.URGENT).result(60).check()
        assert told == [(3, 0, 1, 0), (3, 0, 1, 0)]
    del told[:]
    session.store(names(6, 10), pages(6), depth=21).check()
    # the first part as it is, which is refused, then with slots to be staged through
    assert [t[:2] for t in told] == [(4, 21), (4, 21), (2, 25)]


def test_stored_once_and_replaced(served):
    served.store(["k"], [b"first"]).check()
    r = served.store(["k"], [b"other"])
    assert list(r) == [5] and r.flags[0] & kvctx._lib.CQE_FLAGS["DEDUP"]
    room = bytearray(5)
    served.load(["k"], [room]).check()
    assert room == b"first"
    served.store(["k"], [b"other"], replace=True).check()
    served.load(["k"], [room]).check()
    assert room == b"other"


def test_unverified(served):
    served.store(["k"], [b"page"], verify=False).check()
    room = bytearray(4)
    r = served.load(["k"], [room])
    assert list(r) == [4] and not r.verified(0) and room == b"page"
    served.store(["v"], [b"page"]).check()
    r = served.load(["v"], [room], verify=False, prio=kvctx.BACKGROUND)
    assert list(r) == [4] and not r.verified(0)


def test_match(served):
    served.store(names(200), pages(200, 100)).check()
    served.delete(["page 7", "page 130"]).check()
    m = served.match(names(201))
    assert (m.count, m.prefix, len(m), m.leased) == (198, 7, 201, False)
    assert list(m.present) == [i not in (7, 130, 200) for i in range(201)]
    assert list(m.lengths) == [100 if p else 0 for p in m.present]
    assert m.present[-1] is False and m.present[5:8] == [True, True, False]
    assert m.present.words[0] == (1 << 64) - 1 - (1 << 7)
    m = served.match(names(201), all=False)
    assert (m.count, m.prefix, sum(m.present)) == (7, 7, 7)
    for n in (1, 63, 64, 65, 128):
        m = served.match(names(n, 8), all=n % 2 == 0)
        assert (m.count, m.prefix) == ((n, n) if n <= 122 else (n - 1, 122)), n
    assert served.match([]).count == 0
    assert served.submit_match(names(7)).result(60).prefix == 7


@pytest.mark.parametrize("keys", [0, 1, 8, 9, 64, 65, 200])
@pytest.mark.parametrize("all", [True, False])
def test_a_match_as_a_number_and_a_bitmap(session, keys, all):
    session.store(names(200), pages(200, 100)).check()
    session.delete(["page 7", "page 130"]).check()
    m = session.match(names(keys), all=all)
    assert m.n == m.count and isinstance(m.bitmap, bytes) and len(m.bitmap) == (keys + 7) // 8
    assert [bool(m.bitmap[i // 8] >> i % 8 & 1) for i in range(keys)] == list(m.present)
    assert sum(bin(byte).count("1") for byte in m.bitmap) == m.n == (
        sum(i not in (7, 130) for i in range(keys)) if all else min(7, keys))


def test_more_keys_than_one_match_takes(session):
    session.info = session.info._replace(match_max=64)
    session.store(names(200), pages(200, 10)).check()
    session.delete(["page 150"]).check()
    m = session.match(names(201), lease=10)
    assert (m.count, m.prefix, len(m._leases)) == (199, 150, 4)
    m.release()
    m = session.match(names(201), all=False)
    assert (m.count, m.prefix) == (150, 150)


def test_leases_of_a_match_that_fails_end(session, monkeypatch):
    """Where it takes several requests, of which a later one fails."""
    session.store(names(201), [b"x"] * 201).check()
    session.info, lib, released = session.info._replace(match_max=64), kvctx._lib.lib, []
    call, release = lib.kvctx_match_all, lib.kvctx_release
    left = iter([call, call])
    monkeypatch.setattr(lib, "kvctx_match_all", lambda *a: next(left, lambda *_: -errno.ENOMEM)(*a))
    monkeypatch.setattr(lib, "kvctx_release", lambda *a: released.append(release(*a)))
    with pytest.raises(kvctx.Error):
        session.match(names(201), lease=10)
    assert released == [0, 0]


def test_a_lease_keeps_pages(pool):
    """A pool too small for all: what is leased stays, what is not goes."""
    with pool.session() as s:
        size = 512 << 10
        others = pages(20, size)
        s.store(names(4), pages(4, size)).check()
        with s.match(names(4), lease=30) as m:
            assert m.leased and m.count == 4
            for i in range(7):  # more than the pool has room for
                s.store(names(20, 100 + 20 * i), others)
            assert 7 * 20 * size > s.info.capacity
            assert s.match(names(4)).count == 4
        assert not m.leased
        m.release()
        for i in range(20):
            s.store(names(20, 1000 + 20 * i), others)
            if s.query(names(4)).ok < 4:
                break
        assert s.match(names(4)).count < 4


def test_a_lease_that_has_run_out_is_no_error(served):
    served.store(["k"], [b"x"]).check()
    import time
    with served.match(["k"], lease=0.01):
        time.sleep(0.1)


def test_prefetch(pool):
    with pool.session(slots=4, slot_bytes=PAGE) as s:
        data, room = pages(8), rooms(8)
        s.store(names(8), data).check()
        with s.match(names(9), lease=20, prefetch=True) as m:
            assert (m.count, m.prefix, m.prefetched, m.leased) == (8, 8, 4, True)
            assert list(m.lengths) == [PAGE] * 8 + [0]
            r = s.load(names(8), room)
        assert room == data
        from_dram = kvctx._lib.CQE_FLAGS["FROM_DRAM"]
        assert [bool(f & from_dram) for f in r.flags] == [True] * 4 + [False] * 4
    with pool.session() as s:
        s.store(names(1), pages(1))
        assert s.match(names(1), prefetch=True).prefetched == 0


def test_delete_and_query(served):
    served.store(names(3), [b"x" * n for n in (1, 20, 300)]).check()
    assert list(served.query(names(4))) == [1, 20, 300, -errno.ENOENT]
    assert list(served.query("page 1")) == [20]
    assert list(served.delete(["page 1", "page 9"])) == [0, -errno.ENOENT]
    assert list(served.query(names(3))) == [1, -errno.ENOENT, 300]
    assert list(served.query([])) == []
    assert list(served.submit_query(names(3)).result(60)) == [1, -errno.ENOENT, 300]
    assert list(served.submit_delete(["page 2", "page 9"]).result(60)) == [0, -errno.ENOENT]
    assert list(served.submit_query(names(3)).result(60)) == [1, -errno.ENOENT, -errno.ENOENT]
    served.flush()
    assert served.submit_flush().result(60) is None


def test_keyspaces_do_not_meet(pool):
    with pool.session(keyspace="a") as a, pool.session(keyspace=b"b") as b:
        a.store(["k"], [b"x"]).check()
        assert a.match(["k"]).count == 1 and b.match(["k"]).count == 0


def test_members_come_and_go(pool, tmp_path):
    more = os.path.join(pool.path, "more")
    data, room, size = pages(20), rooms(20), os.path.getsize(os.path.join(pool.path, "member0"))
    with pool.session() as s:
        s.store(names(20), data).check()
        pool.add(more, size)
        assert os.path.getsize(more) == size
        with pytest.raises(kvctx.Error) as e:
            pool.add(more, size)
        assert e.value.errno == errno.EEXIST
        pool.remove(0)
        assert os.listdir(pool.path) == ["more"]
        s.load(names(20), room).check()
        assert room == data
        with pytest.raises(kvctx.Busy):
            pool.remove(more, drop=True)
        with pytest.raises(kvctx.NotFound):
            pool.remove(tmp_path / "none")


def test_pages_outlive_the_session(pool):
    with pool.session() as s:
        s.store(["k"], [b"x" * 1000]).check()
        s.flush()
    with pool.session(readonly=True) as s:
        room = bytearray(1000)
        assert s.info.readonly
        assert list(s.load(["k"], [room])) == [1000] and room == b"x" * 1000
        assert list(s.store(["l"], [b"x"])) == [-errno.EACCES]
        assert list(s.delete(["k"])) == [-errno.EACCES]


def test_what_is_told(served):
    assert served.info.pool == "kv0" and served.info.tenant == "default"
    assert "verify" in served.info.features and served.info.segs_max >= 64
    assert served.fileno() >= 0 and not served.closed
    assert "default" in repr(served)


def test_pools(pool, daemon, tmp_path):
    assert pool.tenants() == ["default"] == daemon.pool.tenants()
    assert "kv0" in repr(pool)
    again = kvctx.create_pool(pool.path, 1 << 30)
    assert again.path == pool.path and os.path.getsize(os.path.join(pool.path, os.listdir(pool.path)[0])) < 1 << 28
    assert kvctx.create_pool(daemon.pool.path, 64 << 20).tenants() == ["default"]
    assert os.listdir(daemon.pool.path) == ["default"], "a pool of files where one is served"
    for where in kvctx.pool.SERVED:
        with pytest.raises(kvctx.NotFound, match="nobody serves it"):
            kvctx.create_pool(os.path.join(where, "no such pool"), 64 << 20)
    for what, bytes in ((errno.EINVAL, 1 << 20), (errno.ENOSPC, 1 << 60)):
        with pytest.raises(kvctx.Error) as e:
            kvctx.create_pool(tmp_path / "other", bytes)
        assert e.value.errno in (what, errno.EFBIG) and "other" in str(e.value)
    with pytest.raises(kvctx.Error):
        kvctx.create_pool(tmp_path / "no" / "such", 64 << 20)


def test_errors_say_what(pool):
    with pytest.raises(kvctx.NotFound) as e:
        pool.session("stranger")
    assert isinstance(e.value, OSError) and e.value.errno == errno.ENOENT and "stranger" in str(e.value)
    with pytest.raises(kvctx.Error) as e:
        pool.session(entries=1 << 20)
    assert e.value.errno == errno.EINVAL
    with pool.session() as s:
        with pytest.raises(ValueError):
            s.store(["a", "b"], [b"x"])
        with pytest.raises(ValueError):
            s.store(["a"], [b""])
        with pytest.raises(kvctx.Error) as e:
            s.match(["a"], lease=1e6)
        assert e.value.errno == errno.EINVAL
    for call in (lambda: s.match(["a"]), lambda: s.store(["a"], [b"x"]), lambda: s.submit_flush(), s.usage, s.fileno,
                 lambda: s.register(bytearray(9))):
        with pytest.raises(kvctx.Error) as e:
            call()
        assert e.value.errno == errno.EBADF and "closed" in str(e.value)
    s.close()
    assert s.closed and "closed" in repr(s)


@pytest.mark.process
def test_another_process_has_the_pool(pool):
    from conftest import python
    with pool.session():
        r = python("""
import sys, kvctx
try:
    kvctx.Pool(sys.argv[1]).session()
except kvctx.Busy as e:
    print("busy", e.errno)
""", pool.path)
    assert r.stdout.startswith("busy"), r.stderr


def test_damaged_media(home):
    """A page whose bytes have changed on the media is told as EBADMSG and gone."""
    with home.pool.session() as s:
        s.store(["k"], [b"unmistakable" * 1000]).check()
        s.flush()
    with home.unserved() as member, open(member, "r+b") as f:
        whole = f.read()
        at = whole.index(b"unmistakable" * 100)
        f.seek(at + 50)
        f.write(b"!")
    with home.pool.session() as s:
        r = s.load(["k"], [bytearray(12000)])
        assert list(r) == [-errno.EBADMSG]
        with pytest.raises(kvctx.Corrupt):
            r.check()
        assert list(s.load(["k"], [bytearray(12000)])) == [-errno.ENOENT]


@pytest.mark.process
def test_a_session_is_gone_with_who_serves_it(pool, daemon, tmp_path):
    s, through = pool.session(), daemon.pool.session()
    assert s.gone(), "nothing else is in this process's pool"
    assert not through.gone()
    daemon.end(9)
    assert through.gone()
    for closed in (s, through):
        closed.close()
    assert not through.gone()
    pool.add(tmp_path / "another", 64 << 20)
    with pool.session() as s:
        assert not s.gone()


def test_the_daemon_dies(daemon):
    import signal
    with daemon.pool.session(timeout=20) as s:
        s.store(["k"], [b"x"]).check()
        s.flush()
        daemon.end(signal.SIGKILL)
        with pytest.raises(kvctx.Gone):
            s.load(["k"], [bytearray(1)]).check()
    daemon.start()
    with daemon.pool.session() as s:
        assert s.load(["k"], [bytearray(1)]).all_ok


def test_numbers_that_have_no_room_are_refused(pool, session):
    """None may come to C as another number: a page loaded from another byte on is a wrong page."""
    data = bytearray(4096)
    session.store("a", data).check()
    for wrong in ({"depth": 1 << 32}, {"depth": -1}, {"prio": 256}, {"prio": -1}):
        for call in (session.store, session.submit_store):
            with pytest.raises(ValueError):
                call("b", data, **wrong)
    with pytest.raises(ValueError):
        session.store(["b", "c"], [data, data], depth=(1 << 32) - 1)
    for offset in (1 << 64, -1):
        for call in (session.load, session.submit_load):
            with pytest.raises(ValueError):
                call("a", data, offset=offset)
    for lease in (4294967.8, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError):
            session.match("a", lease=lease)
    for wrong in ({"entries": 0}, {"entries": 1 << 32}, {"entries": -1}, {"timeout": -1.0}, {"timeout": float("inf")},
                  {"timeout": float("nan")}, {"timeout": 1e30}, {"arena_bytes": -1}, {"arena_bytes": 1 << 64},
                  {"slots": 1 << 32}, {"slot_bytes": 1 << 32}):
        with pytest.raises(ValueError):
            pool.session(**wrong)


def test_columns_have_whole_numbers(session):
    """Eight bytes of a floating-point number are no address."""
    keys = kvctx.Keys(["a"])
    for addrs, lens in ((array("d", [1.0]), array("I", [8])), (array("Q", [4096]), array("f", [8.0]))):
        for call in (session.load_packed, session.submit_load_packed):
            with pytest.raises(TypeError):
                call(keys, addrs, lens)
