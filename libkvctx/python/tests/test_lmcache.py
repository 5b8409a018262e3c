# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctx.lmcache keeps LMCache's contract for L2 adapters (fakes/lmcache.py), on pools in files and through kvctxd."""
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
from hashlib import sha256
from struct import pack

import pytest

import kvctx
from fakes import lmcache as fake
from kvctx import Keys

fake.install()

from kvctx.lmcache import KvctxL2Adapter  # noqa: E402
from kvctx.lmcache import keys as names  # noqa: E402
from kvctx.lmcache.locks import Locks  # noqa: E402

PAGE = 16384
POOL = {"max_bytes": 64 << 20, "segment_bytes": 1 << 20}
WAIT_MS = 20_000


def object_key(n, **other):
    return fake.ObjectKey(**{"chunk_hash": n.to_bytes(8, "big"), "model_name": "m", "kv_rank": 0, **other})


class L1:
    """Memory as LMCache's L1 has it, and objects in it."""

    def __init__(self, pages=64, size=PAGE):
        self.memory, self.size = mmap.mmap(-1, pages * size), size
        self._view = kvctx.memory.view(self.memory, True)
        self.desc = fake.L1MemoryDesc(self._view.address, pages * size, 4096)

    def objects(self, first, n=1):
        return [fake.MemoryObj(self.desc.ptr + i * self.size, self.size) for i in range(first, first + n)]

    def fill(self, first, n=1):
        for i in range(first, first + n):
            self.memory[i * self.size:(i + 1) * self.size] = os.urandom(self.size)
        return self.objects(first, n)

    def bytes(self, i):
        return self.memory[i * self.size:(i + 1) * self.size]


def numbered(first, n=32):
    return [object_key(i) for i in range(first, first + n)]


class Listener:
    def __init__(self):
        self.stored, self.accessed, self.deleted = [], [], []

    def on_l2_keys_stored(self, keys, sizes):
        self.stored += zip(keys, sizes)

    def on_l2_keys_accessed(self, keys):
        self.accessed += keys

    def on_l2_keys_deleted(self, keys):
        self.deleted += keys


def wait(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(WAIT_MS), "not signalled"
    os.read(fd, 1)


def store(adapter, keys, objects):
    task = adapter.submit_store_task(keys, objects)
    wait(adapter.get_store_event_fd())
    done = adapter.pop_completed_store_tasks()
    assert list(done) == [task]
    return done[task]


def lookup(adapter, keys):
    task = adapter.submit_lookup_and_lock_task(keys, {})
    wait(adapter.get_lookup_and_lock_event_fd())
    bitmap = adapter.query_lookup_and_lock_result(task)
    assert len(bitmap) == len(keys) and adapter.query_lookup_and_lock_result(task) is None
    return bitmap.get_indices_list()


def load(adapter, keys, objects):
    task = adapter.submit_load_task(keys, objects)
    wait(adapter.get_load_event_fd())
    bitmap = adapter.query_load_result(task)
    assert len(bitmap) == len(keys) and adapter.query_load_result(task) is None
    return bitmap.get_indices_list()


@pytest.fixture
def l1():
    return L1()


@pytest.fixture
def path(pool):
    return os.path.join(pool.path, "default")


@pytest.fixture
def adapter(path, l1):
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    yield a
    a.close()


# names

def test_every_field_of_a_key_counts():
    keys = [object_key(1), object_key(2), object_key(1, model_name="n"), object_key(1, kv_rank=1),
            object_key(1, object_group_id=1), object_key(1, cache_salt="s"), object_key(1, chunk_hash=b"\0" * 9),
            object_key(1, chunk_hash=b""), object_key(1, model_name="", cache_salt="m"),
            object_key(1, kv_rank=(255 << 24) + 1), object_key(1, chunk_hash=bytes(40))]
    packed = names.names(names.pack(keys))
    assert len(set(packed)) == len(keys) and all(len(name) == 40 for name in packed)
    assert names.names(names.pack(keys[::-1])) == packed[::-1]
    assert [names.names(names.pack([key]))[0] for key in keys] == packed
    for other in ({"model_name": "n"}, {"cache_salt": "s"}, {"chunk_hash": bytes(16)}):
        pair = [object_key(1), object_key(1, **other)]
        assert names.pack(pair)[:1] == names.pack(pair[:1]) and names.pack(pair)[1:] == names.pack(pair[1:])
    alike = [object_key(n, kv_rank=n) for n in range(5)]
    assert names.names(names.pack(alike + keys))[:5] == names.names(names.pack(alike))
    assert names.pack(alike)[1:] == names.pack(alike[1:])
    assert len(names.pack([])) == 0


@pytest.mark.parametrize("size", [4, 8, 16, 20, 32, 33])
def test_names_are_what_they_always_were(size):
    """What is on media is found by no other name. Keys are alike, or differ in all but the hash's length."""
    def name(key):
        digest = key.chunk_hash.ljust(32, b"\0") if size <= 32 else sha256(key.chunk_hash).digest()
        mask = sha256(f"{key.model_name}@{key.cache_salt}@{size}".encode()).digest()
        return bytes(a ^ b for a, b in zip(digest, mask)) + pack("=Q", key.kv_rank | key.object_group_id << 48)

    hashes = [sha256(b"%d" % n).digest().ljust(size, b"x")[:size] for n in range(9)]
    alike = [fake.ObjectKey(chunk_hash, "m", 1 << 40 | n, 7, "s") for n, chunk_hash in enumerate(hashes)]
    other = [fake.ObjectKey(key.chunk_hash, "".join(["m", "" if n & 1 else "n"]), n, n & 2, "" if n & 4 else "s")
             for n, key in enumerate(alike)]
    for keys in (alike, alike[:1], other, alike + other):
        assert names.names(names.pack(keys)) == [name(key) for key in keys]


def test_keys_out_of_range_are_refused():
    with pytest.raises(ValueError):
        names.pack([object_key(1, object_group_id=1 << 16)])
    with pytest.raises(ValueError):
        names.pack([object_key(1, kv_rank=1 << 48)])


# tasks

def test_store_lookup_load(adapter, l1):
    keys = [object_key(n) for n in range(8)]
    result = store(adapter, keys, l1.fill(0, 8))
    assert result.is_successful() and result.bytes_transferred() == 8 * PAGE
    assert lookup(adapter, keys) == list(range(8))
    assert load(adapter, keys, l1.objects(8, 8)) == list(range(8))
    assert all(l1.bytes(n) == l1.bytes(8 + n) for n in range(8))
    status = adapter.report_status()
    assert status["is_healthy"] and status["stored_object_count"] == status["loaded_object_count"] == 8
    assert status["copied_object_count"] == 0 and status["l1_bytes_registered"] == l1.desc.size


def test_event_fds_differ_and_unknown_tasks_have_no_result(adapter):
    fds = [adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()]
    assert len(set(fds)) == 3
    assert adapter.query_lookup_and_lock_result(7) is None and adapter.query_load_result(7) is None
    assert adapter.pop_completed_store_tasks() == {}


def test_what_is_missing_is_told_by_bit(adapter, l1):
    keys = [object_key(n) for n in range(6)]
    store(adapter, keys[1:5:2], l1.fill(0, 2))
    assert lookup(adapter, keys) == [1, 3]
    assert load(adapter, keys, l1.objects(8, 6)) == [1, 3]
    assert l1.bytes(9) == l1.bytes(0) and l1.bytes(11) == l1.bytes(1)
    assert lookup(adapter, keys[4:]) == [] and load(adapter, keys[4:], l1.objects(8, 2)) == []
    assert lookup(adapter, []) == [] and load(adapter, [], []) == []


def test_tasks_of_any_length(path):
    l1, n = L1(pages=2 * 3000, size=512), 3000
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    assert store(a, numbered(0, n), l1.fill(0, n)).bytes_transferred() == n * 512
    assert lookup(a, numbered(0, n)) == list(range(n))
    assert load(a, numbered(0, n), l1.objects(n, n)) == list(range(n))
    assert l1.memory[:n * 512] == l1.memory[n * 512:]
    a.close()


def test_a_page_that_is_there_is_not_stored_again(adapter, l1):
    heard = Listener()
    adapter.register_listener(heard)
    keys = [object_key(n) for n in range(3)]
    store(adapter, keys[:2], l1.fill(0, 2))
    result = store(adapter, keys, l1.fill(2, 3))
    assert result.is_successful() and result.bytes_transferred() == PAGE
    assert [key for key, _ in heard.stored] == keys and adapter.get_usage().total_bytes_used == 3 * PAGE
    load(adapter, keys[:1], l1.objects(8))
    assert l1.bytes(8) == l1.bytes(0)


def test_a_page_too_long_fails_the_task(path):
    l1 = L1(pages=2, size=2 << 20)  # segments have 1 MiB
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    assert not store(a, [object_key(1)], l1.fill(0)).is_successful()
    assert lookup(a, [object_key(1)]) == [] and a.report_status()["failed_object_count"] == 1
    a.close()


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("size", [PAGE // 2, 2 * PAGE])
def test_a_page_of_another_length_is_a_miss_and_goes(adapter, l1, locked, size):
    keys = [object_key(1), object_key(2)]
    store(adapter, keys, [fake.MemoryObj(l1.desc.ptr, size)] + l1.fill(4))
    if locked:
        assert lookup(adapter, keys) == [0, 1]
    assert load(adapter, keys, l1.objects(8, 2)) == [1]
    assert lookup(adapter, keys) == [1]
    assert adapter.get_usage().total_bytes_used == PAGE


def test_memory_outside_of_l1_is_copied(path, l1):
    for desc in (None, fake.L1MemoryDesc(l1.desc.ptr, PAGE, 4096)):
        a = KvctxL2Adapter({"path": path, **POOL}, desc)
        keys = [object_key(n) for n in range(2, 5)]
        assert store(a, keys, l1.fill(2, 3)).is_successful()
        assert load(a, keys, l1.objects(8, 3)) == [0, 1, 2]
        assert [l1.bytes(n) for n in (8, 9, 10)] == [l1.bytes(n) for n in (2, 3, 4)]
        assert a.report_status()["copied_object_count"] == 6
        a.delete(keys)
        a.close()


def test_l1_that_cannot_be_registered_is_said(path, l1, monkeypatch):
    def refuse(self, buffer):
        raise kvctx.errors.error(-12, "register")

    monkeypatch.setattr(kvctx.Session, "register", refuse)
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    assert store(a, [object_key(1)], l1.fill(0)).is_successful()
    status = a.report_status()
    assert status["is_healthy"] and not status["l1_bytes_registered"] and "registered" in status["l1_trouble"]
    a.close()


def test_threads(adapter):
    l1s, wrong = [L1(pages=8) for _ in range(4)], []

    def work(i):
        mine = l1s[i]
        for r in range(20):
            keys = [object_key(1000 * i + 10 * r + n) for n in range(4)]
            tasks = [adapter.submit_store_task(keys, mine.fill(0, 4))]
            while tasks:
                with lock:
                    done.update(adapter.pop_completed_store_tasks())
                    tasks = [t for t in tasks if t not in done]
            task = adapter.submit_lookup_and_lock_task(keys, {})
            found = adapter.query_lookup_and_lock_result(task)
            task, loaded = adapter.submit_load_task(keys, mine.objects(4, 4)), None
            while loaded is None:
                loaded = adapter.query_load_result(task)
            adapter.submit_unlock(keys)
            if found.popcount() != 4 or loaded.popcount() != 4 or mine.memory[:4 * PAGE] != mine.memory[4 * PAGE:]:
                wrong.append((i, r))

    lock, done = threading.Lock(), {}
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in threads) and len(done) == 80
    assert all(result.is_successful() for result in done.values()) and len(adapter._locks) == 0


# locks

class Match:
    def __init__(self, lengths, ended, leased=True):
        self.lengths, self._ended, self.leased = lengths, ended, leased

    def release(self):
        self._ended.append(self)


def test_a_lease_ends_with_its_last_key():
    locks, ended, keys = Locks(), [], Keys(["a", "b", "c"])
    a, b, c = names.names(keys)
    first, second = Match([1, 2, 0], ended), Match([1, 2, 0], ended)
    locks.add(first, keys)
    locks.add(second, keys)
    assert len(locks) == 4 and locks.lengths([b, c]) == [2, 0]
    locks.unlock([a, c])
    locks.unlock([b])
    assert ended == [first] and len(locks) == 2
    locks.unlock([b])
    locks.unlock([b])
    assert ended == [first] and locks.lengths([b]) == [0]
    locks.clear()
    assert ended == [first, second] and len(locks) == 0


def test_leases_are_renewed_until_the_hold_is_over():
    asked, ended = [], []

    class Session:
        def match(self, keys, lease):
            asked.append((list(keys), lease))
            return Match([1] * len(keys), ended)

    keys = Keys(["a", "b"])
    locks, first = Locks(lease_s=60, hold_s=600), Match([1, 1], ended)
    locks.add(first, keys)
    hold = locks._holds[0]
    locks.renew(Session())
    assert not asked
    locks.unlock(names.names(keys)[:1])
    hold.leased -= 31
    locks.renew(Session())
    assert asked == [(list(keys[1:]), 60)] and ended == [first] and len(locks) == 1
    hold.begun -= 601
    locks.renew(Session())
    assert len(locks) == 0 and ended == [first, hold.match] and len(asked) == 1


def test_a_lease_is_renewed_where_a_session_has_none_to_spare():
    """Of more than half the pages that a session may lease there cannot be two at once."""
    ended, keys = [], Keys(["a", "b"])

    class Session:
        def match(self, keys, lease):
            return Match([1] * len(keys), ended, leased=first in ended)

    locks, first = Locks(lease_s=60), Match([1, 1], ended)
    locks.add(first, keys)
    hold = locks._holds[0]
    hold.leased -= 31
    locks.renew(Session())
    assert first in ended and hold.match.leased and hold.match not in ended and len(locks) == 2


def test_locks_keep_their_share_of_the_pool(adapter, l1):
    """A lease has a limit, so locks beyond it keep nobody from storing: what was locked longest goes first."""
    end = 0
    while end * PAGE < 2 * POOL["max_bytes"]:
        assert store(adapter, numbered(end), l1.fill(0, 32)).is_successful()
        assert lookup(adapter, numbered(end)) == list(range(32))
        end += 32
    there = [len(load(adapter, numbered(n), l1.objects(0, 32))) for n in range(0, end, 32)]
    assert there[0] == 0 and there[-1] == 32
    assert sum(there) * PAGE > POOL["max_bytes"] / 4
    adapter.submit_unlock(numbered(0, end))
    assert len(adapter._locks) == 0
    assert store(adapter, numbered(end + 32), l1.fill(0, 32)).is_successful()


@pytest.mark.parametrize("events", [True, False])
def test_what_is_evicted_is_reported(adapter, l1, events):
    heard, end = Listener(), 0
    adapter._keeper.close()  # nobody ticks but this test
    adapter.register_listener(heard)
    session = adapter._link.session
    assert "events" in session.info.features
    if not events:
        session.info = session.info._replace(features=())
    while adapter.report_status()["stored_object_count"] == end:
        assert store(adapter, numbered(end), l1.fill(0, 32)).is_successful()
        end += 32
        assert end * PAGE < 2 * POOL["max_bytes"], "nothing is evicted"
    for _ in range(100):  # kvctx may be about to evict more
        adapter._keeper._stored = adapter._keeper._audit_bytes
        here = adapter.report_status()["stored_object_count"]
        adapter._keeper.tick()
        if here == adapter.report_status()["stored_object_count"]:
            break
        time.sleep(0.05)
    assert len(heard.deleted) == end - here > 0 and not lookup(adapter, heard.deleted)
    assert sum(adapter.get_usage().bytes_by_cache_salt.values()) == here * PAGE
    assert adapter.report_status()["evicted_object_count"] == len(heard.deleted)


def test_missed_events_are_made_up_for(adapter, l1):
    heard = Listener()
    adapter._keeper.close()  # nobody ticks but this test
    adapter.register_listener(heard)
    store(adapter, numbered(0), l1.fill(0, 32))
    session = adapter._link.session
    session.delete(names.pack(numbered(0, 3))).check()
    while session.events().events:
        pass  # taken by somebody else
    adapter._keeper.tick()
    assert not heard.deleted
    taken = session.events

    def missed(most):
        session.events = taken
        return taken(most)._replace(lost=1)

    session.events = missed
    adapter._keeper.tick()
    assert heard.deleted == numbered(0, 3)


def test_a_page_that_another_deletes_is_reported_once(adapter, l1):
    heard = Listener()
    adapter._keeper.close()  # nobody ticks but this test
    adapter.register_listener(heard)
    keys = numbered(0, 4)
    store(adapter, keys, l1.fill(0, 4))
    adapter._link.session.delete(names.pack(keys[:2])).check()
    adapter.delete(keys[1:3])
    adapter._keeper.tick()
    assert sorted(heard.deleted, key=str) == keys[:3]
    store(adapter, keys, l1.objects(0, 4))
    adapter._link.session.delete(names.pack(keys)).check()
    store(adapter, keys, l1.objects(0, 4))
    adapter._keeper.tick()
    assert adapter.get_usage().bytes_by_cache_salt == {"": 4 * PAGE}


def test_the_keeper_ticks_by_itself(path, l1, monkeypatch):
    monkeypatch.setattr("kvctx.lmcache.keeper.KEEP_S", 0.01)
    a, told = KvctxL2Adapter({"path": path, **POOL}, l1.desc), threading.Event()
    monkeypatch.setattr(a, "_notify_keys_deleted", lambda keys, sizes: told.set())
    store(a, numbered(0, 1), l1.fill(0))
    a._link.session.delete(names.pack(numbered(0, 1))).check()
    assert told.wait(WAIT_MS / 1000)
    a.close()


# deletion, accounts

def test_delete_usage_and_listeners(adapter, l1):
    heard = Listener()
    adapter.register_listener(heard)
    keys = [object_key(1, cache_salt="a"), object_key(2, cache_salt="a"), object_key(3, cache_salt="b")]
    assert adapter.get_usage().total_bytes_used == 0 and adapter.get_usage().total_capacity_bytes > 0
    store(adapter, keys, l1.fill(0, 3))
    assert heard.stored == [(key, PAGE) for key in keys]
    assert adapter.get_usage().bytes_by_cache_salt == {"a": 2 * PAGE, "b": PAGE}
    load(adapter, keys[:1] + [object_key(9)], l1.objects(8, 2))
    assert heard.accessed == keys[:1]
    adapter.delete([keys[0], object_key(9), keys[2]])
    assert heard.deleted == [keys[0], keys[2]] and lookup(adapter, keys) == [1]
    assert adapter.get_usage().bytes_by_cache_salt == {"a": PAGE}
    assert adapter.get_usage().total_bytes_used == PAGE
    adapter.delete([])


def test_pages_of_an_earlier_process_are_served_and_counted(path, l1):
    keys = [object_key(1), object_key(2)]
    first = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    store(first, keys, l1.fill(0, 2))
    first.close()
    heard = Listener()
    a = KvctxL2Adapter({"path": path}, l1.desc)
    a.register_listener(heard)
    usage = a.get_usage()
    assert (usage.total_bytes_used, usage.bytes_by_cache_salt) == (2 * PAGE, {})
    assert load(a, keys, l1.objects(8, 2)) == [0, 1] and l1.bytes(8) == l1.bytes(0)
    a.delete(keys)
    assert heard.deleted == keys and a.get_usage().total_bytes_used == 0
    a.close()


def test_another_keyspace_does_not_see_them(path, l1):
    first = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    store(first, [object_key(1)], l1.fill(0))
    first.close()
    a = KvctxL2Adapter({"path": path, "keyspace": "fp8"}, l1.desc)
    assert lookup(a, [object_key(1)]) == []
    a.close()


# failures

def test_a_page_damaged_on_media_is_a_miss(home, path, l1):
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    keys = [object_key(n) for n in range(3)]
    store(a, keys, l1.fill(0, 3))
    a.close()
    with home.unserved() as member, open(member, "r+b") as f:
        at = f.read().index(l1.bytes(1)[:512])
        f.seek(at + 100)
        byte = f.read(1)
        f.seek(at + 100)
        f.write(bytes([byte[0] ^ 1]))
    a = KvctxL2Adapter({"path": path}, l1.desc)
    assert lookup(a, keys) == [0, 1, 2]
    assert load(a, keys, l1.objects(8, 3)) == [0, 2]
    assert l1.bytes(8) == l1.bytes(0) and l1.bytes(10) == l1.bytes(2)
    assert a.report_status()["corrupt_object_count"] == 1 and lookup(a, keys) == [0, 2]
    a.close()


def test_close_waits_and_results_stay(path, l1):
    a = KvctxL2Adapter({"path": path, **POOL}, l1.desc)
    keys = [object_key(n) for n in range(64)]
    task = a.submit_store_task(keys, l1.fill(0, 64))
    a.close()
    a.close()
    assert a.pop_completed_store_tasks()[task].is_successful()
    task = a.submit_store_task(keys, l1.objects(0, 64))
    assert not a.pop_completed_store_tasks()[task].is_successful()
    assert a.query_lookup_and_lock_result(a.submit_lookup_and_lock_task(keys, {})).popcount() == 0
    a.submit_unlock(keys)
    a.delete(keys)
    assert not a.report_status()["is_healthy"]


_KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_lmcache import L1, POOL, KvctxL2Adapter, numbered, store
l1 = L1()
a = KvctxL2Adapter({"path": sys.argv[2], **POOL}, l1.desc)
assert store(a, numbered(0, 4), l1.objects(0, 4)).is_successful()
a._keeper._flushed -= 6
a._keeper.tick()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_what_it_stored(path, l1):
    here = os.path.dirname(os.path.abspath(__file__))
    assert subprocess.run([sys.executable, "-c", _KILLED, here, path]).returncode == -signal.SIGKILL
    a = KvctxL2Adapter({"path": path}, l1.desc)
    assert lookup(a, numbered(0, 4)) == [0, 1, 2, 3]
    a.close()


def test_a_daemon_that_dies_costs_misses_until_it_is_back(daemon, l1):
    a = KvctxL2Adapter({"path": daemon.pool.path + "/default"}, l1.desc)
    a._keeper.close()  # nobody ticks but this test
    keys = [object_key(n) for n in range(4)]
    assert store(a, keys, l1.fill(0, 4)).is_successful() and lookup(a, keys) == [0, 1, 2, 3]
    assert a.report_status()["backend"] == "daemon"
    a._link.session.flush()
    daemon.end(signal.SIGKILL)
    assert lookup(a, keys) == [] and load(a, keys, l1.objects(8, 4)) == []
    assert not store(a, [object_key(9)], l1.objects(0)).is_successful()
    a._keeper.tick()
    assert not a.report_status()["is_healthy"]
    daemon.start()
    a._keeper.tick()
    status = a.report_status()
    assert status["is_healthy"] and status["sessions_reopened"] == 1
    assert load(a, keys, l1.objects(8, 4)) == [0, 1, 2, 3] and l1.bytes(8) == l1.bytes(0)
    a.close()


@pytest.mark.process
def test_a_member_that_is_lost_costs_its_pages_only(lossy, l1):
    """The session may be what keeps the pool attached: without it nobody could open another."""
    a = KvctxL2Adapter({"path": os.path.join(lossy.path, "default")}, l1.desc)
    keys, session = numbered(0, 4), a._link.session
    store(a, keys, l1.fill(0, 4))
    for _ in range(2):
        assert load(a, keys, l1.objects(8, 4)) == [1, 2, 3]
        a._keeper.tick()
        assert a.report_status()["is_healthy"] and a._link.session is session and not session.closed
    a.close()


@pytest.mark.parametrize("params", [{}, {"path": 7}, {"path": "/x/y", "max_byte": 1}, {"path": "/x/y", "max_bytes": -1},
                                    {"path": "/x/y", "entries": "many"}, {"path": "/x/y", "max_bytes": True}])
def test_wrong_parameters_are_refused(params):
    with pytest.raises(ValueError):
        KvctxL2Adapter(params)


@pytest.mark.process
def test_a_pool_is_made_only_with_a_size_and_a_folder_for_it(tmp_path):
    path = str(tmp_path / "kv0" / "default")
    with pytest.raises(kvctx.NotFound):
        KvctxL2Adapter({"path": path})
    with pytest.raises(kvctx.NotFound):
        KvctxL2Adapter({"path": str(tmp_path / "absent" / "kv0" / "default"), **POOL})
    assert not os.listdir(tmp_path)
    KvctxL2Adapter({"path": path, **POOL}).close()


def test_a_listener_that_fails_does_not_keep_a_task_from_its_end(adapter, l1):
    """LMCache holds the objects of a task, and their memory, until it hears of its end."""
    class Failing:
        def __getattr__(self, name):
            raise RuntimeError(name)

    keys = numbered(0, 4)
    adapter.register_listener(Failing())
    assert store(adapter, keys, l1.fill(0, 4)).is_successful()
    assert lookup(adapter, keys) == [0, 1, 2, 3]
    assert load(adapter, keys, l1.objects(4, 4)) == [0, 1, 2, 3]
    assert l1.bytes(5) == l1.bytes(1)
    adapter.delete(keys)
    assert lookup(adapter, keys) == []


def test_tasks_without_keys_end(adapter):
    assert store(adapter, [], []).is_successful()
    assert lookup(adapter, []) == load(adapter, [], []) == []


def test_a_call_on_the_session_before_does_not_end_the_one_after(daemon, l1):
    """It was closed while the call was on its way: that is no reason to close another."""
    a = KvctxL2Adapter({"path": daemon.pool.path + "/default"}, l1.desc)
    try:
        a._keeper.close()  # nobody ticks but this test
        old = a._link.session
        a._link.lost = True
        a._keeper.tick()
        assert a._link.mended == 1 and a._link.session is not old
        with pytest.raises(kvctx.Error) as e:
            old.match(["a"])
        a._trouble("lookup", e.value)
        a._keeper.tick()
        assert a._link.mended == 1
    finally:
        a.close()


def test_what_was_gone_is_not_said_of_the_session_after(adapter, monkeypatch):
    """Another thread mends it between the question and the answer."""
    link = adapter._link
    old = link.session

    def slow(s):
        assert s is old and link.mend() is None
        return True

    with monkeypatch.context() as m:
        m.setattr(kvctx.Session, "gone", slow)
        link.failed(kvctx.Gone())
    assert not link.lost and link.mended == 1 and link.session is not old and not link.session.closed
