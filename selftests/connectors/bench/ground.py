# SPDX-License-Identifier: GPL-2.0
"""Where the bench of connectors measures, and its workers: a directory on the disk with a pool for the process, one for
kvctxd, a file for raw io_uring and directories for the others; all of it goes at the end, and what a killed run left
goes when the next one begins."""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench", "native"))
# pylint: disable=wrong-import-position
from place import POOL, SEGMENT, Daemon, Failed, call, fill   # noqa: E402

NAME = "kvctx-connectors"
ANSWER_S = 300          # seconds that a worker has for a run, or to begin
# torch's threads spin on for milliseconds behind what the bench itself fills and clears, beside what it then measures
THREADS = {"lmcache": "1", "sglang": "1", "vllm": "2"}
MIB = 1 << 20


def sweep(parent):
    """Remove what runs left that were killed."""
    for name in os.listdir(parent):
        match = re.fullmatch(NAME + r"\.(\d+)(\..*)?", name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


class Ground:
    """@size: bytes of each pool and of the raw file"""

    def __init__(self, parent, build, size):
        parent = os.path.abspath(parent)
        sweep(parent)
        sweep(tempfile.gettempdir())
        free = shutil.disk_usage(parent).free
        if free < 5 * size:
            raise Failed(f"{parent}: has {free // MIB} MiB, and {5 * size // MIB} are needed")
        self.dir, self.build, self.size = os.path.join(parent, f"{NAME}.{os.getpid()}"), os.path.abspath(build), size
        self.raw, self.daemon, self.run, self.made = os.path.join(self.dir, "raw"), None, None, 0
        os.makedirs(self.dir)
        try:
            fill(size, self.raw)
        except BaseException:
            self.remove()
            raise

    def pool(self, name):
        """Directory of a new pool, all of which was written before"""
        pool = os.path.join(self.dir, name, POOL)
        if not os.path.isdir(pool):
            os.makedirs(pool)
            member = os.path.join(pool, "member0")
            fill(self.size, member)
            call(f"{self.build}/bin/kvctxctl", "pool", "format", POOL, member, "--segment-size", SEGMENT, "--force")
        return pool

    def tenant(self, need):
        """Path that a connector is given; kvctxd runs from the first that wants it until end_daemon()"""
        if need == "process":
            return os.path.join(self.pool("process"), "default")
        if not self.daemon:
            # paths of sockets are short
            self.run = tempfile.mkdtemp(prefix=f"{NAME}.{os.getpid()}.")
            place = types.SimpleNamespace(dir=self.run, pool=self.pool("daemon"))
            self.daemon = Daemon(f"{self.build}/bin/kvctxd", place)
        return self.daemon.path

    def new_dir(self):
        self.made += 1
        path = os.path.join(self.dir, f"side{self.made}")
        os.makedirs(path)
        return path

    def end_part(self):
        """The next part has pools of its own: in those that this one filled with what it also loaded, what is new there
        is wanted least, and may go before it is looked up."""
        self.end_daemon()
        for name in ("process", "daemon"):
            shutil.rmtree(os.path.join(self.dir, name), ignore_errors=True)

    def end_daemon(self):
        if self.daemon:
            self.daemon.stop()
            self.daemon = None
        if self.run:
            shutil.rmtree(self.run, ignore_errors=True)
            self.run = None

    def remove(self):
        self.end_daemon()
        shutil.rmtree(self.dir, ignore_errors=True)


class Worker:
    """The process of a side. measure() raises Failed with the reason when a run fails."""

    def __init__(self, side, ground, engines, log):
        options, pids = json.dumps({**side.options, "dir": ground.new_dir()}), []
        for need in side.needs:
            options = options.replace(f"@{need.upper()}@", ground.tenant(need))
            if need == "daemon":
                pids.append(ground.daemon.pid)
        options = {**json.loads(options), "pids": pids, "engines": os.path.abspath(engines)}
        self.side, self.process = side, None
        packages = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        # as an engine is run: nothing of it is to ask the network or to tell anybody
        env = {**os.environ, "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1", "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1",
               "PYTHONDONTWRITEBYTECODE": "",       # or each start compiles all of an engine, for minutes
               "OMP_NUM_THREADS": THREADS[side.env],
               "PYTHONPATH": os.pathsep.join([HERE, *(os.path.abspath(p) for p in packages if p)])}
        # pylint: disable-next=consider-using-with # it runs on
        self.process = subprocess.Popen(
            [os.path.join(engines, side.env, "bin", "python"), os.path.join(HERE, side.worker), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, text=True, start_new_session=True)

    def answer(self):
        """What it says next"""
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise Failed("no answer within %d s" % ANSWER_S if not ready else "it ended; the log says why")
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said

    def measure(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as e:
            raise Failed("it ended; the log says why") from e
        return self.answer()

    def stop(self):
        """End it and what it started: they are a group of their own."""
        if not self.process:
            return
        with contextlib.suppress(BrokenPipeError):      # of a request that it did not live to read
            self.process.stdin.close()
        end = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
