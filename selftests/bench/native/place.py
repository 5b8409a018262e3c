# SPDX-License-Identifier: GPL-2.0
"""Where the native bench measures: on each disk a directory with a pool in a file and files of equal size for raw
io_uring, and the daemon while it is wanted."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

from cells import MIB

POOL = "pool"               # its name, and the directory of its member
SEGMENT = "64M"
FLOOD = "flood"             # a tenant beside "default"


class Failed(Exception):
    """Nothing can be measured, and why"""


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def call(*args):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(args)}: {done.stdout.strip()}")
    return done.stdout


def fill(size, *paths):
    """Not zeros, which a file system or what is below it might not keep, and no holes that the first write fills. By
    turns, so that no file lies in a better part of the disk or memory than another"""
    block = os.urandom(16 * MIB)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb", buffering=0)) for path in paths]
        for _ in range(size // len(block)):
            for f in files:
                f.write(block)
                os.fsync(f.fileno())


class Disk:
    """A directory of ours below @parent; @size bytes for the pool, and for each raw file"""

    def __init__(self, parent, size, span, build):
        self.dir, self.size, self.span = os.path.join(os.path.abspath(parent), f"kvctx-bench.{os.getpid()}"), size, span
        self.pool = os.path.join(self.dir, POOL)
        self.raw = [os.path.join(self.dir, f"raw{n}") for n in range(2)]
        free = shutil.disk_usage(parent).free
        if free < 3 * size + 256 * MIB:
            raise Failed(f"{parent}: has {free // MIB} MiB, and {3 * size // MIB + 256} are needed")
        os.makedirs(self.pool)
        try:
            member = os.path.join(self.pool, "member0")
            fill(size, member, *self.raw)
            call(f"{build}/bin/kvctxctl", "pool", "format", POOL, member, "--segment-size", SEGMENT, "--force")
        except BaseException:
            self.remove()
            raise
        self.laid_out = set()

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


class Daemon:
    """kvctxd for the pool of a disk"""

    def __init__(self, program, disk):
        self.disk, self.program = disk, program
        self.run = tempfile.mkdtemp(prefix="kvctx-bench.")
        self.path = os.path.join(self.run, POOL, "default")  # a socket's has room for 107 bytes, wherever the disk is
        with open(os.path.join(disk.dir, "kvctxd.log"), "w", encoding="utf-8") as log:
            # pylint: disable-next=consider-using-with # it runs on
            self.process = subprocess.Popen([program, "--run", self.run, disk.pool], stdout=log, stderr=log)
        self.pid = self.process.pid
        end = time.monotonic() + 30
        while not os.path.exists(self.path):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                with open(log.name, encoding="utf-8") as f:
                    raise Failed(f"kvctxd: {f.read().strip()}")
            time.sleep(0.05)

    def add_tenant(self, name):
        call(os.path.join(os.path.dirname(self.program), "kvctxctl"), "tenant", "add", POOL, name,
             "--socket", os.path.join(self.run, "control"))

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.run, ignore_errors=True)
