# SPDX-License-Identifier: LGPL-2.1-or-later
"""Session.events(): what comes and goes in a keyspace."""
import errno

import pytest

import kvctx
from kvctx import Event, Key


def test_what_happened(place):
    with place.session(keyspace="m") as s, place.session(keyspace="m", readonly=True) as ear:
        assert "events" in ear.info.features
        s.store(["before"], [b"x"]).check()
        assert ear.events() == ([], 0)
        key = Key(b"\1" * 32, 0x0102030405060708)
        s.store([key, "b"], [b"x" * 5000, b"y"]).check()
        s.store([key], [b"z" * 70], replace=True).check()
        s.delete([key]).check()
        told, lost = ear.events()
        assert lost == 0 and len(told) == 4
        assert [e for e in told if e.key == key] == [
            Event("stored", key, 5000), Event("stored", key, 70), Event("deleted", key, 70)]
        assert Event("stored", Key.of("b"), 1) in told
        assert ear.events() == ([], 0)


def test_some_at_a_time(place):
    with place.session(keyspace="m") as s:
        assert s.events(0) == ([], 0)
        for n in range(10):
            s.store([f"p{n}"], [b"x"]).check()
        assert [e.key for e in s.events(4).events] == [Key.of(f"p{n}") for n in range(4)]
        assert [e.key for e in s.events().events] == [Key.of(f"p{n}") for n in range(4, 10)]


def test_of_no_other_keyspace(place):
    with place.session(keyspace="m") as s, place.session(keyspace="n") as ear:
        ear.events()
        s.store(["p"], [b"x"]).check()
        assert ear.events() == ([], 0)


def test_too_late(pool):
    with pool.session(keyspace="m") as s:
        s.events()
        keys, most = kvctx.Keys([f"p{n}" for n in range(300)]), s.info.events_max
        rounds = most // (2 * len(keys)) + 1
        for _ in range(rounds):
            s.store(keys, [b"x"] * len(keys)).check()
            s.delete(keys).check()
        happened = (["stored"] * len(keys) + ["deleted"] * len(keys)) * rounds
        assert len(happened) > most
        told, lost = s.events(1 << 30)
        assert (len(told), lost) == (most, len(happened) - most)
        assert [e.kind for e in told] == happened[lost:]


def test_closed(pool):
    s = pool.session()
    s.close()
    with pytest.raises(kvctx.Error) as e:
        s.events()
    assert e.value.errno == errno.EBADF
