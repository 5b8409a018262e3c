# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process's life: fork(), the interpreter's end with operations in flight, what the environment names."""
import errno
import gc
import os
import signal
import sys
import threading
import time
import weakref
from array import array

import pytest

import kvctx
from conftest import python

BUSY = """
import sys, os, threading, kvctx
from array import array
pool = kvctx.Pool(sys.argv[1])
s = pool.session(entries=64)
n = 2000
memory = bytearray(n * 4096)
reg = s.register(memory)
keys = kvctx.Keys([str(i) for i in range(n)])
columns = keys, array("Q", range(reg.address, reg.address + n * 4096, 4096)), array("I", [4096] * n)
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)",
                                 "threading.Thread(target=lambda: s.load_packed(*columns)).start()",
                                 "op.add_done_callback(lambda op: print('done', op.result().ok))"],
                         ids=["as it is", "exit", "thread", "callback"])
def test_the_interpreter_ends_with_operations_in_flight(place, end):
    r = python(BUSY + "op = s.submit_store_packed(*columns)\n" + end, place.path)
    assert r.returncode == 0 and "Traceback" not in r.stderr, r.stderr
    assert "done 2000" in r.stdout or "print" not in end
    with place.session() as s:
        assert s.match(kvctx.Keys([str(i) for i in range(2000)])).count == 2000


@pytest.mark.parametrize("what", ["s.load(['a'], [memory])", "s.submit_load(['a'], [memory])"])
def test_the_interpreter_ends_while_a_device_does_not_answer(place, what):
    """Of two sessions: what they wait for at the end is one time for all, and memory in use is left alone."""
    r = python("""
import signal, sys, threading, time, kvctx
kvctx.session.CLOSE_SECONDS = 0.5
class Memory(bytearray):
    def __del__(self):
        print("freed")
def hangs(*_):
    called.set()
    time.sleep(60)
def use(s, memory):
    s.register(memory)
    %s
    called.set()
sessions = [kvctx.Pool(sys.argv[1]).session() for _ in "ab"]
for s in sessions:
    s.store(["a"], [bytes(4096)]).check()
lib = kvctx._lib.lib
lib.kvctx_batch_run, lib.kvctx_wait, lib.kvctx_take = hangs, lambda *_: time.sleep(0.05) or -62, lambda *_: 0
for s in sessions:
    called = threading.Event()
    threading.Thread(target=use, args=(s, Memory(4096)), daemon=True).start()
    assert called.wait(30)
del s, sessions
signal.alarm(20)
""" % what, place.path)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")


@pytest.mark.parametrize("what", ["", "op = s.submit_store_packed(*columns)"], ids=["idle", "in flight"])
def test_the_interpreter_ends_while_kvctxd_is_stopped(daemon, what):
    r = python(BUSY + """
import signal
kvctx.session.CLOSE_SECONDS = 1
s.store_packed(*columns)
s.submit_flush().result()
os.kill(int(sys.argv[2]), signal.SIGSTOP)
signal.alarm(20)
""" + what, daemon.pool.path, daemon.process.pid)
    daemon.process.send_signal(signal.SIGCONT)
    assert (r.returncode, r.stdout) == (0, ""), r.stderr
    with daemon.pool.session() as s:
        assert s.match(kvctx.Keys([str(i) for i in range(2000)])).count == 2000


@pytest.mark.process
def test_all_sessions_end_when_the_end_of_one_is_interrupted(pool):
    r = python("""
import sys, kvctx
from kvctx.session import Session
sessions = [kvctx.Pool(sys.argv[1]).session() for _ in "abc"]
def close(self, by, ended=[], close=Session._close):
    ended.append(self)
    print(len(ended))
    if len(ended) == 1:
        kvctx.session._never_freed.append(Memory())
        raise KeyboardInterrupt
    close(self, by)
class Memory:
    def __del__(self):
        print("freed")
Session._close = close
""", pool.path)
    assert (r.returncode, r.stdout) == (0, "1\n2\n3\n") and "KeyboardInterrupt" in r.stderr


def test_what_is_never_freed_outlives_the_interpreter():
    r = python("""
import kvctx
class Memory:
    def __del__(self):
        print("freed")
kvctx.session._never_freed.append(Memory())
""")
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")


def test_a_child_of_fork_is_told(place):
    r = python(BUSY + """
import errno
s.store_packed(*columns)
op = s.submit_load_packed(*columns)
m = s.match(keys, lease=30)
child = os.fork()
if not child:
    bad = 0
    for call in (lambda: s.match(keys), lambda: s.load_packed(*columns), s.submit_flush, s.usage, s.flush, op.result,
                 lambda: s.register(bytearray(5)), op.exception, s.drain):
        try:
            call()
            bad += 1
        except kvctx.Error as e:
            bad += e.errno != errno.EBADF
    m.release()
    s.close()
    s.close()
    os._exit(bad)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert op.result(20).all_ok
m.release()
# another child ends as a program does
child = os.fork()
if not child:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert s.load_packed(*columns).all_ok
print("good")
""", place.path)
    assert r.stdout == "good\n", r.stderr


def test_a_child_may_have_a_session_of_its_own(shared):
    with shared.session() as s:
        s.store(["k"], [b"x"]).check()
        child = os.fork()
        if not child:
            code = 1
            try:
                with shared.session() as mine:
                    code = int(not mine.load(["k"], [bytearray(1)]).all_ok)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert s.load(["k"], [bytearray(1)]).all_ok


@pytest.mark.process
def test_who_has_started_kvctxd_may_still_fork_who_serves_a_pool(tmp_path):
    """As the tests with vLLM do: kvctxd.py has no session."""
    r = python("""
import os, sys, kvctx
sys.path.insert(0, sys.argv[1])
from kvctxd import Daemon
daemon = Daemon(16 << 20)
kvctx.create_pool(sys.argv[2], 16 << 20)
child = os.fork()
if not child:
    kvctx.Pool(sys.argv[2]).session().close()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
daemon.remove()
sys.exit(status)
""", os.path.dirname(__file__), tmp_path / "kv1")
    assert r.returncode == 0, r.stderr


def test_the_library_is_named_by_the_environment(tmp_path):
    """KVCTX_LIBRARY decides alone."""
    r = python("import kvctx", env={**os.environ, "KVCTX_LIBRARY": str(tmp_path / "none.so")})
    assert r.returncode != 0 and "ImportError" in r.stderr and "none.so" in r.stderr


def test_errors_have_a_number():
    for kind, number in ((kvctx.NotFound, errno.ENOENT), (kvctx.Corrupt, errno.EBADMSG), (kvctx.NoSpace, errno.ENOSPC),
                         (kvctx.Busy, errno.EBUSY), (kvctx.Gone, errno.ENODEV), (kvctx.Error, errno.ETIME)):
        e = kvctx.errors.error(-number, "what")
        assert type(e) is kind and e.errno == number and str(e).endswith(e.strerror) and "what: " in str(e)


@pytest.mark.parametrize("what", ["wait", "submit"])
def test_a_session_survives_interruptions(pool, what, monkeypatch):
    """Ctrl-C at any moment: nobody waits for what was interrupted, neither a later call nor the end."""
    class Interrupted(BaseException):
        pass

    def handler(*_):
        if inside:
            raise Interrupted

    inside = False
    # what is raised in a destructor is told to this; pytest's would be interrupted in its turn
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    s, memory = pool.session(entries=64), bytearray(4096)
    reg, key = s.register(memory), kvctx.Keys(["a"])
    columns = key, array("Q", [reg.address]), array("I", [4096])
    s.store_packed(*columns).check()
    count, former = 0, signal.signal(signal.SIGPROF, handler)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        while count < 300:
            try:
                try:
                    inside = True
                    while True:
                        if what == "wait":
                            s.query(key)
                            s.load_packed(*columns)
                            s.usage()
                        else:
                            s.submit_load_packed(*columns)
                except Interrupted:
                    inside = False
            except Interrupted:  # again, before that line: Python 3.9 looks for signals there
                inside = False
            count += 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
    assert sys.version_info < (3, 10) or not s._inside and not s._reaper._starting, "a call seems to go on"
    assert s.drain(20), "something is in flight for ever"
    assert s.submit_load_packed(*columns).result(20).all_ok
    assert not s._reaper._parts and not s._reaper._waiting
    monkeypatch.setattr(kvctx.session, "CLOSE_SECONDS", 0.0)  # nothing has to be waited for
    kept = len(kvctx.session._never_freed)
    s.close()
    assert s.closed and len(kvctx.session._never_freed) == kept


@pytest.mark.parametrize("submitted", [False, True])
def test_who_is_interrupted_twice_leaves_nothing(pool, monkeypatch, submitted):
    """The second time while what was interrupted is let go of."""
    s, memory = pool.session(), bytearray(4096)
    reg, key = s.register(memory), kvctx.Keys(["a"])
    columns = key, array("Q", [reg.address]), array("I", [4096])
    s.store_packed(*columns).check()
    call = kvctx._lib.lib.kvctx_batch_submit

    def interrupted(*arguments):
        if submitted:
            call(*arguments)
        raise KeyboardInterrupt

    def again(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(kvctx._lib.lib, "kvctx_batch_submit", interrupted)
        m.setattr(s._reaper, "_interrupted", again)
        with pytest.raises(KeyboardInterrupt):
            s.submit_load_packed(*columns)
    assert s.drain(10)
    assert s.submit_load_packed(*columns).result(60).all_ok
    s.close()


def test_a_handler_does_not_close_under_a_call(pool):
    s, key = pool.session(), kvctx.Keys(["a"])
    seen = []

    def handler(*_):
        with pytest.raises(RuntimeError):
            s.close()
        seen.append(1)

    former = signal.signal(signal.SIGUSR1, handler)
    call = kvctx._lib.lib.kvctx_query
    try:
        kvctx._lib.lib.kvctx_query = lambda *a: signal.raise_signal(signal.SIGUSR1) or call(*a)
        assert list(s.query(key)) == [-errno.ENOENT] and seen
    finally:
        kvctx._lib.lib.kvctx_query = call
        signal.signal(signal.SIGUSR1, former)
    s.close()
    assert s.closed


def test_close_waits_for_a_call_of_another_thread(pool, monkeypatch):
    started, ended, call = threading.Event(), [], kvctx._lib.lib.kvctx_query

    def slow(*arguments):
        started.set()
        time.sleep(0.3)
        ended.append(call(*arguments))
        return ended[0]

    monkeypatch.setattr(kvctx._lib.lib, "kvctx_query", slow)
    s = pool.session()
    thread = threading.Thread(target=s.query, args=("a",))
    thread.start()
    assert started.wait(60)
    s.close()
    assert ended == [-errno.ENOENT] and s.closed
    thread.join()


def test_a_session_that_was_closed_goes_with_its_last_name(pool):
    """Nothing in it refers to itself, so memory does not wait for the collector."""
    gc.disable()
    try:
        s = pool.session()
        s.store(["a"], [bytes(4096)]).check()
        s.match(["a"], lease=5).release()
        s.register(bytearray(4096)).close()
        s.close()
        there = weakref.ref(s)
        del s
        assert there() is None
    finally:
        gc.enable()


def test_a_lock_that_was_left_taken_is_given_back():
    """As Python 3.9 leaves one when a handler raises between the end of a "with" and its __exit__."""
    class Thing:
        def __init__(self):
            self._lock = threading.RLock()

        def leave(self):
            self._lock.acquire()
            raise KeyboardInterrupt

    thing, leave = Thing(), kvctx._interrupted._giving_back(Thing.leave)
    with pytest.raises(KeyboardInterrupt):
        leave(thing)
    assert not thing._lock._is_owned()
    with thing._lock:
        with pytest.raises(KeyboardInterrupt):
            leave(thing)
        assert thing._lock._is_owned()
        thing._lock.release()


def test_memory_for_copies_is_made_once_at_a_time(pool, monkeypatch):
    """A signal's handler that needs some, too, may run in the midst of that: what it registered would be forgotten."""
    made, within = kvctx.stage.shared_memory, []

    def interrupted(nbytes):
        within.append(s._stage.fit(8192))
        return made(nbytes)

    with pool.session() as s:
        monkeypatch.setattr(kvctx.stage, "shared_memory", interrupted)
        assert s._stage.fit(4096) == 0
        assert within == [-errno.EDEADLK]
        monkeypatch.setattr(kvctx.stage, "shared_memory", made)
        assert s._stage.fit(8192) == 0
