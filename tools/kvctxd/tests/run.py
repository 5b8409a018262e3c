#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of kvctxd: run it on a pool in a file, be its clients, honest and not, and kill both.

usage: run.py O TSAN [WORD]...

O is the build folder, TSAN the one with ThreadSanitizer; with WORDs only tests whose name has one of them are run. A test
is a function whose name begins with test_; it gets a daemon that runs, from TSAN if the name begins with test_tsan_, as
its clients then do too. After each one the daemon has to end in order, without a word from a sanitizer.
Ends with a line "kvctxd: N passed, N failed, N skipped".
"""
import array
import ctypes
import errno
import fcntl
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../kvctxctl/tests")

import prometheus  # noqa: E402

O, TSAN = sys.argv[1:3]
TENANT = "default"

IOC = {name: 0xB500 + nr for nr, name in enumerate(
    ["INFO", "SETUP", "MEM_REGISTER", "MEM_UNREGISTER", "SUBMIT", "WAIT", "MATCH", "PATHS", "EVENTS"])}
OPEN, LIGHT, CANCEL = 1, 2, 3
QUIET, PARCEL = 1, 2
FEAT_IOTHREADS = 1 << 33
BIG = 1 << 16


class Skip(Exception):
    pass


class Failed(Exception):
    pass


def expect(want, seen, what=""):
    if want != seen:
        raise Failed(f"{what}: expected {want!r}, got {seen!r}")


def until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited in vain: {what}")
        time.sleep(0.02)


class Daemon:
    """One kvctxd with a pool kv0; can be killed and started again."""

    def __init__(self, folder, tsan=False):
        self.folder, self.args, self.before = folder, (), None
        self.server = "bin/kvctxd"
        self.tsan = tsan
        self.run = folder + "/run"
        self.pool = folder + "/pools/kv0"
        self.log = folder + "/log"
        self.process = None

    def program(self, name):
        """How to call it, built as the daemon is. ThreadSanitizer cannot do with every address that the kernel chooses."""
        return ["setarch", "-R", f"{TSAN}/{name}"] if self.tsan else [f"{O}/{name}"]

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.program(self.server), "--run", self.run, "--pools", self.folder + "/pools",
                                             *self.args], stderr=log, preexec_fn=self.before)
        until(lambda: self.answers() or self.process.poll() is not None, "somebody at the tenant's socket")
        expect(None, self.process.poll(), self.said())

    def answers(self):
        """Once it has hung up the connection is not counted any more."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(20)
            if s.connect_ex(self.node()):
                return False
            s.shutdown(socket.SHUT_WR)
            try:
                expect(b"", s.recv(1), "its end")
            except ConnectionResetError:
                pass
            return True

    def node(self, tenant=TENANT):
        return f"{self.run}/kv0/{tenant}"

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def end(self):
        # not behind SIGTERM: it would take away the SIGSTOP with which a leak check at the end stops threads
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("it does not end:\n" + self.said()) from None
        if status or any(word in self.said() for word in ["ERROR: ", "WARNING: ", "runtime error"]):
            raise Failed(f"ended with {status}:\n" + self.said())

    def exited(self):
        """The kernel keeps what is left of it for as long as one of its threads is in a device."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ctl(self, *args, ok=True, timeout=60):
        p = subprocess.run([*self.program("bin/kvctxctl"), *args, "--socket", self.run + "/control"],
                           capture_output=True, text=True, timeout=timeout, check=False)
        if ok:
            expect(0, p.returncode, p.stderr)
        return p

    def json(self, *args, **more):
        return json.loads(self.ctl(*args, "-o", "json", **more).stdout)

    def sessions(self):
        return sum(t["sessions"] for t in self.json("tenant", "list")["tenants"])

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def client(daemon, *args, node=None, **more):
    return subprocess.Popen([*daemon.program("test/kvctxd-client"), node or daemon.node(), *args], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def run_client(daemon, *args, node=None):
    out, _ = client(daemon, *args, node=node).communicate(timeout=120)
    return out.split("\n")[:-1]


# Clients that speak for themselves

class Client:
    def __init__(self, daemon, tenant=TENANT):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        self.sock.connect(daemon.node(tenant))
        self.fds = []

    def send(self, nr, body=b"", flags=0, fds=(), length=None):
        head = struct.pack("<IIQ", nr, flags, len(body) if length is None else length)
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([head, body], control)

    def receive(self):
        data, control, _, _ = self.sock.recvmsg(1 << 17, 1024)
        for _, _, what in control:
            got = array.array("i")
            got.frombytes(what[:len(what) - len(what) % 4])
            self.fds += list(got)
        if not data:
            return None
        return struct.unpack("<i", data[:4])[0], data[16:]

    def ask(self, nr, body=b"", **more):
        self.send(nr, body, **more)
        return self.receive()

    def open(self, flags=os.O_RDWR, version=1):
        return self.ask(OPEN, struct.pack("<II", version, flags))

    def setup(self, entries=64, arena=65536, flags=0, eventfd=0, fds=(), slots=(0, 0)):
        return self.ask(IOC["SETUP"], struct.pack("<II16sQIiQIIQ", 80 - 16, flags, b"k", arena, entries, eventfd, 0, *slots, 0),
                        fds=fds)

    def gone(self):
        try:
            return self.receive() is None
        except OSError as e:
            return e.errno in (errno.ECONNRESET, errno.EPIPE)

    def close(self):
        self.sock.close()
        for fd in self.fds:
            os.close(fd)


def opened(daemon, tenant=TENANT, **more):
    c = Client(daemon, tenant)
    expect(0, c.open()[0], "open")
    expect(0, c.setup(**more)[0], "setup")
    return c


def sqe(opcode, length=0, nr_segs=0, segs=0, crcs=0, user_data=1, flags=0, mem=0, key=b"k", offset=0, keys=0, nr_keys=0,
        lease_ms=0):
    return struct.pack("<BBHIQ40sQQQQIIIIQQII", opcode, 0, nr_segs, flags, user_data, key, offset, length, segs, 0, 0, lease_ms, 0,
                       mem, crcs, keys, nr_keys, 0)


def submit(*sqes, tail=b""):
    return struct.pack("<IIQIIQQ", 40, 0, 0, len(sqes), 0, 0, 0) + b"".join(sqes) + tail


def events(nr, at=1, reserved=0, lost=0):
    return struct.pack("<IIQIIQ", 32, 0, at, nr, reserved, lost)


def store(c, key, length):
    expect(1, c.ask(IOC["SUBMIT"], submit(sqe(1, length, key=key)))[0])
    until(lambda: struct.unpack("<I", os.pread(c.fds[0], 4, 64))[0], "the completion")


# The command line

def test_command_line(daemon):
    for args, status, text in [(["--help"], 0, "Usage: kvctxd"), (["--version"], 0, "kvctxd "), (["--nothing"], 2, "--help"),
                               (["-c", "x"], 2, "not a number"), (["--run", daemon.run], 1, "another kvctxd"),
                               (["--run", "/" + "r" * 100], 1, "too long"),
                               (["--run", daemon.folder + "/other", daemon.folder], 1, daemon.folder),
                               (["--run", daemon.folder + "/other", daemon.folder + "/none"], 1, "No such file")]:
        p = subprocess.run([O + "/bin/kvctxd", *args], capture_output=True, text=True, timeout=20, check=False)
        expect(status, p.returncode, f"{args}: {p.stderr}")
        if text not in p.stdout + p.stderr:
            raise Failed(f"{args}: {p.stdout}{p.stderr}")


def test_tells_the_service_manager(daemon):
    path = daemon.folder + "/notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)
    s.settimeout(20)
    other = subprocess.Popen([O + "/bin/kvctxd", "--run", daemon.folder + "/other"],
                             env={**os.environ, "NOTIFY_SOCKET": path})
    expect(b"READY=1", s.recv(100))
    other.terminate()
    expect(b"STOPPING=1", s.recv(100))
    expect(0, other.wait(20))


# Control

def test_control_of_pools(daemon):
    pool = daemon.json("pool", "list")["pools"][0]
    expect("kv0", pool["name"])
    expect(daemon.pool + "/member0", pool["members"][0]["device"])
    expect("online", pool["state"])
    expect(pool, {**daemon.json("pool", "show", "kv0")["pool"]} | {"peers": pool.get("peers")} if "peers" in pool else pool)
    daemon.ctl("pool", "set", "kv0", "--discard", "off", "--write-budget", "10G")
    seen = daemon.json("pool", "list")["pools"][0]
    expect((0, 10 << 30), (seen["discard_rate"], seen["write_budget"]))
    stats = daemon.json("stat")["stats"][0]
    expect(0, stats["pages"])
    run_client(daemon, "store", "3")
    expect(3, daemon.json("stat")["stats"][0]["pages"])
    expect(3, daemon.ctl("pool", "detach", "nothing", ok=False).returncode)


def scrape(path):
    p = subprocess.run(["curl", "-sS", "--fail", "--unix-socket", path, "http://localhost/metrics"], capture_output=True,
                       text=True, timeout=20, check=False)
    return prometheus.parse(p.stdout) if not p.returncode else p.stderr


def test_exporter(daemon):
    if not shutil.which("curl"):
        raise Skip("needs curl")
    daemon.ctl("tenant", "add", "kv0", "llama")
    run_client(daemon, "store", "3")
    path = daemon.folder + "/metrics"
    exporter = subprocess.Popen([O + "/bin/kvctxctl", "exporter", "--socket", daemon.run + "/control", "--listen", path],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect(f"Listening on {path}.\n", exporter.stdout.readline())
    c = opened(daemon)
    m = scrape(path)
    default = 'pool="kv0",tenant="default"'
    expect((3, 60000, 1), tuple(m["kvctx_tenant_" + what][default] for what in ("pages", "bytes", "sessions")))
    expect(0, m["kvctx_tenant_pages"]['pool="kv0",tenant="llama"'])
    expect({'pool="kv0"': 3}, m["kvctx_pool_stores_total"])
    labels = f'pool="kv0",member="0",device="{daemon.pool}/member0"'
    expect(1, m["kvctx_member_state"][labels + ',state="online"'])
    expect(60000, m["kvctx_member_page_bytes"][labels])
    daemon.kill()
    expect(True, "503" in scrape(path))
    daemon.start()
    expect(3, scrape(path)["kvctx_tenant_pages"][default], "after a restart")
    c.close()
    exporter.terminate()
    _, err = exporter.communicate(timeout=20)
    expect((0, True), (exporter.returncode, "there is no kvctxd" in err and "Sanitizer" not in err), err)


def test_attach_and_detach(daemon):
    c = opened(daemon)
    p = daemon.ctl("pool", "detach", "kv0", ok=False)
    expect((1, True), (p.returncode, "1 sessions of pool kv0 are open" in p.stderr), p.stderr)
    c.close()
    until(lambda: not daemon.sessions(), "the session's end")
    daemon.ctl("pool", "detach", "kv0")
    expect(False, os.path.exists(daemon.run + "/kv0"))
    for what in [daemon.pool, daemon.pool + "/member0"]:
        daemon.ctl("pool", "attach", what)
        expect(["flush: 0"], run_client(daemon, "store", "5"))
        expect(daemon.pool + "/member0", daemon.json("pool", "list")["pools"][0]["members"][0]["device"])
        again = daemon.ctl("pool", "attach", what, ok=False)
        expect((1, True), (again.returncode, "attached already" in again.stderr or "in use by this process" in again.stderr),
               again.stderr)
        daemon.ctl("pool", "detach", "kv0")
    expect([], [n for n in os.listdir(daemon.run) if n.startswith(".pool-")])
    expect([], daemon.json("pool", "list")["pools"])


def test_pools_by_name(daemon):
    """kvctxctl knows which pools the daemon has, and the daemon which directories there are."""
    member = daemon.pool + "/member0"
    states = lambda: [(p["state"], [m["state"] for m in p["members"]]) for p in daemon.json("pool", "scan", member)["pools"]]

    def refused(status, text, *args):
        p = daemon.ctl(*args, ok=False)
        expect((status, True), (p.returncode, text in p.stderr and p.stderr.count("\n") == 1), f"{args}: {p.stderr}")

    expect([("attached", ["there"])], states())
    refused(1, "attached already", "pool", "attach", "kv0")
    refused(1, "kv0: is attached", "pool", "destroy", "--force", "kv0")
    refused(1, "in use", "pool", "destroy", "--force", member)
    uuid = daemon.json("pool", "show", "kv0")["pool"]["uuid"]
    for name in ["kv0", uuid, uuid.upper()]:
        expect("Attached already.", daemon.ctl("pool", "attach", "--wait", "9", name).stdout.split("\n")[0])
    run_client(daemon, "store", "5")
    daemon.ctl("pool", "detach", "kv0")
    expect([("complete", ["there"])], states())
    expect(member, daemon.json("pool", "attach", "kv0")["pool"]["members"][0]["device"])
    expect(["there: 5 wrong: 0"], run_client(daemon, "check", "5"))
    # from its directory, which keeps what members are added
    daemon.ctl("pool", "add", "kv0", blank(daemon, "other", 600 << 20))
    expect(daemon.folder + "/other", os.readlink(daemon.pool + "/member1"))
    daemon.ctl("pool", "remove", "kv0", "1")
    daemon.ctl("pool", "detach", "kv0")
    daemon.ctl("pool", "attach", "--wait", "9", "kv0")
    daemon.ctl("pool", "detach", "kv0")
    refused(1, ".degraded", "pool", "attach", "--degraded", "kv0")
    blank(daemon, "pools/file")
    os.mkdir(daemon.folder + "/pools/bad")
    os.symlink("/nothing", daemon.folder + "/pools/bad/member0")
    p = daemon.ctl("pool", "attach", "bad", ok=False)
    expect((False, True), ("no such pool" in p.stderr, "bad/member0: No such file" in p.stderr), p.stderr)
    for name in ["none", "file", ".", "..", "x" * 300, uuid]:
        refused(3, "no directory " + name[:99], "pool", "attach", name)
    refused(3, "name its members", "pool", "destroy", "--force", "kv0")
    refused(3, "name its members", "pool", "destroy", "--force", uuid)
    expect([("complete", ["there"])], states())
    daemon.ctl("pool", "destroy", "--force", member)
    expect([], states())
    refused(1, "no member of a pool", "pool", "attach", "kv0")
    daemon.kill()
    for args in [["scan"], ["scan", member], ["attach", "kv0"], ["destroy", "--force", "kv0"], ["destroy", "-f", member]]:
        refused(3, "there is no kvctxd", "pool", *args)


def test_names_without_a_place_for_pools(daemon):
    daemon.end()
    with open(daemon.log, "ab") as log:
        daemon.process = subprocess.Popen([O + "/bin/kvctxd", "--run", daemon.run, daemon.pool], stderr=log)
    until(daemon.answers, "the daemon")
    daemon.ctl("pool", "detach", "kv0")
    p = daemon.ctl("pool", "attach", "kv0", ok=False)
    expect((3, True), (p.returncode, "no --pools" in p.stderr), p.stderr)
    daemon.ctl("pool", "attach", daemon.pool)


def test_who_is_hung_up_on_is_not_counted(daemon):
    """A client that knows that its session has ended may detach the pool. Asked without a program, which takes long."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(20)
    control.connect(daemon.run + "/control")

    def sessions():
        control.send(struct.pack("<IHHIIBBH", 20, 16, 0x301, 1, 0, 7, 1, 0))    # STATS_GET of all pools
        said = control.recv(65536)
        while struct.unpack_from("<H", control.recv(65536), 4)[0] != 3:         # NLMSG_DONE
            pass
        return struct.unpack_from("<Q", said, said.index(struct.pack("<HH", 12, 24)) + 4)[0]    # KVCTX_S_SESSIONS

    for _ in range(300):
        c = Client(daemon)
        expect(0, c.open()[0])
        expect(1, sessions(), "while it is open")
        c.sock.shutdown(socket.SHUT_WR)
        expect(None, c.receive())
        expect(0, sessions(), "when it has ended")
        c.close()
    control.close()


def listener(daemon, *args):
    """kvctxctl events; its first line has come when it listens, since somebody makes and removes a tenant until then"""
    p = subprocess.Popen([*daemon.program("bin/kvctxctl"), "events", "--socket", daemon.run + "/control", "-o", "json", *args],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(iter(p.stdout.readline, "")), daemon=True)
    reader.start()

    probes = []

    def hears():
        probes.append(f"probe{len(probes)}")
        daemon.ctl("tenant", "add", "kv0", probes[-1])
        daemon.ctl("tenant", "remove", "kv0", probes[-1])
        return lines

    def last(e):
        return e["event"] == "tenant_removed" and e["object"]["tenant"] == probes[-1]
    until(hears, "the first event")
    # all that was made for it
    until(lambda: any(last(json.loads(line)) for line in list(lines)), "the last one")
    seen = len(lines)
    return p, reader, lambda: [json.loads(line) for line in lines[seen:]]


def test_events_of_control(daemon):
    p, reader, events = listener(daemon)
    files = [blank(daemon, name) for name in "ab"]
    subprocess.run([*daemon.program("bin/kvctxctl"), "pool", "format", "t", files[0], "--force", "--segment-size", "1M"], check=True,
                   stdout=subprocess.DEVNULL)
    daemon.ctl("pool", "attach", files[0])
    daemon.ctl("tenant", "add", "t", "alice")
    daemon.ctl("tenant", "add", "t", "alice", ok=False)
    daemon.ctl("tenant", "set", "t", "alice", "--quota", "1M")
    daemon.ctl("tenant", "remove", "t", "alice")
    daemon.ctl("pool", "set", "t", "--discard", "off")
    daemon.ctl("pool", "add", "t", files[1], "--force")
    daemon.ctl("pool", "remove", "t", "1", "--drop")
    daemon.ctl("pool", "detach", "t")
    until(lambda: len(events()) >= 8, "eight events")
    expect([("pool_attached", "t"), ("tenant_added", "t"), ("tenant_set", "t"), ("tenant_removed", "t"), ("pool_set", "t"),
            ("member_added", "t"), ("member_removed", "t"), ("pool_detached", "t")],
           [(e["event"], e["pool"]) for e in events()])
    expect([1 << 20, 1 << 20], [e["object"]["quota"] for e in events()[2:4]], "the tenant as it was")
    expect([1], [m["index"] for m in events()[6]["object"]["members"]], "which one")
    daemon.kill()
    expect(3, p.wait(20))
    expect(True, "kvctxd has ended" in p.stderr.read())
    reader.join(20)
    daemon.start()


def test_events_that_nobody_reads(daemon):
    """A listener that is stopped keeps nobody waiting, and is told that some are missing."""
    p, reader, events = listener(daemon)
    p.send_signal(signal.SIGSTOP)
    for n in range(400):
        daemon.ctl("tenant", "set", "kv0", "default", "--quota", f"{n + 1}M")
    p.send_signal(signal.SIGCONT)

    def told():
        daemon.ctl("tenant", "set", "kv0", "default", "--quota", "1G")
        return "lost" in [e["event"] for e in events()]
    until(told, "that some are missing")
    first = [e["object"]["quota"] >> 20 for e in events()[:10]]
    expect(list(range(1, 11)), first, "those that fitted")
    p.terminate()
    p.wait(20)
    reader.join(20)


def test_events_of_pages(daemon):
    """Who asks for them is told of pages of every tenant, and nobody else is; a pool that comes is watched, too."""
    quiet, _, others = listener(daemon)
    p, reader, events = listener(daemon, "--pages")

    def pages(pool):
        return [e for e in events() if e["event"].startswith("page_") and e["pool"] == pool]
    sessions = [opened(daemon) for _ in range(3)]
    for n, c in enumerate(sessions):
        store(c, b"page%d" % n, 4096 * (n + 1))
    until(lambda: len(pages("kv0")) == 3, "three pages")
    expect([("page_stored", {"tenant": "default", "keyspace": b"k".ljust(16, b"\0").hex(), "bytes": 4096 * (n + 1),
                             "key": (b"page%d" % n).ljust(40, b"\0").hex()}) for n in range(3)],
           [(e["event"], e["object"]) for e in pages("kv0")])
    path = blank(daemon, "later")
    subprocess.run([*daemon.program("bin/kvctxctl"), "pool", "format", "t", path, "--force", "--segment-size", "1M"], check=True,
                   stdout=subprocess.DEVNULL)
    daemon.ctl("pool", "attach", path)
    late = opened(daemon, "../t/default")
    store(late, b"late", 100)
    until(lambda: pages("t"), "a page of the pool that came")
    late.close()
    until(lambda: not daemon.ctl("pool", "detach", "t", ok=False).returncode, "the detach")
    p.terminate()
    p.wait(20)
    reader.join(20)
    # one who comes when nobody listened any more
    p, reader, events = listener(daemon, "--pages")
    sessions.append(opened(daemon))
    store(sessions[-1], b"again", 4096)
    until(lambda: pages("kv0"), "one page")
    expect([b"again".ljust(40, b"\0").hex()], [e["object"]["key"] for e in pages("kv0")])
    expect([], [e for e in others() if e["event"].startswith("page_")])
    for c in sessions:
        c.close()
    for one in (p, quiet):
        one.terminate()
        one.wait(20)


def test_tsan_events_of_pages(daemon):
    """Listeners come and go while pages do."""
    writer = client(daemon, "busy")
    for n in range(5):
        p, reader, events = listener(daemon, "--pages")
        c = opened(daemon)
        store(c, b"round%d" % n, 4096)
        c.close()
        until(lambda: any(e["event"].startswith("page_") for e in events()), "a page")  # pylint: disable=cell-var-from-loop
        p.terminate()
        p.wait(20)
        reader.join(20)
    writer.kill()
    writer.communicate()


def blank(daemon, name, size=64 << 20):
    path = daemon.folder + "/" + name
    with open(path, "wb") as f:
        f.truncate(size)
    return path


def as_in_the_guest(daemon, script, function, nr, *files):
    """What the module is asked in the guest, by the same @function of @script, which makes @nr checks; of pools in files."""
    tests = os.path.dirname(os.path.abspath(__file__)) + "/../../../selftests/kvctx"
    env = {**os.environ, "PATH": f"{O}/bin:{O}/selftests:{os.environ['PATH']}", "KVCTX_SOCKET": daemon.run + "/control",
           "KVCTX_NODE": daemon.run + "/t/default"}
    p = subprocess.run(["bash", "-c", f'. "{tests}/lib.sh"; . "{tests}/{script}"; {function} "$@"; finish', script, *files],
                       env=env, capture_output=True, text=True, timeout=300, check=False)
    if p.returncode or "not ok" in p.stdout or not p.stdout.endswith(f"\n1..{nr}\n"):
        raise Failed(p.stdout + p.stderr)
    expect([], [n for n in os.listdir(daemon.run) if n.startswith(".pool-")])


def test_members_come_and_go(daemon):
    as_in_the_guest(daemon, "grow.sh", "members_come_and_go", 49, *[blank(daemon, name) for name in "abc"],
                    blank(daemon, "s", 4 << 20))


def test_verbs(daemon):
    as_in_the_guest(daemon, "verbs.sh", "pool_and_tenant_verbs", 96, *[blank(daemon, name) for name in "ab"],
                    blank(daemon, "s", 32 << 20))


def test_members_of_a_directory(daemon):
    """The pool of a directory that is grown and shrunk there, and found again by the next daemon."""
    members = lambda: [(m["index"], m["device"], m["state"]) for m in daemon.json("pool", "show", "kv0")["pool"]["members"]]
    first, made, other = daemon.pool + "/member0", daemon.pool + "/more", blank(daemon, "other", 600 << 20)
    run_client(daemon, "store", "5")
    daemon.ctl("pool", "add", "kv0", made, "--size", "600M")
    expect(600 << 20, os.stat(made).st_size)
    expect(True, os.stat(made).st_blocks * 512 >= 600 << 20, "all of its space")
    daemon.ctl("pool", "add", "kv0", other)
    expect([(0, first, "online"), (1, made, "online"), (2, other, "online")], members())
    expect(other, os.readlink(daemon.pool + "/member2"))
    for args, status, text in [(["add", "kv0", made, "--size", "600M"], 1, "is there already"),
                               (["add", "kv0", daemon.pool + "/x", "--size", "64K"], 1, "too small"),
                               (["add", "kv0", daemon.pool + "/x", "--size", "4194304T"], 1, "cannot be made"),
                               (["add", "kv0", daemon.folder + "/none/x", "--size", "600M"], 3, "No such file"),
                               (["add", "nothing", made, "--size", "600M"], 3, "no pool named nothing"),
                               (["remove", "kv0", "9"], 3, "no member")]:
        p = daemon.ctl("pool", *args, ok=False)
        expect((status, True), (p.returncode, text in p.stderr), f"{args}: {p.stderr}")
    p = subprocess.run([O + "/bin/kvctxctl", "pool", "add", "kv0", made, "--size", "600M"], capture_output=True, text=True,
                       timeout=20, check=False, env={k: v for k, v in os.environ.items() if k != "KVCTX_SOCKET"})
    expect((2, True), (p.returncode, "--socket" in p.stderr), p.stderr)
    daemon.kill()
    daemon.start()
    expect([(0, first, "online"), (1, made, "online"), (2, other, "online")], members())
    expect(["flush: 0"], run_client(daemon, "store", "40"))
    # by a link to it, while a session works
    c = opened(daemon)
    os.symlink(other, daemon.folder + "/link")
    for member, path in [(daemon.folder + "/link", other), (made, made)]:
        seen = daemon.json("pool", "remove", "kv0", member)["pool"]["members"]
        expect(False, path in [m["device"] for m in seen])
    expect(["member0"], os.listdir(daemon.pool))
    expect(True, os.path.exists(other), "a file of another directory")
    store(c, b"more", 1000)
    c.close()
    expect(["there: 40 wrong: 0"], run_client(daemon, "check", "40"))
    daemon.end()
    daemon.start()
    expect([(0, first, "online")], members())
    expect(["there: 40 wrong: 0"], run_client(daemon, "check", "40"))


def test_tenant_limits(daemon):
    def limits(tenant):
        t = daemon.json("tenant", "show", "kv0", tenant)["tenant"]
        return [t[k] for k in ("quota", "reserve", "write_budget", "max_pinned", "max_leased", "max_keyspaces", "no_urgent",
                               "bandwidth", "max_inflight", "weight")]

    none = [0, 0, 0, 0, 0, 0, False, 0, 0, 100]
    expect(none, limits("default"))
    daemon.ctl("tenant", "add", "kv0", "llama", "--quota", "8M", "--reserve", "4M", "--no-urgent")
    expect([8 << 20, 4 << 20, 0, 0, 0, 0, True, 0, 0, 100], limits("llama"))
    c = Client(daemon, "llama")
    expect(0, c.open()[0])
    pinned = lambda: daemon.json("tenant", "show", "kv0", "llama")["tenant"]["pinned"]
    expect(0, pinned())
    c.setup(arena=65536)
    expect(65536, pinned())
    # a session counts on flags, not on limits
    daemon.ctl("tenant", "set", "kv0", "llama", "--reserve", "off", "--write-budget=2M", "--max-pinned=1G")
    daemon.ctl("tenant", "set", "kv0", "llama", "--max-leased=3M", "--max-keyspaces=9", "--urgent")
    daemon.ctl("tenant", "set", "kv0", "llama", "--bandwidth=4M", "--max-inflight=7", "--weight=250")
    want = [8 << 20, 0, 2 << 20, 1 << 30, 3 << 20, 9, False, 4 << 20, 7, 250]
    expect(want, limits("llama"))
    for wrong in ["--reserve=9M", "--write-budget=1K", "--quota=9M --require-verified"]:
        r = daemon.ctl("tenant", "set", "kv0", "llama", *wrong.split(), ok=False)
        expect(True, r.returncode == 1 and ("reserve: at most" in r.stderr or "sessions of" in r.stderr), r.stderr)
    expect(True, "at most the quota" in daemon.ctl("tenant", "add", "kv0", "b", "--quota=1M", "--reserve=2M", ok=False).stderr)
    for args in [("set", "kv0", "default"), ("add", "kv0", "b")]:
        r = daemon.ctl("tenant", *args, "--reserve=1T", ok=False)
        expect(True, "cannot keep all reserves" in r.stderr, r.stderr)
    expect(["default", "llama"], sorted(t["tenant"] for t in daemon.json("tenant", "list")["tenants"]))
    c.close()
    until(lambda: not daemon.sessions(), "the session's end")
    expect(want, limits("llama"), "after refusals")
    left = lambda tenant: daemon.json("tenant", "show", "kv0", tenant)["tenant"].get("write_budget_left")
    expect((2 << 20, None), (left("llama"), left("default")))
    c = opened(daemon, "llama")
    store(c, b"spent", 40000)
    # of which 24 bytes come back every second
    expect(True, (2 << 20) - 40960 <= left("llama") < (2 << 20) - 30000, left("llama"))
    c.close()
    until(lambda: not daemon.sessions(), "the session's end")
    daemon.end()
    daemon.start()
    expect(want, limits("llama"), "after a restart")
    expect(none, limits("default"))
    daemon.ctl("tenant", "remove", "kv0", "llama")
    daemon.ctl("tenant", "add", "kv0", "again")
    expect(none, limits("again"), "of who got the slot")


ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
JOIN_SESSION_KEYRING, REVOKE = 1, 3
SESSION_KEYRING = -3


def keyring(nr, *args):
    r = ctypes.CDLL(None, use_errno=True).syscall(nr, *args)
    if r < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        raise Skip("keyrings may not be used here")
    if r < 0:
        raise OSError(ctypes.get_errno(), "keyring")
    return r


def give_key(name, secret):
    """To us and whom we start from now on."""
    return keyring(ADD_KEY, b"user", name.encode(), secret, ctypes.c_size_t(len(secret)), SESSION_KEYRING)


def test_encrypted_tenant(daemon):
    """What it stores nobody finds in the members' files, and without its key nobody loads."""
    secret, other = os.urandom(64), os.urandom(64)
    show = lambda: daemon.json("tenant", "show", "kv0", "secret")["tenant"]
    refused = lambda *args: daemon.ctl("tenant", *args, ok=False).stderr
    keyring(KEYCTL, JOIN_SESSION_KEYRING, None)
    daemon.end()
    daemon.start()
    expect(True, "kvctxd's keyrings have no key kvctx:k" in refused("add", "kv0", "secret", "--key", "kvctx:k"))
    expect(True, "printable" in refused("add", "kv0", "secret", "--key", "a b"))
    give_key("kvctx:k", secret[:63])
    expect(True, "is not 64 bytes" in refused("add", "kv0", "secret", "--key", "kvctx:k"))
    give_key("kvctx:k", secret)
    daemon.ctl("tenant", "add", "kv0", "secret", "--key", "kvctx:k", "--quota=8M")
    expect(("kvctx:k", "used"), (show()["key"], show()["key_state"]))
    expect(False, "key" in daemon.json("tenant", "show", "kv0", "default")["tenant"])

    def clients(*args):
        p = subprocess.run([*daemon.program("test/kvctxd-client"), daemon.node("secret"), *args], capture_output=True, text=True,
                           timeout=120, check=False)
        return p.stdout.split("\n")[:-1]

    expect(["flush: 0"], clients("store", "50"))
    expect(["there: 50 wrong: 0"], clients("check", "50"))
    expect(["there: 0 wrong: 0"], run_client(daemon, "check", "50"))
    # the same pages of somebody without a key are in the file as they are
    run_client(daemon, "store", "1")
    page = bytes((i * 7 + (i >> 8)) & 255 for i in range(4096))
    with open(daemon.pool + "/member0", "rb") as f:
        expect(1, f.read().count(page))
    daemon.end()
    give_key("kvctx:k", other)
    daemon.start()
    expect("missing", show()["key_state"])
    expect(-errno.ENOKEY, no_setup(daemon))
    expect(True, "is not the one that" in refused("set", "kv0", "secret", "--unlock"))
    expect(True, "not encrypted" in refused("set", "kv0", "default", "--unlock"))
    key = give_key("kvctx:k", secret)
    daemon.ctl("tenant", "set", "kv0", "secret", "--unlock")
    expect("used", show()["key_state"])
    expect(["there: 50 wrong: 0"], clients("check", "50"))
    c = opened(daemon, "secret")
    keyring(KEYCTL, REVOKE, key)
    expect(1, c.ask(IOC["SUBMIT"], submit(sqe(1, 4096, key=b"more")))[0])
    until(lambda: struct.unpack("<I", os.pread(c.fds[0], 4, 64))[0], "the completion")
    expect(-errno.ENOKEY, struct.unpack("<i", os.pread(c.fds[0], 4, 128 + 8))[0])
    c.close()
    expect(True, show()["key_state"] in ("ended", "missing"))
    expect(-errno.ENOKEY, no_setup(daemon))
    until(lambda: not daemon.sessions(), "the session's end")
    daemon.ctl("tenant", "remove", "kv0", "secret")


def no_setup(daemon):
    c = Client(daemon, "secret")
    expect(0, c.open()[0])
    r = c.setup()[0]
    c.close()
    return r


def test_tenant_usage(daemon):
    """What its leases keep, and keyspaces, as long as it has them."""
    tenant = lambda name="default": daemon.json("tenant", "show", "kv0", name)["tenant"]
    expect((0, 0), (tenant()["leased"], tenant()["keyspaces"]))
    daemon.ctl("tenant", "add", "kv0", "other")
    c = opened(daemon)
    expect(1, tenant()["keyspaces"])
    store(c, b"one", 4096)
    expect(0, tenant()["leased"])
    expect(1, c.ask(IOC["SUBMIT"], submit(sqe(6, key=b"one", lease_ms=60000)))[0])
    segment = daemon.json("pool", "show", "kv0")["pool"]["segment_size"]
    until(lambda: tenant()["leased"] == segment, "the lease")
    expect((0, 0), (tenant("other")["leased"], tenant("other")["keyspaces"]))
    c.close()
    until(lambda: not tenant()["leased"], "the end of the lease with its session")
    expect(1, tenant()["keyspaces"], "that has a page")


def test_tenant_stats(daemon):
    """What its operations came to, of this tenant and not of one that had its place before."""
    def stats(name):
        (t,) = daemon.json("tenant", "stat", "kv0", name)["tenants"]
        return t

    daemon.ctl("tenant", "add", "kv0", "llama", "--bandwidth=64K")
    c = opened(daemon, tenant="llama", arena=1 << 20)
    store(c, b"one", 65536)
    expect(1, c.ask(IOC["SUBMIT"], submit(sqe(2, 4096, key=b"nothing")))[0])
    until(lambda: stats("llama")["misses"] == 1, "the miss")
    t = stats("llama")
    expect((1, 65536, 0, 0), (t["stores"], t["store_bytes"], t["loads"], t["waiting"]))
    (l,) = t["latencies"]
    expect(("store", "normal", 1), (l["operation"], l["priority"], l["count"]))
    expect(True, 0 < l["p50_ns"] < 20e9 and l["p50_ns"] == l["p999_ns"])
    # a page in 8 seconds: of what it asks for now most waits, and goes with its session
    expect(8, c.ask(IOC["SUBMIT"], submit(*[sqe(1, 524288, key=b"%d" % i) for i in range(8)]))[0])
    t = stats("llama")
    expect(True, t["waiting"] >= 4, t)
    c.close()
    until(lambda: not daemon.sessions() and not stats("llama")["waiting"], "the session's end")
    t = stats("llama")
    expect(True, t["failed"] >= 3 and t["stores"] + t["failed"] == 9, t)
    expect(0, stats("default")["stores"])
    daemon.ctl("tenant", "remove", "kv0", "llama")
    daemon.ctl("tenant", "add", "kv0", "another")
    expect([0, []], [stats("another")[k] for k in ("stores", "latencies")])


def test_tenant_memory(daemon):
    """What its sessions pin sums to its limit at most, as in the guest."""
    daemon.ctl("tenant", "add", "kv0", "small", "--max-pinned", "8M")
    p = subprocess.run([f"{O}/selftests/limits", "global.memory"], capture_output=True, text=True, timeout=300, check=False,
                       env={**os.environ, "KVCTX_NODE": daemon.node("small")})
    if p.returncode or "pass:1 " not in p.stdout:
        raise Failed(p.stdout + p.stderr)


def test_tenants(daemon):
    daemon.ctl("tenant", "add", "kv0", "llama", "--uid", "65534", "--gid", "12", "--mode", "0640")
    st = os.stat(daemon.node("llama"))
    expect((65534, 12, 0o220), (st.st_uid, st.st_gid, st.st_mode & 0o777))
    t = [t for t in daemon.json("tenant", "list")["tenants"] if t["tenant"] == "llama"][0]
    expect((65534, 12, 0o640, False, daemon.node("llama")),
           (t["uid"], t["gid"], t["mode"], t["require_verified"], t["node"]))
    expect(True, "exists already" in daemon.ctl("tenant", "add", "kv0", "llama", ok=False).stderr)
    daemon.ctl("tenant", "set", "kv0", "llama", "--require-verified")
    c = Client(daemon, "llama")
    expect(0, c.open()[0])
    for verb in [["set", "kv0", "llama", "--allow-unverified"], ["remove", "kv0", "llama"]]:
        expect(True, "1 sessions of tenant llama" in daemon.ctl("tenant", *verb, ok=False).stderr)
    c.close()
    until(lambda: not daemon.sessions(), "the session's end")
    daemon.end()
    daemon.start()
    t = [t for t in daemon.json("tenant", "list")["tenants"] if t["tenant"] == "llama"][0]
    expect(True, t["require_verified"], "after a restart")
    daemon.ctl("tenant", "remove", "kv0", "llama")
    expect(False, os.path.exists(daemon.node("llama")))
    expect(3, daemon.ctl("tenant", "remove", "kv0", "llama", ok=False).returncode)


def test_control_is_hardened(daemon):
    rng = random.Random(1)
    valid = struct.pack("<IHHII", 20, 16, 0x305, 1, 0) + bytes([3, 1, 0, 0])
    for _ in range(300):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(5)
        s.connect(daemon.run + "/control")
        data = bytearray(valid + rng.randbytes(rng.choice([0, 0, 8, 100])))
        if rng.random() < 0.7:
            data[0:4] = struct.pack("<I", len(data))
        for _ in range(rng.choice([0, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data[16] = rng.choice([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, data[16]])
        s.send(data)
        try:
            s.recv(65536)
        except (socket.timeout, ConnectionResetError):
            pass
        s.close()
    expect(["kv0"], [p["name"] for p in daemon.json("pool", "list")["pools"]] or ["kv0"])


def test_a_client_of_control_that_does_not_read(daemon):
    """It asks until nothing more fits in; what it does not read keeps nobody waiting."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(daemon.run + "/control")
    s.setblocking(False)
    dump = struct.pack("<IHHIIBBH", 20, 16, 0x301, 1, 0, 7, 1, 0)      # STATS_GET of all pools
    asked, end = 0, time.monotonic() + 20
    while time.monotonic() < end:
        try:
            s.send(dump)
            asked += 1
            full = 0
        except BlockingIOError:
            full += 1
            if full == 20:
                break
            time.sleep(0.05)
    expect(20, full, f"requests that are not taken, after {asked}")
    try:
        expect(["kv0"], [p["name"] for p in daemon.json("pool", "list")["pools"]])
        daemon.ctl("tenant", "add", "kv0", "llama")
    except subprocess.TimeoutExpired:
        raise Failed("another request waits for it") from None
    answers = 0
    s.settimeout(20)
    while answers < asked:
        answers += struct.unpack_from("<H", s.recv(65536), 4)[0] == 3   # NLMSG_DONE
    s.close()


# Who may

def as_user(uid, gid, groups, fn):
    """The result of fn() in a child that is somebody else."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(r)
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            out = fn()
        except Exception as e:                          # pylint: disable=broad-except
            out = repr(e)
        os.write(w, str(out).encode())
        os._exit(0)
    os.close(w)
    out = b""
    while chunk := os.read(r, 1000):
        out += chunk
    os.close(r)
    os.waitpid(pid, 0)
    return out.decode()


def test_permissions(daemon):
    if os.geteuid():
        raise Skip("needs root to be other users")
    os.chmod(os.path.dirname(daemon.folder), 0o755)
    os.chmod(daemon.folder, 0o755)
    who = {"owner": (1001, 5000, []), "group": (1002, 2000, []), "groups": (1003, 5000, [7, 2000]), "other": (1004, 5000, [8]),
           "root": (0, 0, [])}
    modes = [0o000, 0o400, 0o600, 0o640, 0o660, 0o604, 0o606, 0o066, 0o004, 0o040, 0o200]

    def access(tenant, flags):
        def fn():
            try:
                c = Client(daemon, tenant)
            except PermissionError:
                return errno.EACCES
            return -c.open(flags)[0]
        return fn

    for mode in modes:
        name = f"m{mode:03o}"
        daemon.ctl("tenant", "add", "kv0", name, "--uid", "1001", "--gid", "2000", "--mode", f"{mode:04o}")
        for person, (uid, gid, groups) in who.items():
            shift = {"owner": 6, "group": 3, "groups": 3, "other": 0, "root": 0}[person]
            bits = 7 if person == "root" else mode >> shift
            for flags, need in [(os.O_RDONLY, 4), (os.O_RDWR, 6)]:
                want = 0 if bits & need == need else errno.EACCES
                got = as_user(uid, gid, groups, access(name, flags))
                expect(str(want), got, f"{person} opens mode {mode:03o} with {flags}")
    p = as_user(1001, 5000, [], lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(daemon.run + "/control"))
    expect(True, "PermissionError" in p, "control: " + p)


# Ends of either side

def test_pages_survive_a_restart(daemon):
    expect(["flush: 0"], run_client(daemon, "store", "50"))
    expect(["there: 50 wrong: 0"], run_client(daemon, "check", "50"))
    daemon.end()
    daemon.start()
    expect(["there: 50 wrong: 0"], run_client(daemon, "check", "50"))
    daemon.kill()
    daemon.start()
    expect(["there: 50 wrong: 0"], run_client(daemon, "check", "50"))


def stopped(pid):
    """Each thread of it stops when it next runs, not when the signal is sent."""
    states = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat") as f:
            states.append(f.read().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def hang_and_kill(daemon, verb):
    run_client(daemon, "store", "8")
    c = client(daemon, verb)
    expect("ready\n", c.stdout.readline())
    daemon.process.send_signal(signal.SIGSTOP)
    until(lambda: stopped(daemon.process.pid), "all of its threads to stop")
    c.stdin.write("go\n")
    c.stdin.flush()
    time.sleep(0.3)
    expect(None, c.poll())
    daemon.kill()
    out, _ = c.communicate(timeout=20)
    daemon.start()
    expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"), "after the restart")
    return out.split("\n")[:-1]


def test_killed_daemon_ends_wait(daemon):
    expect(["submit: 8"] + ["op: -19"] * 8 + ["then: -19"], hang_and_kill(daemon, "wait"))


def test_killed_daemon_ends_poll(daemon):
    expect(["submit: 8"] + ["op: -19"] * 8 + ["then: -19"], hang_and_kill(daemon, "poll"))


def test_killed_daemon_ends_calls(daemon):
    expect(["call: -19"], hang_and_kill(daemon, "call"))


def test_a_broken_invariant_ends_it(daemon):
    """So that the service manager starts it again, and without the writes of an end in order."""
    expect(["flush: 0"], run_client(daemon, "store", "8"))
    daemon.end()
    daemon.server, daemon.before = "test/kvctxd-broken", lambda: os.environ.update(JOURNAL_STREAM="1:2")
    daemon.start()
    calls, busy = client(daemon, "call"), client(daemon, "busy")
    for one in (calls, busy):
        expect("ready\n", one.stdout.readline())
    c = opened(daemon)
    store(c, b"unflushed", 1000)
    seen = len(daemon.said())
    c.send(IOC["SUBMIT"], submit(sqe(1, 1000, key=b"break")))
    expect(True, c.gone(), "its session")
    try:
        expect(3, daemon.process.wait(60), "its exit status")
    except subprocess.TimeoutExpired:
        raise Failed("it goes on: " + daemon.said()[seen:]) from None
    c.close()
    busy.kill()
    busy.communicate()
    expect("call: -19\n", calls.communicate("go\n", timeout=20)[0])
    # and nothing is said, or done, of an end in order
    said = daemon.said()[seen:].split("\n")
    expect((2, "", True), (len(said), said[-1], said[0].startswith("<2>") and "invariant broken" in said[0]), said)
    daemon.server, daemon.before = "bin/kvctxd", None
    daemon.start()
    expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"), "what was flushed")


def test_inputs_that_were_found(daemon):
    """Clients that fuzzing came upon, of all kinds; see fuzz.c."""
    corpus = os.path.dirname(os.path.abspath(__file__)) + "/../../../selftests/core/corpus/kvctxd"
    files = sorted(f"{corpus}/{name}" for name in os.listdir(corpus))
    p = subprocess.run([f"{O}/test/kvctxd-inputs", *files], env={**os.environ, "TMPDIR": daemon.folder}, capture_output=True,
                       text=True, timeout=300, check=False)
    expect((0, f"{len(files)} inputs\n"), (p.returncode, p.stdout), p.stderr[-3000:])


def test_nobody_there(daemon):
    node = daemon.node()
    daemon.kill()
    expect(["open: -19"], run_client(daemon, "check"))
    expect(True, os.path.exists(node))
    daemon.start()


def test_killed_clients(daemon):
    fds = daemon.fds()
    for i in range(12):
        c = [client(daemon, "busy") for _ in range(2)]
        for one in c:
            expect("ready\n", one.stdout.readline())
        time.sleep(0.02 * i)
        for one in c:
            one.kill()
            one.communicate()
    until(lambda: not daemon.sessions(), "the ends of their sessions")
    until(lambda: daemon.fds() <= fds + 1, f"their descriptors: {fds}, {daemon.fds()}")


def test_sigterm_with_sessions(daemon):
    c = [client(daemon, "busy") for _ in range(3)]
    for one in c:
        expect("ready\n", one.stdout.readline())
    time.sleep(0.3)
    daemon.end()
    for one in c:
        one.kill()
        one.communicate()
    daemon.start()


class Slow:
    """The daemon's pool on a file system that can be made to answer nothing."""

    def __init__(self, daemon):
        if not os.path.exists("/dev/fuse"):
            raise Skip("needs FUSE")
        self.daemon, self.mount = daemon, daemon.folder + "/mount"
        if daemon.process.poll() is None:
            daemon.end()
        if not os.path.exists(self.mount):
            os.mkdir(self.mount)
            os.rename(daemon.pool + "/member0", daemon.folder + "/image")
            os.symlink(self.mount + "/disk", daemon.pool + "/member0")
        self.fs = subprocess.Popen([O + "/test/volatile_fs", daemon.folder + "/image", "1", "4096",
                                    daemon.folder + "/cut", "0", self.mount], stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        expect("mounted\n", self.fs.stdout.readline())
        self.daemon.start()
        return self

    def hold(self, yes=True):
        self.fs.send_signal(signal.SIGUSR1 if yes else signal.SIGUSR2)
        expect("held\n" if yes else "let go\n", self.fs.stdout.readline())

    def __exit__(self, *_):
        self.hold(False)
        if self.daemon.process.poll() is None:
            self.daemon.kill()
        # its loop may miss one
        until(lambda: self.fs.terminate() or self.fs.poll() is not None, "the end of the file system")


def test_device_that_does_not_answer(daemon):
    with Slow(daemon) as slow:
        expect(["flush: 0"], run_client(daemon, "store", "8"))
        c = client(daemon, "wait")
        expect("ready\n", c.stdout.readline())
        slow.hold()
        c.stdin.write("go\n")
        c.stdin.flush()
        expect("submit: 8\n", c.stdout.readline())
        c.kill()
        c.communicate()
        time.sleep(7)
        expect(1, daemon.sessions(), "the device holds its memory")
        expect(True, "1 sessions of pool kv0" in daemon.ctl("pool", "detach", "kv0", ok=False).stderr)
        slow.hold(False)
        until(lambda: not daemon.sessions(), "its end")
        expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"))
        daemon.end()


def test_a_lost_member_is_an_event(daemon):
    slow = Slow(daemon).__enter__()
    try:
        _, _, events = listener(daemon, "--count", "100")
        slow.fs.kill()
        slow.fs.wait()
        daemon.ctl("tenant", "set", "kv0", "default", "--quota", "1G", ok=False)
        until(lambda: "member_lost" in [e["event"] for e in events()], "the event")
        told = [e for e in events() if e["event"] == "member_lost"]
        expect([("kv0", [(0, "failed")])],
               [(e["pool"], [(m["index"], m["state"]) for m in e["object"]["members"]]) for e in told])
        expect("degraded", daemon.json("pool", "show", "kv0")["pool"]["state"])
    finally:
        daemon.kill()
        subprocess.run(["sh", "-c", f"umount -l {slow.mount} || fusermount3 -uz {slow.mount}"], stderr=subprocess.DEVNULL,
                       check=False)


def test_a_lost_member_returns(daemon):
    """One that could not be written, and can be again"""
    daemon.end()
    daemon.before = lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    daemon.start()
    expect(["flush: 0"], run_client(daemon, "store", "8"))
    expect("Pool kv0 has lost no member.\n", daemon.ctl("pool", "rejoin", "kv0").stdout)
    _, _, events = listener(daemon, "--count", "100")
    _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (4096, hard))
    daemon.ctl("tenant", "set", "kv0", "default", "--quota", "1G", ok=False)
    until(lambda: daemon.json("pool", "show", "kv0")["pool"]["state"] == "degraded", "the loss")
    expect(True, "could be written" in daemon.ctl("pool", "rejoin", "kv0", ok=False).stderr)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    expect(["there: 0 wrong: 0"], run_client(daemon, "check", "8"))
    expect(True, "is back in pool kv0" in daemon.ctl("pool", "rejoin", "kv0").stdout)
    expect("online", daemon.json("pool", "show", "kv0")["pool"]["state"])
    expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"))
    until(lambda: "member_back" in [e["event"] for e in events()], "the event")
    told = [e for e in events() if e["event"] == "member_back"]
    expect([("kv0", [(0, "online")])],
           [(e["pool"], [(m["index"], m["state"]) for m in e["object"]["members"]]) for e in told])
    expect(["flush: 0"], run_client(daemon, "store", "8"))
    daemon.end()
    daemon.before = None


def other_pool(daemon):
    """A file with a pool kv1, on a disk that answers."""
    path = daemon.folder + "/member"
    subprocess.run([O + "/bin/kvctxctl", "pool", "format", "--size", "64M", "--segment-size", "4M", "kv1", path],
                   stdout=subprocess.DEVNULL, check=True)
    return path


def other_pool_is_served(daemon):
    p = subprocess.run([O + "/test/kvctxd-client", daemon.run + "/kv1/default", "store", "8"], capture_output=True,
                       text=True, timeout=20, check=False)
    expect("flush: 0\n", p.stdout, "another pool")


def admin_goes_on(daemon, what):
    """What is asked while a change waits for a device, and changes of the pool kv1."""
    try:
        for args in [["pool", "list"], ["stat"], ["tenant", "list"]]:
            daemon.json(*args)
        daemon.ctl("tenant", "add", "kv1", "llama")
        daemon.ctl("tenant", "remove", "kv1", "llama")
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{what}: {e.cmd[1:-2]} waits for the device") from None


def control(daemon, *args):
    """A request that may wait for a device."""
    return subprocess.Popen([O + "/bin/kvctxctl", *args, "--socket", daemon.run + "/control"], stdout=subprocess.DEVNULL)


def all_calls_return(daemon, c):
    """Of a client with operations at a device that does not answer, and of others; a call that waits is a failure."""
    fd = os.memfd_create("memory", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 65536)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    ret, body = c.ask(IOC["MEM_REGISTER"], register(0, 65536), fds=[fd])
    expect(0, ret, "register")
    expect(0, c.ask(IOC["MEM_UNREGISTER"], struct.pack("<IIII", 16, 0, struct.unpack_from("<I", body, 24)[0], 0))[0])
    expect(1, c.ask(IOC["SUBMIT"], submit(sqe(4, key=b"k1")))[0], "QUERY")
    expect(0, c.ask(CANCEL, sqe(12, key=b"", offset=1) + struct.pack("<Q", 99))[0], "CANCEL")
    same = opened(daemon)
    expect(1, same.ask(IOC["SUBMIT"], submit(sqe(4, key=b"k1")))[0], "QUERY of another session")
    until(lambda: struct.unpack("<I", os.pread(same.fds[0], 4, 64))[0], "its completion")
    same.close()
    until(lambda: daemon.sessions() == 1, "its end")
    other_pool_is_served(daemon)
    os.close(fd)


def test_nobody_waits_for_a_device_that_does_not_answer(daemon):
    """FUSE makes wait who submits: behind a dozen requests, and writes behind what the pool writes itself."""
    other = other_pool(daemon)
    loads = [sqe(2, 20000, key=b"k%d" % (i % 8)) for i in range(40)]
    stores = [sqe(1, 20000, key=b"new%d" % i) for i in range(20)]
    for what, batches in [("loads", [loads]), ("stores", [stores]), ("stores and a flush", [[sqe(8)], stores])]:
        with Slow(daemon) as slow:
            daemon.ctl("pool", "attach", other)
            expect(["flush: 0"], run_client(daemon, "store", "8"))
            c = opened(daemon)
            for i in range(8):
                expect(1, c.ask(IOC["SUBMIT"], submit(sqe(1, 20000, key=b"k%d" % i)))[0])
            until(lambda: struct.unpack("<I", os.pread(c.fds[0], 4, 64))[0] == 8, "what it stores")
            slow.hold()
            try:
                for batch in batches:
                    expect(len(batch), c.ask(IOC["SUBMIT"], submit(*batch))[0], what)
                    time.sleep(0.2)
                all_calls_return(daemon, c)
            except TimeoutError:
                raise Failed(f"{what}: a call waits for the device") from None
            c.close()
            slow.hold(False)
            until(lambda: not daemon.sessions(), "its end")
            expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"))
            daemon.end()


def test_attach_of_a_device_that_does_not_answer(daemon):
    other = other_pool(daemon)
    with Slow(daemon) as slow:
        expect(["flush: 0"], run_client(daemon, "store", "8"))
        until(lambda: not daemon.sessions(), "its end")
        daemon.ctl("pool", "attach", other)
        daemon.ctl("pool", "detach", "kv0")
        slow.hold()
        attach = control(daemon, "pool", "attach", daemon.pool)
        time.sleep(0.5)
        try:
            other_pool_is_served(daemon)
            admin_goes_on(daemon, "attach")
        finally:
            slow.hold(False)
            expect(0, attach.wait(20), "attach")
        expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"))
        daemon.end()


def test_settings_of_a_device_that_does_not_answer(daemon):
    """Its superblock is being written; clients of its pool come and go, and another pool is administered."""
    other = other_pool(daemon)
    with Slow(daemon) as slow:
        expect(["flush: 0"], run_client(daemon, "store", "8"))
        daemon.ctl("pool", "attach", other)
        for args in [["tenant", "add", "kv0", "llama"], ["tenant", "set", "kv0", "llama", "--require-verified"],
                     ["pool", "set", "kv0", "--discard", "off"], ["tenant", "remove", "kv0", "llama"]]:
            slow.hold()
            request = control(daemon, *args)
            time.sleep(0.3)
            try:
                expect(None, request.poll(), f"{args}: it waits for the device")
                c = opened(daemon)
                expect(1, c.ask(IOC["SUBMIT"], submit(sqe(4)))[0])
                c.close()
                admin_goes_on(daemon, args)
            except TimeoutError:
                raise Failed(f"{args}: a client waits for the device") from None
            finally:
                slow.hold(False)
                expect(0, request.wait(20), str(args))
        daemon.end()


def test_sigterm_with_a_device_that_does_not_answer(daemon):
    for loads in [True, False]:
        with Slow(daemon) as slow:
            expect(["flush: 0"], run_client(daemon, "store", "8"))
            c = client(daemon, "wait" if loads else "busy")
            expect("ready\n", c.stdout.readline())
            if loads:
                slow.hold()
                c.stdin.write("go\n")
                c.stdin.flush()
                expect("submit: 8\n", c.stdout.readline())
            else:
                # what the detach has to write
                until(lambda: daemon.json("stat")["stats"][0]["stores"] > 8, "stores of its own")
                c.kill()
                until(lambda: not daemon.sessions(), "its end")
                slow.hold()
            daemon.process.terminate()
            until(daemon.exited, "the daemon's end", 30)
            slow.hold(False)
            expect(1, daemon.process.wait(20), daemon.said())
            c.communicate(timeout=20)
            daemon.start()
            expect(["there: 8 wrong: 0"], run_client(daemon, "check", "8"))
            daemon.end()


def test_nothing_is_left_of_connections(daemon):
    def round_of(nr):
        for i in range(nr):
            c = Client(daemon)
            if i % 3:
                c.open()
            if i % 3 == 2:
                c.setup(arena=1 << 20)
                c.send(IOC["SUBMIT"], submit(sqe(4), sqe(1, 5000)), QUIET)
            c.close()
        until(lambda: not daemon.sessions(), "their ends")

    def memory():
        with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as f:
            return int([line for line in f if line.startswith("VmRSS")][0].split()[1])

    round_of(200)
    until(lambda: daemon.threads() < 12, "their threads")
    fds, before = daemon.fds(), memory()
    round_of(1000)
    until(lambda: daemon.fds() <= fds + 1, f"descriptors: {fds}, {daemon.fds()}")
    until(lambda: daemon.threads() < 12, "their threads")
    # sanitizers keep what was freed for a while
    if memory() > before + (300000 if "asan" in O else 20000):
        raise Failed(f"memory: {before} KiB, {memory()} KiB")


def test_connections_are_limited(daemon):
    daemon.end()
    daemon.args = ("--connections", "5", "--per-user", "4")
    daemon.start()
    until(lambda: not daemon.sessions(), "the end of the one that asked")
    c = [Client(daemon) for _ in range(4)]
    for one in c:
        expect(0, one.open()[0])
    more = Client(daemon)
    try:
        more.send(OPEN, struct.pack("<II", 1, os.O_RDWR))
    except OSError:
        pass
    expect(True, more.gone(), "the fifth")
    c[0].close()
    until(lambda: daemon.sessions() == 3, "the end of one")
    more = Client(daemon)
    expect(0, more.open()[0], "in its place")


def test_memory_is_limited(daemon):
    daemon.end()
    daemon.args = ("--memory", "3M")
    daemon.start()
    first = opened(daemon, arena=2 << 20)
    c = Client(daemon)
    expect(0, c.open()[0])
    expect(-errno.ENOMEM, c.setup(arena=2 << 20)[0], "more than is left")
    expect(-errno.EINVAL, c.setup(arena=(1 << 64) - 1)[0], "more than anybody may have")
    expect(-errno.ENOMEM, c.setup(arena=0, slots=(1, 257))[0], "a page each")
    expect(-errno.ENOMEM, c.setup(arena=(1 << 20) - 4095, slots=(1, 1))[0], "of whole pages")
    expect(0, c.setup(arena=1 << 20)[0])
    first.close()
    until(lambda: daemon.sessions() == 1, "the end of the first")
    expect(0, opened(daemon, arena=2 << 20) and 0)


def test_messages_are_not_kept(daemon):
    """Who says nothing for long costs nothing but his connection."""
    def anonymous():
        with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon"))

    clients = [Client(daemon) for _ in range(8)]
    for c in clients:
        expect(0, c.open()[0])
    before = anonymous()
    for c in clients:
        fd = memfd(12 << 20)
        expect(-errno.EINVAL, c.ask(IOC["WAIT"], flags=PARCEL, fds=[fd], length=12 << 20)[0])
        os.close(fd)
    expect(True, anonymous() < before + (12 << 10), f"{anonymous() - before} KiB more")


def test_long_messages_are_few_at_a_time(daemon):
    """However many clients send them at once: no more than 16 of 16 MiB are in the daemon's memory."""
    def peak():
        with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))

    clients = [Client(daemon) for _ in range(64)]
    for c in clients:
        expect(0, c.open()[0])
        c.sock.settimeout(600)      # each waits for the others' turns
    length = (16 << 20) - 4096
    fd = memfd(length)
    os.pwrite(fd, bytes(length), 0)
    before, answers = peak(), []

    def send(c):
        for _ in range(3):
            answers.append(c.ask(IOC["WAIT"], flags=PARCEL, fds=[fd], length=length)[0])

    threads = [threading.Thread(target=send, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)
    expect([-errno.EINVAL] * 192, answers)
    expect(True, peak() < before + (17 * 16 << 10), f"{peak() - before} KiB more")


def test_first_message_is_short(daemon):
    c = Client(daemon)
    fd = memfd(1 << 20)
    c.send(OPEN, flags=PARCEL, fds=[fd], length=1 << 20)
    os.close(fd)
    expect(True, c.gone())


def test_memory_of_events_is_limited(daemon):
    daemon.end()
    daemon.args = ("--memory", "3M")
    daemon.start()
    first, second = opened(daemon, arena=1 << 20), opened(daemon, arena=1 << 20)
    # 1.5 MiB, taken once
    expect(-errno.ENOMEM, first.ask(IOC["EVENTS"], events(1))[0])
    second.close()
    until(lambda: daemon.sessions() == 1, "the end of the second")
    expect(0, first.ask(IOC["EVENTS"], events(1))[0])
    expect(0, first.ask(IOC["EVENTS"], events(1))[0])
    c = Client(daemon)
    expect(0, c.open()[0])
    expect(-errno.ENOMEM, c.setup(arena=1 << 20)[0], "beside the events")
    expect(0, c.setup(arena=256 << 10)[0])


# What moves

def test_ways_of_memory(daemon):
    expect(["shared: store 0 load 0x1", "part: store 0 load 0x1", "heap: store 0x4 load 0x5", "long: store 0x4 load 0x5",
            "again: store 0x4 load 0x5", "nameless: store 0x4 load 0x5"], run_client(daemon, "ways"))


def test_rooms_of_the_stage(daemon):
    """As many as the memory would fill that is copied on its way; one where the tenant has a limit, whatever it leaves."""
    def rooms(mib, tenant=TENANT):
        said, = run_client(daemon, "deep", str(mib), node=daemon.node(tenant))
        expect("right: 64 rooms", said.rpartition(":")[0])
        return int(said.split()[-1])

    daemon.ctl("tenant", "add", "kv0", "small", "--max-pinned", "40M")
    expect([2, 3, 4, 4], [rooms(mib) for mib in (64, 100, 128, 256)])
    expect(1, rooms(128, "small"))
    daemon.ctl("tenant", "set", "kv0", "small", "--max-pinned", "1G")
    expect(1, rooms(128, "small"))


def test_tsan_rooms_beside_operations(daemon):
    expect(["right: 32 right: 32 rooms: 4"], run_client(daemon, "grow"))


def test_registered_memory_is_in_huge_pages(daemon):
    said = run_client(daemon, "huge")
    if said == ["none"]:
        raise Skip("the kernel has no huge pages for shared memory")
    expect([f"huge: {4 << 20}"], said)


def test_threads_share_a_session_that_only_reads(daemon):
    expect(["bad: 0"], run_client(daemon, "readers"))


def test_threads_share_a_session(daemon):
    expect(["bad: 0"], run_client(daemon, "threads", "8"))


def test_many_processes(daemon):
    c = [client(daemon, "threads", "2") for _ in range(6)]
    for one in c:
        expect("bad: 0\n", one.communicate(timeout=100)[0])


def contract(daemon):
    programs = os.environ.get("CONTRACT_ONLY", "abi data match events replace cancel session edges slots blocked library").split()
    bad, patience = [], 10 if daemon.tsan else 5
    for program in programs:
        p = subprocess.run(daemon.program("selftests/" + program), capture_output=True, text=True, check=False,
                           timeout=300 * patience,
                           env={**os.environ, "KVCTX_NODE": daemon.node(), "KVCTX_PATIENCE": str(patience)})
        if p.returncode or "# Totals:" not in p.stdout:
            bad.append(program + "\n" + "\n".join(line for line in (p.stdout + p.stderr).split("\n")
                                                  if not line.startswith("ok ")))
    if bad:
        raise Failed("\n".join(bad))


def test_contract(daemon):
    contract(daemon)


def test_tsan_contract(daemon):
    contract(daemon)


def test_tsan_clients(daemon):
    """What is tested above, of threads that meet: those of clients and of the daemon, of connections and of control."""
    test_control_of_pools(daemon)
    test_tenant_limits(daemon)
    test_tenant_stats(daemon)
    test_members_of_a_directory(daemon)
    test_threads_share_a_session(daemon)
    test_threads_share_a_session_that_only_reads(daemon)
    test_many_processes(daemon)
    test_killed_clients(daemon)
    test_sigterm_with_sessions(daemon)


# Programs that take a path

def test_programs_take_a_path(daemon):
    """A tenant's socket, or the directory of a pool that they serve themselves."""
    make_pool(daemon, daemon.folder + "/own")
    for path in daemon.node(), daemon.folder + "/own/default":
        p = subprocess.run([O + "/test/lib/example", path], capture_output=True, text=True, timeout=60, check=False)
        expect((0, [f"page {i}: success, verified, '{c}'" for i, c in enumerate("abcdefgh")]),
               (p.returncode, sorted(p.stdout.splitlines())), path + ": " + p.stderr)
        for first in True, False:
            report = daemon.folder + "/report"
            p = subprocess.run([O + "/bin/kvctx-replay", "--generate", "20", "--page-size", "4K", "--device", path, "--verify",
                                "--json", report], capture_output=True, text=True, timeout=60, check=False)
            expect(0, p.returncode, path + ": " + p.stderr)
            with open(report, encoding="ascii") as f:
                r = json.load(f)
            expect((True, first), (r["good"], r["pages_hit"] < r["pages_referenced"]), path)


# Hostile clients

def memfd(size, seals=fcntl.F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def register(offset, length):
    return struct.pack("<IIQQII", 32, 0, offset, length, 0, 0)


def test_versions_and_order(daemon):
    c = Client(daemon)
    expect(-errno.EPROTONOSUPPORT, c.open(version=2)[0])
    c = Client(daemon)
    expect(-errno.EINVAL, c.open(os.O_WRONLY)[0])
    c = Client(daemon)
    c.send(IOC["INFO"], struct.pack("<II", 8, 0))
    expect(True, c.gone(), "INFO before OPEN")
    c = Client(daemon)
    c.open()
    expect(-errno.EBADFD, c.ask(IOC["SUBMIT"], submit(sqe(4)))[0])
    expect(-errno.EINVAL, c.setup(flags=1, fds=[os.open("/dev/null", os.O_RDWR)])[0], "no eventfd")
    expect(0, c.setup()[0])
    expect(-errno.EEXIST, c.setup()[0])


def test_memory_that_is_refused(daemon):
    c = opened(daemon)
    page = 4096
    for why, fd, offset, length, want in [
            ("not sealed", memfd(page, 0), 0, page, -errno.EREMOTEIO),
            ("a file", os.open(daemon.log, os.O_RDWR), 0, page, -errno.EREMOTEIO),
            ("a device", os.open("/dev/zero", os.O_RDWR), 0, page, -errno.EREMOTEIO),
            ("too short", memfd(page), 0, page + 1, -errno.EFAULT),
            ("behind its end", memfd(page), page, page, -errno.EFAULT),
            ("wraps", memfd(page), (1 << 64) - page, 2 * page, -errno.EFAULT),
            ("sealed against writing", memfd(page, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), 0, page, -errno.EFAULT),
            ("empty", memfd(page), 0, 0, -errno.EINVAL)]:
        expect(want, c.ask(IOC["MEM_REGISTER"], register(offset, length), fds=[fd])[0], why)
        os.close(fd)
    fd = memfd(page)
    readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    expect(-errno.EFAULT, c.ask(IOC["MEM_REGISTER"], register(0, page), fds=[readable])[0], "read-only")
    ret, body = c.ask(IOC["MEM_REGISTER"], register(17, 100), fds=[fd])
    expect((0, 1), (ret, struct.unpack("<I", body[24:28])[0]))
    c.send(IOC["MEM_REGISTER"], register(0, page))
    expect(True, c.gone(), "without a descriptor")


def test_registered_memory_is_limited(daemon):
    daemon.end()
    daemon.args = ("--registered", "1M")
    daemon.start()
    c = opened(daemon)
    fd = memfd(4 << 20)
    register_one = lambda length: c.ask(IOC["MEM_REGISTER"], register(17, length), fds=[fd])[0]  # noqa: E731
    expect(-errno.ENOMEM, register_one((1 << 20) + 1))
    expect(-errno.ENOMEM, register_one((1 << 64) - 1))
    expect(0, register_one(600000))
    expect(-errno.ENOMEM, register_one(600000), "more than is left")
    expect(0, opened(daemon).ask(IOC["MEM_REGISTER"], register(0, 600000), fds=[fd])[0], "of another session")
    expect(0, c.ask(IOC["MEM_UNREGISTER"], struct.pack("<IIII", 16, 0, 1, 0))[0])
    expect(0, register_one(1 << 20), "after the first was given back")


def test_mappings_are_limited(daemon):
    """The kernel has no more for a process than vm.max_map_count: with them all gone nobody gets a session."""
    fd, held, nr = memfd(2 << 20), [], 0
    for n in range(80):
        c = opened(daemon, entries=1, arena=0)
        held.append(c)
        # every second page, since what follows each other can be one mapping
        while (ret := c.ask(IOC["MEM_REGISTER"], register(nr % 256 * 8192, 4096), fds=[fd])[0]) == 0:
            nr += 1
        expect(-errno.ENOMEM, ret)
        if nr < (n + 1) * 1024:
            break
    expect(True, nr < 40000, f"{nr} registrations")
    opened(daemon, arena=1 << 20).close()
    held.pop(0).close()
    until(lambda: held[-1].ask(IOC["MEM_REGISTER"], register(0, 4096), fds=[fd])[0] == 0, "room after one has gone")
    for c in held:
        c.close()


def test_holes_in_registered_memory(daemon):
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size_punch_hole = 3
    size = 1 << 20
    c = opened(daemon)
    fd = memfd(size)
    os.pwrite(fd, b"x" * size, 0)
    expect(0, c.ask(IOC["MEM_REGISTER"], register(0, size), fds=[fd])[0])
    for n in range(200):
        # as the daemon reads and writes it
        c.send(IOC["SUBMIT"], submit(sqe(2 if n % 3 else 1, size, mem=1, key=b"%d" % (n // 3))), QUIET)
        expect(0, libc.fallocate(fd, keep_size_punch_hole, ctypes.c_long(0), ctypes.c_long(size)))
        c.send(IOC["WAIT"], struct.pack("<IIIIQ", 24, 0, 0, 0, 0), QUIET)
        if n % 32 == 31:
            c.close()
            c = opened(daemon)
            expect(0, c.ask(IOC["MEM_REGISTER"], register(0, size), fds=[fd])[0])
    try:
        os.ftruncate(fd, 0)
        raise Failed("it shrinks")
    except PermissionError:
        pass
    c.close()
    expect(["flush: 0"], run_client(daemon, "store", "3"))


def test_shared_areas_are_sealed(daemon):
    for flags in [os.O_RDWR, os.O_RDONLY]:
        c = Client(daemon)
        expect(0, c.open(flags)[0])
        expect(0, c.ask(IOC["SETUP"], struct.pack("<II16sQIiQIIQ", 64, 0, b"k", 65536, 64, 0, 0, 4096, 2, 0))[0])
        ring, door, _, _, arena, slots = c.fds
        for name, fd, writable in [("ring", ring, flags == os.O_RDWR), ("arena", arena, flags == os.O_RDWR),
                                   ("slots", slots, False), ("door", door, True)]:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            expect(fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, seals & (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW), name)
            try:
                os.pwrite(fd, b"x", 64)
                wrote = True
            except PermissionError:
                wrote = False
            expect(writable, wrote, f"{name} of {flags}")
        c.close()


def test_long_bodies(daemon):
    c = opened(daemon, entries=4096)
    keys = 5000
    body = struct.pack("<IIQQIIIIII", 48, 0, 1, 1, keys, 0, 0, 0, 0, 0) + bytes(40 * keys)
    fd = memfd(len(body), 0)
    os.pwrite(fd, body, 0)
    c.send(IOC["MATCH"], b"", PARCEL, [fd], len(body))
    expect(0, c.receive()[0])
    for why, length, fds in [("none", 100, []), ("longer than it is", len(body) + 1, [fd]), ("too long", 1 << 40, [fd]),
                             ("two", 100, [fd, fd]), ("a pipe", 100, [os.pipe()[0]])]:
        bad = opened(daemon)
        bad.send(IOC["MATCH"], b"", PARCEL, fds, length)
        expect(True, bad.gone(), why)


def test_replies_name_no_place_of_ours(daemon):
    """Structures come back with the pointers that the client gave, not with those that the daemon put there."""
    c = opened(daemon)
    ret, body = c.ask(IOC["MATCH"], struct.pack("<IIQQIIIIIIQ", 56, 4, 11, 12, 3, 0, 0, 0, 0, 0, 13) + bytes(120))
    expect(0, ret)
    expect((11, 12), struct.unpack_from("<QQ", body, 8), "keys, lens")
    expect(13, struct.unpack_from("<Q", body, 48)[0], "present")
    ret, body = c.ask(IOC["PATHS"], struct.pack("<IIIIQ", 24, 0, 0, 4, 11))
    expect(0, ret)
    expect(11, struct.unpack_from("<Q", body, 16)[0], "paths")


def test_replies_that_nobody_reads(daemon):
    """Long ones lie in memfds, of which a socket takes hundreds: what is not read may not become the daemon's memory."""
    keys = 60000
    body = struct.pack("<IIQQIIIIII", 48, 0, 1, 1, keys, 0, 0, 0, 0, 0) + bytes(40 * keys)
    fd = memfd(len(body), 0)
    os.pwrite(fd, body, 0)
    ask = IOC["MATCH"], b"", PARCEL, [fd], len(body)
    c = opened(daemon)
    for _ in range(30):
        c.send(*ask)
        expect(0, c.receive()[0], "of one who reads")
    try:
        for _ in range(300):
            c.send(*ask)
    except OSError:
        pass
    until(lambda: not daemon.sessions(), "the end of one who does not")


def test_quiet_failures_end_the_connection(daemon):
    for body in [submit(), submit(sqe(4))[:-8], submit(sqe(1, 5000, nr_segs=3)), b"",
                 submit(*[sqe(4)] * 65)]:
        c = opened(daemon)
        c.send(IOC["SUBMIT"], body, QUIET)
        expect(True, c.gone(), f"{len(body)} bytes")
    expect(["there: 0 wrong: 0"], run_client(daemon, "check"))


def test_events(daemon):
    daemon.ctl("tenant", "add", "kv0", "other")
    c, listener, other = Client(daemon), opened(daemon), Client(daemon, "other")
    expect(0, c.open()[0])
    expect(-errno.EBADFD, c.ask(IOC["EVENTS"], events(1))[0], "before SETUP")
    expect(0, c.setup()[0])
    expect(0, other.open()[0])
    expect(0, other.setup()[0])
    for one in [listener, other]:
        expect((0, events(0, 77)), one.ask(IOC["EVENTS"], events(8, 77, lost=5)), "the first")
    store(c, b"a", 100)
    told = b"a".ljust(40, b"\0") + struct.pack("<II", 1, 100)
    expect((0, events(0)), other.ask(IOC["EVENTS"], events(8)), "another tenant's")
    store(other, b"b", 200)
    # what was asked for and no more, and no address of the daemon's
    expect((0, events(0)), listener.ask(IOC["EVENTS"], events(0)))
    expect((0, events(1, 77) + told), listener.ask(IOC["EVENTS"], events(8, 77, lost=5)))
    expect((0, events(0, 77)), listener.ask(IOC["EVENTS"], events(32768, 77)))
    for what, body in [("too many", events(32769)), ("far too many", events((1 << 32) - 1)), ("reserved", events(1, 1, 1)),
                       ("short", struct.pack("<IIQII", 24, 0, 1, 1, 0)),
                       ("flags", struct.pack("<IIQIIQ", 32, 1, 1, 1, 0, 0))]:
        expect(-errno.EINVAL, listener.ask(IOC["EVENTS"], body)[0], what)
    listener.send(IOC["EVENTS"], events(1)[:-8])
    expect(True, listener.gone(), "shorter than it says")
    c.close()
    other.close()


def test_events_into_a_full_eventfd(daemon):
    full = os.eventfd(0, os.EFD_NONBLOCK)
    os.eventfd_write(full, (1 << 64) - 2)
    os.set_blocking(full, True)
    c, listener = opened(daemon), Client(daemon)
    expect(0, listener.open()[0])
    expect(0, listener.setup(flags=1, eventfd=full, fds=[full])[0])
    expect(0, listener.ask(IOC["EVENTS"], events(8))[0])
    store(c, b"a", 100)
    expect(0, listener.ask(IOC["EVENTS"], events(8))[0])
    expect(["flush: 0"], run_client(daemon, "store", "5"))
    listener.close()
    c.close()


def forbid_io_uring():
    """As containers' default profiles do: a program for seccomp, of which the system calls' numbers are the machine's."""
    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32)]

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]

    set_no_new_privs, set_seccomp, mode_filter, io_uring_setup = 38, 22, 2, 425
    rules = (Filter * 4)((0x20, 0, 0, 0), (0x15, 0, 1, io_uring_setup), (0x06, 0, 0, 0x00050000 | errno.EPERM),
                         (0x06, 0, 0, 0x7fff0000))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(set_no_new_privs, 1, 0, 0, 0) or \
            libc.prctl(set_seccomp, mode_filter, ctypes.byref(Program(4, rules)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def test_without_io_uring(daemon):
    """Sessions are served by threads, and their eventfds signalled all the same."""
    daemon.end()
    daemon.before = forbid_io_uring
    daemon.start()
    expect(["flush: 0"], run_client(daemon, "store", "40"))
    expect(["there: 40 wrong: 0"], run_client(daemon, "check", "40"))
    signalled = os.eventfd(0, os.EFD_NONBLOCK)
    null = os.open("/dev/null", os.O_RDWR)
    c = Client(daemon)
    expect(0, c.open()[0])
    expect(-errno.EINVAL, c.setup(flags=1, fds=[null])[0], "no eventfd")
    expect(0, c.setup(flags=1, eventfd=signalled, fds=[signalled])[0])
    features, = struct.unpack_from("<Q", c.ask(IOC["INFO"], struct.pack("<II", 216, 0) + bytes(208))[1], 16)
    expect(True, bool(features & FEAT_IOTHREADS), "threads")
    for n in range(200):
        expect(1, c.ask(IOC["SUBMIT"], submit(sqe(4)))[0])
        until(lambda: select.select([signalled], [], [], 0)[0], f"the signal of operation {n}")
        os.eventfd_read(signalled)
        os.pwrite(c.fds[0], struct.pack("<I", n + 1), 0)
    os.close(null)
    os.close(signalled)
    c.close()
    test_events_into_a_full_eventfd(daemon)


def random_message(rng, good):
    nr = rng.choice(list(IOC.values()) + [OPEN, LIGHT, CANCEL, rng.randrange(1 << 32)])
    body = bytearray(rng.choice(good) if rng.random() < 0.9 else rng.randbytes(rng.randrange(200)))
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        if not body:
            break
        at = rng.randrange(len(body))
        if rng.random() < 0.5 and at + 8 <= len(body):
            body[at:at + 8] = struct.pack("<Q", rng.choice([0, 1, 7, 64, 255, 4096, 65535, 1 << 31, (1 << 32) - 1, 1 << 40,
                                                            (1 << 64) - 1]))
        else:
            body[at] = rng.randrange(256)
    if rng.random() < 0.1:
        del body[rng.randrange(len(body) + 1):]
    flags = rng.choice([0, 0, 0, QUIET, QUIET, PARCEL, rng.randrange(1 << 32)])
    length = None if rng.random() < 0.9 else rng.choice([0, 1, 1 << 20, 1 << 63, len(body) + 8])
    return nr, bytes(body), flags, length


def good_messages():
    segs = struct.pack("<QII", 0, 0, 4096) * 2
    return [
        (IOC["INFO"], struct.pack("<II", 216, 0) + bytes(208)),
        (IOC["SETUP"], struct.pack("<II16sQIiQIIQ", 64, 0, b"k", 65536, 64, 0, 0, 4096, 2, 0)),
        (IOC["SUBMIT"], submit(sqe(4), sqe(6), sqe(3), sqe(8, key=b""))),
        (IOC["SUBMIT"], submit(sqe(1, 8192, 2, 1), sqe(2, 8192, 2, 1), tail=segs + segs)),
        (IOC["SUBMIT"], submit(sqe(1, 8192, crcs=1), tail=bytes(8))),
        (IOC["SUBMIT"], submit(sqe(2, 8192, crcs=1), sqe(5), sqe(9))),
        (IOC["SUBMIT"], submit(sqe(11, 4096, key=b"", keys=1, nr_keys=3), sqe(11, 100, flags=1 << 10, key=b"", keys=1, nr_keys=1),
                               tail=bytes(160))),
        (IOC["MATCH"], struct.pack("<IIQQIIIIIIQ", 56, 4, 1, 1, 3, 0, 0, 0, 0, 0, 1) + bytes(120)),
        (IOC["MATCH"], struct.pack("<IIQQIIIIIIQ", 56, 4, 1, 0, 3, 0, 0, 0, 0, 0, 0) + bytes(120)),
        (IOC["WAIT"], struct.pack("<IIIIQ", 24, 0, 1, 0, 1 << 40)),
        (IOC["WAIT"], struct.pack("<IIIIQ", 24, 0, 0, 1, 0)),
        (IOC["MATCH"], struct.pack("<IIQQIIIIII", 48, 1, 1, 1, 3, 1000, 0, 0, 0, 0) + bytes(120)),
        (IOC["PATHS"], struct.pack("<IIIIQ", 24, 0, 0, 4, 1)),
        (IOC["EVENTS"], events(8)),
        (IOC["EVENTS"], events(32768)),
        (IOC["MEM_REGISTER"], register(0, 4096)),
        (CANCEL, sqe(12, key=b"", offset=1) + struct.pack("<QQ", 1, 2)),
        (IOC["MEM_UNREGISTER"], struct.pack("<IIII", 16, 0, 1, 0)),
    ]


def scribble(rng, c):
    """On what is shared: head of the ring, the door, the arena."""
    for fd in c.fds[:2]:
        try:
            os.pwrite(fd, struct.pack("<Q", rng.randrange(1 << 64)), rng.choice([0, 0, 8]))
        except OSError:
            pass


def test_hostile_messages(daemon):
    seconds = float(os.environ.get("FUZZ_SECONDS", "15"))
    seed = int(os.environ.get("SEED", "0")) or random.randrange(1 << 32)
    rng = random.Random(seed)
    shared = memfd(1 << 20)
    good = good_messages()
    sent = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        c = Client(daemon)
        c.sock.settimeout(0.5)
        try:
            if rng.random() < 0.95:
                c.open(rng.choice([os.O_RDWR, os.O_RDONLY]))
            if rng.random() < 0.9:
                c.setup()
            for _ in range(rng.randrange(1, 40)):
                if rng.random() < 0.3:
                    nr, body = rng.choice(good)
                    flags, length = rng.choice([0, QUIET]), None
                else:
                    nr, body, flags, length = random_message(rng, [b for _, b in good])
                    if rng.random() < 0.5:
                        nr = rng.choice([n for n, b in good if len(b) // 8 == len(body) // 8] or [nr])
                fds = rng.choice([[], [], [shared], [shared, shared], [c.sock.fileno()]])
                c.send(nr, body, flags, fds, length)
                sent += 1
                if rng.random() < 0.3:
                    scribble(rng, c)
                if not flags & QUIET:
                    try:
                        if c.receive() is None:
                            break
                    except socket.timeout:
                        pass
        except OSError:
            pass
        c.close()
        if daemon.process.poll() is not None:
            raise Failed(f"SEED={seed}: it died after {sent} messages:\n" + daemon.said())
    # one may have wanted an arena of 4 GiB, which takes as long as the system needs to find it
    until(lambda: not daemon.sessions(), f"SEED={seed}: their ends", 180)
    expect(["flush: 0"], run_client(daemon, "store", "5"), f"SEED={seed}")
    expect(["there: 5 wrong: 0"], run_client(daemon, "check", "5"), f"SEED={seed}")
    print(f"# {sent} hostile messages, SEED={seed}")


def make_pool(daemon, path):
    code = subprocess.run([*daemon.program("test/kvctxd-client"), path, "create"], capture_output=True, text=True,
                          check=False)
    expect(0, code.returncode, code.stdout)


def run(test):
    tsan = test.__name__.startswith("test_tsan_")
    if tsan and subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skip("no permission to fix addresses")
    folder = tempfile.mkdtemp(prefix="kvd.", dir="/tmp")
    os.chmod(folder, 0o755)
    daemon = Daemon(folder, tsan)
    try:
        os.mkdir(folder + "/pools")
        make_pool(daemon, daemon.pool)
        daemon.start()
        test(daemon)
        if daemon.process.poll() is None:
            daemon.end()
    finally:
        if daemon.process and daemon.process.poll() is None:
            daemon.kill()
        shutil.rmtree(folder)


def main():
    passed = failed = skipped = 0
    for name, test in [(k, v) for k, v in globals().items() if k.startswith("test_")]:
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        start = time.monotonic()
        try:
            run(test)
            passed += 1
            print(f"ok {name} ({time.monotonic() - start:.1f} s)")
        except Skip as why:
            skipped += 1
            print(f"skipped: {name}: {why}")
        except Exception as why:                        # pylint: disable=broad-except
            failed += 1
            print(f"FAILED: {name}: {why}")
            if not isinstance(why, Failed):
                traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
    print(f"kvctxd: {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
