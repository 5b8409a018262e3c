# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools of files for the tests, served in the process and, where a test asks for "served", also by kvctxd.

KVCTX_BIN is the folder with the programs (build/bin).
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import kvctx

POOL_BYTES = 64 << 20


@pytest.fixture
def pool(tmp_path):
    """A pool of 64 MiB, served in this process."""
    return kvctx.create_pool(tmp_path / "kv0", POOL_BYTES)


@pytest.fixture
def session(pool):
    with pool.session(keyspace="tests", timeout=30) as s:
        yield s


class Daemon:
    """kvctxd on a folder of its own. .pool: kvctx.Pool of it."""

    def __init__(self):
        # a socket's path has room for 107 bytes
        self.dir = tempfile.mkdtemp(prefix="kvctx-")
        kvctx.create_pool(os.path.join(self.dir, "kv0"), POOL_BYTES)
        self.pool = kvctx.Pool(os.path.join(self.dir, "run", "kv0"))
        self.start()

    def start(self):
        program = os.path.join(os.environ["KVCTX_BIN"], "kvctxd")
        self.process = subprocess.Popen([program, "--run", os.path.join(self.dir, "run"),
                                         os.path.join(self.dir, "kv0")])
        for _ in range(200):
            try:
                return self.pool.session().close()
            except (kvctx.NotFound, kvctx.Gone):  # the socket may be that of one who was killed
                assert self.process.poll() is None, "kvctxd has ended"
                time.sleep(0.05)
        raise AssertionError("kvctxd does not serve")

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(30)

    def remove(self):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        shutil.rmtree(self.dir)


@pytest.fixture
def daemon():
    d = Daemon()
    yield d
    d.remove()


@pytest.fixture(params=["process", "daemon"])
def served(request):
    """A session on a pool of files, whoever serves it."""
    pool = request.getfixturevalue("daemon").pool if request.param == "daemon" else request.getfixturevalue("pool")
    with pool.session(keyspace="tests", timeout=30) as s:
        assert s.info.backend == request.param
        yield s


def python(code, *arguments, **how):
    """Run a program of its own; returns what subprocess.run() does, with output as text."""
    import sys
    return subprocess.run([sys.executable, "-X", "dev", "-c", code, *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, **how)
