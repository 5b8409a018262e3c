# SPDX-License-Identifier: GPL-2.0
"""kvctxctl top, on a terminal of our own that keeps what it is told to show."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import tool
from tool import FAILED, NODEV, bad

LINES, COLUMNS = 20, 160


class Screen:
    """As much of a vt100 as curses uses on one."""

    def __init__(self):
        self.cells = [[" "] * COLUMNS for _ in range(LINES)]
        self.y = self.x = 0
        self.rest = ""

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def control(self, numbers, what):
        n = [int(x) if x else 0 for x in numbers.strip("?").split(";")]
        if what == "H":
            self.y, self.x = max(n[0], 1) - 1, (max(n[1], 1) if len(n) > 1 else 1) - 1
        elif what in "ABCD":
            self.y += {"A": -1, "B": 1}.get(what, 0) * max(n[0], 1)
            self.x += {"C": 1, "D": -1}.get(what, 0) * max(n[0], 1)
        elif what == "J":
            for row in self.cells[self.y + 1 if n[0] == 0 else 0:]:
                row[:] = [" "] * COLUMNS
            self.cells[self.y][self.x if n[0] == 0 else 0:] = [" "] * (COLUMNS - (self.x if n[0] == 0 else 0))
        elif what == "K":
            first, last = (0, self.x + 1) if n[0] == 1 else (self.x, COLUMNS)
            self.cells[self.y][first:last] = [" "] * (last - first)

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        for m in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][0-9A-Za-z]|\x1b[=>78M]|\x1b\[?[0-9;?]*$|[^\x1b]", text):
            if m[2]:
                self.control(m[1], m[2])
            elif m[0][0] == "\x1b":
                if m.end() == len(text) and m[0][-1] not in "=>78M" and m[0][1:2] not in "()":
                    self.rest = m[0]
            elif m[0] == "\r":
                self.x = 0
            elif m[0] == "\n":
                self.y = min(self.y + 1, LINES - 1)
            elif m[0] == "\b":
                self.x = max(self.x - 1, 0)
            elif m[0] >= " ":
                self.cells[self.y][self.x] = m[0]
                self.x = min(self.x + 1, COLUMNS - 1)


class Top:
    def __init__(self, *args, **fakes):
        env = dict(os.environ, TERM="vt100", LC_ALL="C", FAKE_LOG=os.path.join(tool.DIR, "log"))
        env.update({"FAKE_" + name.upper(): str(value) for name, value in fakes.items()})
        env.pop("LINES", None)
        env.pop("COLUMNS", None)
        program = os.path.join(tool.OUT, "test/kvctxctl-fake")
        self.pid, self.fd = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            os.execve(program, [program, "top", *args], env)
        self.screen = Screen()
        self.all = ""

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            text = os.read(self.fd, 65536).decode()
        except OSError:
            return False
        self.all += text
        self.screen.feed(text)
        return bool(text)

    def until(self, what):
        """The lines when what(lines) is so, and nothing more is being drawn"""
        end = time.monotonic() + 60
        while not what(self.screen.lines()):
            assert time.monotonic() < end and self.read(0.5), self.screen.lines()
            while select.select([self.fd], [], [], 0.1)[0] and self.read(0):
                pass
        return self.screen.lines()

    def key(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        end = time.monotonic() + 60
        while self.read(0.5) and time.monotonic() < end:
            pass
        os.close(self.fd)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        while not pid and time.monotonic() < end:
            time.sleep(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError("it does not end")
        assert "Sanitizer" not in self.all, self.all
        return os.waitstatus_to_exitcode(status)


def names(lines):
    return [line.split()[0] for line in lines[1:-1] if line]


def test_top_on_a_terminal():
    t = Top("ctx0", "--interval", "0.3")
    lines = t.until(lambda lines: "2 tenants" in lines[-1])
    assert lines[0].split()[:3] == ["TENANT", "BYTES", "QUOTA-%"] and names(lines) == ["ctx0/default", "ctx0/llama"], lines
    # it looks again, and rates are those since then: llama has ten times as many as the other
    t.until(lambda lines: float(lines[2].split()[4]) > 1000)
    assert 8 < float(t.screen.lines()[2].split()[4]) / float(t.screen.lines()[1].split()[4]) < 12, t.screen.lines()
    # sorted by another column the busy one is first, and last the other way round
    t.key(">>>")
    t.until(lambda lines: names(lines) == ["ctx0/llama", "ctx0/default"])
    t.key("r")
    t.until(lambda lines: names(lines) == ["ctx0/default", "ctx0/llama"])
    t.key("m")
    t.until(lambda lines: lines[0].split()[0] == "MEMBER" and lines[1].startswith("ctx0 /dev/"))
    t.key("+")
    t.until(lambda lines: "every 0.6 s" in lines[-1])
    t.key("q")
    assert t.end() == 0


def test_top_ends():
    t = Top("--count", "2", "--interval", "0.2")
    t.until(lambda lines: "3 tenants" in lines[-1])
    assert t.end() == 0
    # what is wrong is told where it can be read
    t = Top(errno=19, why="no such pool")
    assert t.end() == NODEV and "no such pool" in t.all.splitlines()[-1], t.all
    bad(FAILED, "not a terminal", "top")
