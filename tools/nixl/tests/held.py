# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that are released while who serves them does not answer: the release returns, whatever moves meanwhile.

usage: held.py NAME PATH FILES|PID

NAME and PATH as for agent.py. FILES is of the pool's disk, one of selftests/vm/volatile_fs.c, which is held: it has the
disk's process id in "pid" and what it has said in "said". PID is that of kvctxd, which is stopped. Nothing here depends
on how long something takes: as long as they are held no operation can end, and a release that waited for one would
never return. A watchdog lets go then, which is seen. Ends as agent.py does.

The pages of the first test are more than FUSE takes before it makes who submits wait, and more than a segment of the
pool, so that the pool writes too: it may not be the caller who waits for either.
"""
import os
import signal
import subprocess
import sys
import time

import agent
from agent import FOLDER, NAME, expect, names, noise, rows

WATCHDOG_S = 60
SIZE = 64 << 10
MANY = 200


class Holdable:
    """What serves the pool: a process that one signal holds and another lets go."""
    HOLD = LET_GO = pid = None

    def is_held(self):
        raise NotImplementedError

    def tell(self, number, held):
        os.kill(self.pid, number)
        end = time.monotonic() + WATCHDOG_S
        while self.is_held() != held:
            if time.monotonic() > end:
                raise AssertionError(f"{self.pid} does not do what signal {number} asks for")
            time.sleep(0.01)

    def hold(self):
        self.tell(self.HOLD, True)

    def let_go(self):
        self.tell(self.LET_GO, False)

    def let_go_after(self, seconds):
        """By another process: whoever waits may keep this interpreter to itself."""
        return subprocess.Popen([sys.executable, "-S", "-c", "import os, sys, time; time.sleep(float(sys.argv[1])); "
                                 "os.kill(int(sys.argv[2]), int(sys.argv[3]))",
                                 str(seconds), str(self.pid), str(int(self.LET_GO))])


class Disk(Holdable):
    """The disk of the pool."""
    HOLD, LET_GO = signal.SIGUSR1, signal.SIGUSR2

    def __init__(self):
        with open(os.path.join(FOLDER, "pid"), encoding="ascii") as f:
            self.pid = int(f.read())

    def is_held(self):
        with open(os.path.join(FOLDER, "said"), encoding="ascii") as f:
            return f.read().split("\n")[-2] == "held"


class Daemon(Holdable):
    """kvctxd"""
    HOLD, LET_GO = signal.SIGSTOP, signal.SIGCONT

    def __init__(self):
        self.pid = int(FOLDER)

    def is_held(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"


def server():
    return Daemon() if FOLDER.isdecimal() else Disk()


class Held:
    """It does not answer inside the block. A block that waits for it fails when the watchdog has let go."""

    def __init__(self, held, what):
        self.held, self.what = held, what

    def __enter__(self):
        self.held.hold()
        self.watchdog = self.held.let_go_after(WATCHDOG_S)

    def __exit__(self, kind, *_):
        waited = not self.held.is_held()
        self.watchdog.kill()
        self.watchdog.wait()
        self.held.let_go()
        if waited and not kind:
            raise AssertionError(f"{self.what} waits for who is held")


def post(a, op, pieces):
    """A handle, in flight, and the registration of its objects."""
    handle, objects = a.request(op, pieces)
    expect(f"{op}: state", a.agent.transfer(handle), "PROC")
    return handle, objects


def test_release_while_there_is_no_answer(a):
    array, keys = noise(MANY, SIZE), names("held", MANY)
    reg = a.memory(array)
    expect("write", a.do("WRITE", rows(array, keys)), "DONE")
    objects = []
    with Held(server(), "a release"):
        for op in ("READ", "WRITE", "READ"):
            handle, theirs = post(a, op, rows(array, keys))
            objects.append(theirs)
            expect(f"{op}: state", a.agent.check_xfer_state(handle), "PROC")
            a.agent.release_xfer_handle(handle)
    for r in [*objects, reg]:
        a.agent.deregister_memory(r, backends=[NAME])


def test_memory_is_not_given_back_while_it_may_be_written_to(a):
    array, keys = noise(3, SIZE), names("leaving", 3)
    reg = a.memory(array)
    expect("write", a.do("WRITE", rows(array, keys)), "DONE")
    held = server()
    held.hold()
    watchdog = held.let_go_after(WATCHDOG_S)
    handle, objects = post(a, "READ", rows(array, keys))
    a.agent.release_xfer_handle(handle)
    later = held.let_go_after(1)
    a.agent.deregister_memory(reg, backends=[NAME])
    waited = not held.is_held()
    later.wait()
    watchdog.kill()
    watchdog.wait()
    expect("deregistering waits", waited, True)
    array[:] = 0x5a
    time.sleep(0.3)
    expect("nothing arrives behind that", bool((array == 0x5a).all()), True)
    a.agent.deregister_memory(objects, backends=[NAME])
    again = a.memory(array)
    expect("the session goes on", a.do("WRITE", rows(array, keys)), "DONE")
    a.agent.deregister_memory(again, backends=[NAME])


if __name__ == "__main__":
    sys.exit(agent.main([test_release_while_there_is_no_answer,
                         test_memory_is_not_given_back_while_it_may_be_written_to]))
