# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that are released while the pool's device does not answer: the release returns, whatever moves meanwhile.

usage: held.py NAME PATH FILES

NAME and PATH as for agent.py. The pool is on a disk of selftests/vm/volatile_fs.c: FILES has its process id in "pid"
and what it has said in "said". Nothing here depends on how long something takes: as long as the disk is held no
operation can end, and a release that waited for one would never return. A watchdog lets go then, which is seen. Ends
as agent.py does.

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


class Disk:
    """The disk of the pool."""

    def __init__(self):
        with open(os.path.join(FOLDER, "pid"), encoding="ascii") as f:
            self.pid = int(f.read())

    def said(self):
        with open(os.path.join(FOLDER, "said"), encoding="ascii") as f:
            return f.read().split("\n")[-2]

    def tell(self, number, answer):
        os.kill(self.pid, number)
        end = time.monotonic() + WATCHDOG_S
        while self.said() != answer:
            if time.monotonic() > end:
                raise AssertionError(f"the disk does not say {answer!r}")
            time.sleep(0.01)

    def hold(self):
        self.tell(signal.SIGUSR1, "held")

    def let_go(self):
        self.tell(signal.SIGUSR2, "let go")

    def let_go_after(self, seconds):
        """By another process: whoever waits for the disk may keep this interpreter to itself."""
        return subprocess.Popen([sys.executable, "-S", "-c", "import os, sys, time; time.sleep(float(sys.argv[1])); "
                                 "os.kill(int(sys.argv[2]), int(sys.argv[3]))",
                                 str(seconds), str(self.pid), str(int(signal.SIGUSR2))])


class Held:
    """The disk does not answer inside the block. A block that waits for it fails when the watchdog has let go."""

    def __init__(self, disk, what):
        self.disk, self.what = disk, what

    def __enter__(self):
        self.disk.hold()
        self.watchdog = self.disk.let_go_after(WATCHDOG_S)

    def __exit__(self, kind, *_):
        waited = self.disk.said() != "held"
        self.watchdog.kill()
        self.watchdog.wait()
        self.disk.let_go()
        if waited and not kind:
            raise AssertionError(f"{self.what} waits for the disk")


def post(a, op, pieces):
    """A handle, in flight, and the registration of its objects."""
    handle, objects = a.request(op, pieces)
    expect(f"{op}: state", a.agent.transfer(handle), "PROC")
    return handle, objects


def test_release_while_the_disk_does_not_answer(a):
    array, keys = noise(MANY, SIZE), names("held", MANY)
    reg = a.memory(array)
    expect("write", a.do("WRITE", rows(array, keys)), "DONE")
    disk, objects = Disk(), []
    with Held(disk, "a release"):
        for op in ("READ", "WRITE", "READ"):
            handle, theirs = post(a, op, rows(array, keys))
            objects.append(theirs)
            expect(f"{op}: state", a.agent.check_xfer_state(handle), "PROC")
            a.agent.release_xfer_handle(handle)
    for r in [*objects, reg]:
        a.agent.deregister_memory(r, backends=[NAME])


def test_memory_is_not_given_back_while_the_disk_may_write_to_it(a):
    array, keys = noise(3, SIZE), names("leaving", 3)
    reg = a.memory(array)
    expect("write", a.do("WRITE", rows(array, keys)), "DONE")
    disk = Disk()
    disk.hold()
    handle, objects = post(a, "READ", rows(array, keys))
    a.agent.release_xfer_handle(handle)
    later = disk.let_go_after(1)
    a.agent.deregister_memory(reg, backends=[NAME])
    said = disk.said()
    later.wait()
    expect("the disk when the memory is deregistered", said, "let go")
    array[:] = 0x5a
    time.sleep(0.3)
    expect("nothing arrives behind that", bool((array == 0x5a).all()), True)
    a.agent.deregister_memory(objects, backends=[NAME])
    again = a.memory(array)
    expect("the session goes on", a.do("WRITE", rows(array, keys)), "DONE")
    a.agent.deregister_memory(again, backends=[NAME])


if __name__ == "__main__":
    sys.exit(agent.main([test_release_while_the_disk_does_not_answer,
                         test_memory_is_not_given_back_while_the_disk_may_write_to_it]))
