# SPDX-License-Identifier: GPL-2.0
"""What the tests of kvctxctl share: running it, and a folder of their own for each."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

OUT = ""        # build folder
DIR = ""        # folder of the running test

OK, FAILED, USAGE, NODEV, NOSUPP = range(5)


class Skip(Exception):
    pass


def setup(out):
    global OUT
    OUT = os.path.abspath(out)


@contextlib.contextmanager
def workspace():
    global DIR
    DIR = tempfile.mkdtemp(prefix="kvctxctl-")
    try:
        yield
    finally:
        shutil.rmtree(DIR)


class Result:
    def __init__(self, args, done, log):
        self.args = args
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.log = log          # what the fakes were asked for, a line each

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"kvctxctl {' '.join(self.args)}: {self.status}\n{self.out}--\n{self.err}--\n" + "\n".join(self.log)


def spawn(program, args, fakes, cwd=None, stdout=subprocess.PIPE):
    log = os.path.join(DIR, "log")
    if os.path.exists(log):
        os.remove(log)
    env = dict(os.environ, FAKE_LOG=log, FAKE_ROOT=os.path.join(DIR, "root"), LC_ALL="C")
    env.update({"FAKE_" + name.upper(): str(value) for name, value in fakes.items()})
    done = subprocess.run([program, *args], env=env, cwd=cwd or DIR, stdin=subprocess.DEVNULL, stdout=stdout,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    lines = open(log).read().splitlines() if os.path.exists(log) else []
    return Result(args, done, lines)


def run(*args, cwd=None, **fakes):
    """Any status will do, but a sanitizer's report is never right."""
    r = spawn(os.path.join(OUT, "test/kvctxctl-fake"), list(args), fakes, cwd)
    assert 0 <= r.status <= 4 and "Sanitizer" not in r.err and "runtime error" not in r.err, r
    return r


def good(*args, **kw):
    r = run(*args, **kw)
    assert r.status == OK and not r.err and r.out, r
    return r


def bad(status, words, *args, **kw):
    """Fails with this status, one line "kvctxctl: what: why" that has the words, nothing on standard output."""
    r = run(*args, **kw)
    lines = r.err.splitlines()
    hint = 1 if status == USAGE else 0
    assert r.status == status and not r.out and len(lines) == 1 + hint, r
    assert lines[0].startswith("kvctxctl: ") and lines[0].count(": ") >= 2, r
    assert not hint or (lines[1].startswith("Try 'kvctxctl") and lines[1].endswith(" --help'.")), r
    for word in [words] if isinstance(words, str) else words:
        assert word in lines[0], f"no '{word}' in: {r}"
    return r


def real(*args):
    """The program that users get"""
    return spawn(os.path.join(OUT, "bin/kvctxctl"), list(args), {})


def superblocks(path):
    """The two slots of a device as the core decodes them"""
    done = subprocess.run([os.path.join(OUT, "test/superdump"), path], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def image(name, size):
    path = os.path.join(DIR, name)
    with open(path, "wb") as f:
        f.truncate(size)
    return path


def put(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(data)


def node(path):
    """An empty file in the faked /dev or /sys"""
    full = os.path.join(DIR, "root") + path
    os.makedirs(os.path.dirname(full), exist_ok=True)
    open(full, "w").close()


def block(name, size, shown=True):
    """A block device of the faked system; its path as the tool is told it, and its file"""
    path = os.path.join(DIR, "root/dev", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.truncate(size)
    table = os.path.join(DIR, "root/proc/partitions")
    os.makedirs(os.path.dirname(table), exist_ok=True)
    if not os.path.exists(table):
        with open(table, "w") as f:
            f.write("major minor  #blocks  name\n\n")
    with open(table, "a") as f:
        f.write(f" 259        0 {size >> 10:10} {name}\n" if shown else "")
    return "/dev/" + name, path


def attribute(path, text):
    """A file of the faked /sys"""
    node(path)
    with open(os.path.join(DIR, "root") + path, "w") as f:
        f.write(text + "\n")
