# SPDX-License-Identifier: GPL-2.0
"""exporter: what Prometheus gets, scraped by curl from the module (faked); kvctxd's own tests scrape that."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import prometheus
import tool
from test_control import counters
from tool import FAILED, USAGE, bad, good


def start(where, **fakes):
    """The process, and what it says first: nothing when it has ended."""
    env = dict(os.environ, FAKE_LOG=tool.DIR + "/log", FAKE_ROOT=tool.DIR + "/root", LC_ALL="C",
               **{"FAKE_" + name.upper(): str(value) for name, value in fakes.items()})
    p = subprocess.Popen([tool.OUT + "/test/kvctxctl-fake", "exporter", "--listen", where], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p, p.stdout.readline()


@contextlib.contextmanager
def exporter(where, **fakes):
    """PORT in where: a free one. Yields the process, and where it listens as .where."""
    while True:
        at = where.replace("PORT", str(free_port()))
        p, said = start(at, **fakes)
        p.where = at
        if said or at == where:
            break
        _, err = p.communicate()
        assert "Address already in use" in err, err     # somebody else was first
    try:
        assert said == f"Listening on {at}.\n", p.communicate()
        yield p
    finally:
        p.terminate()
        _, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "Sanitizer" not in err, err


def curl(where, path="/metrics", *options):
    """Status, headers and body"""
    if not shutil.which("curl"):
        raise tool.Skip("needs curl")
    url = ["--unix-socket", where, "http://localhost" + path] if "/" in where else [f"http://{where}{path}"]
    done = subprocess.run(["curl", "-sS", "-i", "--max-time", "20", *options, *url], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    head, body = done.stdout.split("\n\n", 1) if "\r" not in done.stdout else done.stdout.split("\r\n\r\n", 1)
    return int(head.split()[1]), head, body


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def check_tenant_stats(m):
    """What the third dump of the process says of operations, see fake_kernel.c: 99 of 100 loads within 1.5 us, one within
    1.3 ms; a store in each of the kernel's buckets, of which four are one here.
    """
    nth = {'pool="ctx0",tenant="default"': 3, 'pool="ctx0",tenant="llama"': 30, 'pool="ctx1",tenant="default"': 3}
    stats = good("tenant", "stat", "-o", "json").json()["tenants"]
    names = {k for k in stats[0] if isinstance(stats[0][k], int)}
    assert {"stores", "misses", "inflight"} < names
    for labels, n in nth.items():
        for i, key in enumerate(k for k in stats[0] if k in names):
            suffix = "" if key in ("inflight", "waiting") else "_total"
            assert m[f"kvctx_tenant_{key}{suffix}"][labels] == 1000 * (2 + i) * n, key
        loads = labels + ',operation="load",priority="urgent"'
        stores = labels + ',operation="store",priority="normal"'
        h, count = m["kvctx_tenant_latency_seconds_bucket"], m["kvctx_tenant_latency_seconds_count"]
        assert (count[loads], count[stores]) == (100 * n, 101 * n)
        ends = [le for le in (x[len(loads):] for x in h if x.startswith(loads)) if le != ',le="+Inf"']
        assert len(ends) == 25 and ends[0] == ',le="1.024e-06"' and ends[-1] == ',le="17.1798692"', ends
        assert (h[loads + ends[0]], h[loads + ends[1]], h[loads + ends[9]], h[loads + ends[11]]) == (0, 99 * n, 99 * n, 100 * n)
        assert [h[stores + e] for e in ends] == [(1 + 4 * i) * n for i in range(25)]
        assert h[loads + ',le="+Inf"'] == 100 * n and h[stores + ',le="+Inf"'] == 101 * n


def test_metrics_are_those_of_the_other_commands():
    path = tool.DIR + "/metrics.sock"
    pools = {p["name"]: p for p in good("pool", "list", "-o", "json").json()["pools"]}
    tenants = good("tenant", "list", "-o", "json").json()["tenants"]
    with exporter(path):
        status, head, body = curl(path)
    assert status == 200 and "text/plain; version=0.0.4" in head, head
    m = prometheus.parse(body)
    for name, pool in pools.items():
        assert m["kvctx_pool_capacity_bytes"][f'pool="{name}"'] == pool["capacity"]
        assert m["kvctx_pool_free_bytes"][f'pool="{name}"'] == pool["free"]
        assert m["kvctx_pool_state"][f'pool="{name}",state="{pool["state"]}"'] == 1
        for member in pool["members"]:
            labels = f'pool="{name}",member="{member["index"]}",device="{member["device"]}"'
            assert m["kvctx_member_size_bytes"][labels] == member["size"]
            assert m["kvctx_member_segments_free"][labels] == member["segments_free"]
            assert m["kvctx_member_state"][labels + f',state="{member["state"]}"'] == 1
    for t in tenants:
        labels = f'pool="{t["pool"]}",tenant="{t["tenant"]}"'
        assert m["kvctx_tenant_sessions"][labels] == t["sessions"]
        assert (m["kvctx_tenant_pages"][labels], m["kvctx_tenant_bytes"][labels]) == (t["pages"], t["bytes"])
        for key in ("pinned", "leased", "quota", "reserve", "max_pinned", "max_leased"):
            assert m[f"kvctx_tenant_{key}_bytes"][labels] == t[key], key
        assert m["kvctx_tenant_keyspaces"][labels] == t["keyspaces"] and t["tenant"] in ("default", "llama")
        for key in ("max_keyspaces", "max_inflight", "weight"):
            assert m[f"kvctx_tenant_{key}"][labels] == t[key], key
        assert m["kvctx_tenant_bandwidth_bytes"][labels] == t["bandwidth"]
    check_tenant_stats(m)
    # the fourth dump of the process: see fake_kernel.c
    now = {"pages", "bytes", "sessions", "inflight", "index_bytes", "index_limit"}
    for name, nr in counters().items():
        values = m[f"kvctx_pool_{name}" + ("" if name in now else "_total")]
        assert values == {'pool="ctx0"': 4000 * nr, 'pool="ctx1"': 40000 * nr}, (name, values)
    assert not os.path.exists(path)


def test_each_scrape_asks_anew():
    for host in ("127.0.0.1", "localhost", "[::1]"):
        with exporter(f"{host}:PORT") as p:
            first, second = (prometheus.parse(curl(p.where)[2]) for _ in range(2))
            key = "kvctx_pool_loads_total", 'pool="ctx0"'
            assert second[key[0]][key[1]] == 2 * first[key[0]][key[1]]
    with exporter("PORT") as p:
        assert curl(f"127.0.0.1:{p.where}")[0] == 200


def test_what_is_not_told_is_left_out():
    path = tool.DIR + "/s"
    with exporter(path, old=1):
        m = prometheus.parse(curl(path)[2])
    assert m["kvctx_pool_pages"] and not m["kvctx_tenant_pages"] and not m["kvctx_pool_loads_total"]
    with exporter(path, pools="no"):
        assert not any(prometheus.parse(curl(path)[2]).values())


def test_nobody_answers():
    path = tool.DIR + "/s"
    with exporter(path, family="no") as p:
        assert curl(path)[0] == 503 and curl(path)[0] == 503
        p.terminate()
        assert "the kernel module is not loaded" in p.communicate()[1]


def test_requests():
    path = tool.DIR + "/s"
    with exporter(path):
        assert curl(path, "/")[2] == "/metrics\n"
        assert curl(path, "/metrics?x=1")[0] == 200
        assert curl(path, "/other")[0] == 404
        assert curl(path, "/metrics", "-X", "POST")[0] == 405
        status, head, body = curl(path, "/metrics", "--head")
        assert status == 200 and not body and int(re.search(r"Content-Length: (\d+)", head).group(1)) > 1000
        for text in (b"", b"\r\n\r\n", b"x" * 100000, b"GET /metrics", b"GET\n\n", b"\0" * 50):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
                with contextlib.suppress(OSError):
                    s.sendall(text)
                    s.shutdown(socket.SHUT_WR)
                    s.recv(1000)
        assert curl(path)[0] == 200


def test_a_slow_client_keeps_nobody_waiting():
    """A byte now and then is no request, and a scrape of another has to come within its seconds."""
    path = tool.DIR + "/s"
    with exporter(path), socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        stop = threading.Event()

        def trickle():
            with contextlib.suppress(OSError):
                while not stop.wait(0.5):
                    s.sendall(b"G")

        slow = threading.Thread(target=trickle)
        slow.start()
        try:
            assert curl(path)[0] == 200
        finally:
            stop.set()
            slow.join()


def test_where():
    path = tool.DIR + "/s"
    with exporter(path):
        bad(FAILED, [path, "somebody listens there"], "exporter", "--listen", path)
        assert curl(path)[0] == 200
    with exporter(path) as p:
        p.send_signal(signal.SIGKILL)
        p.wait()
        p.returncode = 0
    with exporter(path):
        pass
    bad(FAILED, "No such file or directory", "exporter", "--listen", tool.DIR + "/none/s")
    bad(FAILED, ": ", "exporter", "--listen", "nobody.invalid:1")
    bad(FAILED, ": ", "exporter", "--listen", "no-such-port")
    bad(USAGE, "needs a value", "exporter", "--listen")
    bad(FAILED, "No such file or directory", "exporter", "-l", tool.DIR + "/none/s")
    bad(USAGE, ["-l", "not a number"], "connect", "-t", "tcp", "-n", "x", "-l", "/none/s")
    tool.put(tool.image("file", 1), 0, b"x")
    bad(FAILED, "in use", "exporter", "--listen", tool.DIR + "/file")
    assert os.path.exists(tool.DIR + "/file")
