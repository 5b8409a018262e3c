# SPDX-License-Identifier: LGPL-2.1-or-later
"""kvctxd for tests: those of this folder, and those with engines, which have this folder on their path.

KVCTX_BIN is the folder with the programs (build/bin).
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import kvctx

START_S = 60  # the machine may be busy with others


class Daemon:
    """kvctxd on a pool of its own, of so many bytes, running from the beginning.

    .pool: kvctx.Pool of it. .path: its tenant. .process: subprocess.Popen of who serves it now. Not for threads.
    """

    def __init__(self, nr_bytes: int) -> None:
        # a socket's path has room for 107 bytes
        self.dir = tempfile.mkdtemp(prefix="kvctx-")
        kvctx.create_pool(os.path.join(self.dir, "kv0"), nr_bytes)
        self.pool = kvctx.Pool(os.path.join(self.dir, "run", "kv0"))
        self.path = os.path.join(self.pool.path, "default")
        self.process = None
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        """Returns when it serves; raises AssertionError when it has ended, or after START_S."""
        program = os.path.join(os.environ["KVCTX_BIN"], "kvctxd")
        self.process = subprocess.Popen([program, "--run", os.path.join(self.dir, "run"),
                                         os.path.join(self.dir, "kv0")])
        end = time.monotonic() + START_S
        while not self._serves():
            assert self.process.poll() is None, "kvctxd has ended"
            assert time.monotonic() < end, "kvctxd does not serve"
            time.sleep(0.05)

    def _serves(self) -> bool:
        """Asked without the library: a process that has had a session cannot fork one that serves a pool itself."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            return s.connect_ex(self.path) == 0

    def end(self, how: int = signal.SIGTERM) -> None:
        """Returns when it has ended."""
        self.process.send_signal(how)
        self.process.wait(30)

    def remove(self) -> None:
        """It, if it still runs, and its pool."""
        if self.process and self.process.poll() is None:
            self.end(signal.SIGKILL)
        shutil.rmtree(self.dir)
