# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools for the tests: of files, served in the process and, where a test asks for "served", also by kvctxd.

KVCTX_BIN is the folder with the programs (build/bin). Where KVCTX_DEVICE names a block device
(selftests/kvctx/python.sh) the pool is on it, served by the module, and what is about files or kvctxd is not run.
"""
import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import time

import pytest
from kvctxd import Daemon

import kvctx

POOL_BYTES = 64 << 20
DEVICE = os.environ.get("KVCTX_DEVICE")


def pytest_configure(config):
    config.addinivalue_line("markers", "process: about a pool that the process serves itself")


def pytest_collection_modifyitems(config, items):
    """With the module, what is of the other backends is no test."""
    if DEVICE:
        others = [i for i in items if i.get_closest_marker("process") or "daemon" in i.fixturenames]
        items[:] = [i for i in items if i not in others]
        config.hook.pytest_deselected(items=others)


class Files:
    """A pool of files. .pool: kvctx.Pool of it."""

    def __init__(self, dir):
        self.pool = kvctx.create_pool(dir, POOL_BYTES)

    @contextlib.contextmanager
    def unserved(self):
        """Path of its bytes, while no session is open."""
        yield os.path.join(self.pool.path, "member0")

    def remove(self):
        pass


class Module:
    """The module with a pool on DEVICE. .pool: kvctx.Pool of it."""

    def __init__(self):
        self.pool = kvctx.Pool("/dev/kvctx/kv0")
        self._ctl("format", "kv0", DEVICE, "--force", "--segment-size", "1M")
        self._ctl("attach", DEVICE)

    @staticmethod
    def _ctl(*arguments):
        subprocess.run(["kvctxctl", "pool", *arguments], check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def unserved(self):
        self._ctl("detach", "kv0")
        yield DEVICE
        self._ctl("attach", DEVICE)

    def remove(self):
        self._ctl("detach", "kv0")


@pytest.fixture
def home(tmp_path):
    """Where the pool of the test is: Files, or Module."""
    h = Module() if DEVICE else Files(tmp_path / "kv0")
    yield h
    h.remove()


@pytest.fixture
def pool(home):
    """A pool of 64 MiB, served in this process, or by the module."""
    return home.pool


@pytest.fixture
def session(pool):
    with pool.session(keyspace="tests", timeout=30) as s:
        yield s


@pytest.fixture
def daemon():
    d = Daemon(POOL_BYTES)
    yield d
    d.remove()


@pytest.fixture
def shared(request):
    """A pool that is served to all processes."""
    return request.getfixturevalue("home" if DEVICE else "daemon").pool


@pytest.fixture(params=["module"] if DEVICE else ["process", "daemon"])
def place(request):
    """A pool, whoever serves it."""
    return request.getfixturevalue("daemon" if request.param == "daemon" else "home").pool


@pytest.fixture
def served(place, request):
    """A session on a pool, whoever serves it."""
    with place.session(keyspace="tests", timeout=30) as s:
        assert s.info.backend == request.node.callspec.params["place"]
        yield s


@pytest.fixture
def lossy(pool, tmp_path, monkeypatch):
    """A pool with two members, of which one seems lost: the first page of each batch of loads is told as ENODEV."""
    pool.add(tmp_path / "another", POOL_BYTES)
    run, complete = kvctx._lib.lib.kvctx_batch_run, kvctx.operation.BatchPart.complete

    def lossy_run(handle, b):
        ok = run(handle, b)
        if b.opcode == kvctx._lib.OP_LOAD and ok > 0:
            ctypes.c_int32.from_address(b.res).value = -errno.ENODEV
            ok -= 1
        return ok

    def lossy_complete(part, n, res, flags):
        if part.batch.opcode == kvctx._lib.OP_LOAD and res > 0:
            part.res[part.page] = -errno.ENODEV
            res -= 1
        complete(part, n, res, flags)

    monkeypatch.setattr(kvctx._lib.lib, "kvctx_batch_run", lossy_run)
    monkeypatch.setattr(kvctx.operation.BatchPart, "complete", lossy_complete)
    return pool


def python(code, *arguments, **how):
    """Run a program of its own; returns what subprocess.run() does, with output as text."""
    return subprocess.run([sys.executable, "-X", "dev", "-c", code, *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, **how)


def until(condition, what):
    """Wait for it, a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)
