# SPDX-License-Identifier: GPL-2.0
"""Pools, tenants, counters: what goes over netlink and what is made of the answers."""
import json
import os
import re
import time

import tool
from tool import FAILED, NODEV, NOSUPP, OK, USAGE, bad, good, image, run, spawn, superblocks

EVERY = [                       # each command that asks the kernel
    ["pool", "attach", "/dev/x"], ["pool", "detach", "ctx0"], ["pool", "list"], ["pool", "show", "ctx0"],
    ["pool", "set", "ctx0", "--discard=off"],
    ["tenant", "add", "ctx0", "t"], ["tenant", "set", "ctx0", "t", "--allow-unverified"], ["tenant", "remove", "ctx0", "t"], ["tenant", "list"], ["tenant", "show", "ctx0", "llama"], ["stat"],
]
DUMPS = [["pool", "list"], ["tenant", "list"], ["stat"]]


def test_attach_sends_absolute_paths():
    r = good("pool", "attach", "/dev/nvme1n1", "./img", "../b")
    assert r.log == ["attach version 1", "  device=/dev/nvme1n1", f"  device={tool.DIR}/./img",
                     f"  device={tool.DIR}/../b"], r


def test_attach_degraded():
    assert good("pool", "attach", "/dev/x", "--degraded").log == ["attach version 1", "  device=/dev/x", "  degraded"]
    r = good("pool", "attach", "-D", "/dev/x", member=2)
    assert re.search(r"1 +10.0 GiB +40 +11  missing  -$", r.out, re.M), r
    members = good("pool", "show", "ctx0", "-o", "json", member=2).json()["pool"]["members"]
    assert members[1]["state"] == "missing" and "device" not in members[1], members
    assert good("pool", "show", "ctx0", "-o", "json", member=9).json()["pool"]["members"][1]["state"] == "unknown"


def test_add():
    a = image("a", 1100 << 20)
    r = good("pool", "add", "ctx0", "a")
    assert r.out == f"{a} added to pool ctx0.\n", r
    assert r.log[-3:] == ["pool-add version 1", "  pool=ctx0", f"  device={a}"], r
    good("pool", "format", "old", a, "--segment-size", "1M")
    r = run("pool", "add", "ctx0", a)
    assert r.status == FAILED and "member of the pool old" in r.err and r.log[-1] == "  dry-run", r
    # what cannot become a member keeps what it has: no such pool, refused by the kernel, too small for its segments
    r = run("pool", "add", "nothere", a, "--force", errno=2)
    assert r.status != 0 and [s["reason"] for s in superblocks(a)] == [0] * 4, r
    r = run("pool", "add", "ctx0", a, "--force", no_add=1)
    assert r.status == FAILED and "not a block device" in r.err and r.log[-1] == "  dry-run", r
    assert [s["reason"] for s in superblocks(a)] == [0] * 4
    small = image("small", 9 << 20)
    good("pool", "format", "old", small, "--segment-size", "1M")
    r = run("pool", "add", "ctx0", small, "--force")
    assert r.status == FAILED and "too small" in r.err and r.log[-1] == "  dry-run", r
    assert [s["reason"] for s in superblocks(small)] == [0] * 4
    r = good("pool", "add", "ctx0", a, "--force", "-o", "json")
    assert r.json()["pool"]["name"] == "ctx0", r
    large = image("large", 5 << 40)
    r = run("pool", "add", "ctx0", large, segment_size=262144)
    assert r.status == 0 and "only 4.0 TiB of 5.0 TiB are used" in r.err, r
    # what the kernel is given holds no superblock at either end
    assert [s["reason"] for s in superblocks(a)] == [1] * 4
    r = run("pool", "add", "ctx0", a, errno=17, why="so not")
    assert r.status == FAILED and "so not" in r.err, r


def test_remove():
    for what in ("1", "/dev/nvme2n1"):
        r = good("pool", "remove", "ctx0", what, "--no-wait")
        assert r.out == f"{what} leaves pool ctx0.\n", r
        assert r.log[-4:] == ["pool-remove version 1", "  pool=ctx0", "  move", "  index=1"], r
    r = good("pool", "remove", "ctx0", "0", "--drop", "--no-wait")
    assert r.log[-3:] == ["pool-remove version 1", "  pool=ctx0", "  index=0"], r
    assert "removed from pool" in good("pool", "remove", "ctx1", "0", gone=1).out
    r = run("pool", "remove", "ctx0", "1", member=4)
    assert r.status == FAILED and "stays until the next attach" in r.err, r
    # online: it was leaving, and the pool was detached and attached meanwhile
    r = run("pool", "remove", "ctx0", "1", member=0)
    assert r.status == FAILED and "1: does not leave any more: the pool was attached again" in r.err, r
    bad(NODEV, "no member of pool ctx0", "pool", "remove", "ctx0", "7")
    bad(NODEV, "no member of pool ctx0", "pool", "remove", "ctx0", "nvme2n1")
    r = run("pool", "remove", "ctx0", "1", "--drop", "--move")
    assert r.status == USAGE and "exclude" in r.err, r


def test_attach_shows_the_pool():
    r = good("pool", "attach", "/dev/nvme1n1")
    assert "Attached." in r.out and "degraded" in r.out, r
    assert re.search(r"1 +10.0 GiB +40 +11  failed  /dev/nvme2n1$", r.out, re.M), r
    assert re.search(r"^capacity +20.0 GiB$", r.out, re.M), r
    shown = good("pool", "show", "ctx0", "-o", "json").json()
    del shown["pool"]["peers"]
    assert good("pool", "attach", "/dev/nvme1n1", "-o", "json").json() == shown


def test_attach_many_long_paths():
    paths = ["/dev/" + "x" * 200 + str(i) for i in range(64)]
    r = good("pool", "attach", *paths)
    assert [line.removeprefix("  device=") for line in r.log[1:]] == paths, r


def test_show_json():
    pool = good("pool", "show", "ctx0", "-o", "json").json()
    assert pool["format"] == 1
    pool = pool["pool"]
    members = pool.pop("members")
    assert pool.pop("peers") == [
        {"peer": "0000:03:00.0", "paths": [{"member": 0, "reason": "direct", "distance": 4},
                                           {"member": 1, "reason": "no_queue"}]},
        {"peer": "0000:04:00.0", "paths": [{"member": 0, "reason": "no_route"}, {"member": 1, "reason": "no_queue"}]},
    ], pool
    assert pool == {
        "name": "ctx0", "uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f", "state": "degraded",
        "attach_bytes": 3 << 20, "attach_us": 4000, "capacity": 80 << 28, "segment_size": 1 << 28, "chunk_size": 65536, "page_len_max": 128 << 20,
        "free": 21 << 28, "discard_rate": 512 << 20, "write_budget": 2 << 40, "write_budget_left": 1 << 40,
    }, pool
    assert members[1] == {
        "index": 1, "device": "/dev/nvme2n1", "uuid": "30313233-3435-3637-3839-3a3b3c3d3e3f", "size": 40 << 28,
        "state": "failed", "segments": 40, "segments_free": 11,
    }, members
    assert members[0]["state"] == "online" and len(members) == 2


def test_show_asks_for_its_pool():
    assert good("pool", "show", "ctx1").log == ["pool version 1", "  pool=ctx1", "peers dump version 1", "  pool=ctx1"]


def matrix(**fakes):
    """What stands behind the table of members"""
    return good("pool", "show", "ctx0", **fakes).out.split("\n\n")[2].splitlines()


def test_peers():
    lines = matrix()
    assert [re.split("  +", line) for line in lines[:3]] == [
        ["PEER", "nvme1n1", "nvme2n1"], ["0000:03:00.0", "4", "no queue"], ["0000:04:00.0", "no route", "no queue"],
    ], lines
    assert lines[3:] == ["nvme2n1: takes no peer memory", "0000:04:00.0: no common switch with nvme1n1"], lines
    assert "nvme1n1: not a PCI device" not in matrix(reason=3)      # said with the first peer only
    assert matrix(reason=4)[-1] == "0000:04:00.0: its driver has let go of it"
    assert re.split("  +", matrix(reason=77)[2])[1] == "unknown"


def test_peers_behind_a_fabric():
    folder = os.path.join(tool.DIR, "root/sys/class/block/nvme2n1/device")
    os.makedirs(folder)
    for transport, text in (("tcp", "NVMe/TCP "), ("rdma", "NVMe/RDMA "), ("loop", "NVMe loop "), ("pcie", "")):
        with open(os.path.join(folder, "transport"), "w") as f:
            f.write(transport + "\n")
        assert f"nvme2n1: {text}takes no peer memory" in matrix()
    below = os.path.join(folder, "nvme7")           # a multipath disk hangs below its subsystem
    os.makedirs(below)
    os.rename(os.path.join(folder, "transport"), os.path.join(below, "transport"))
    with open(os.path.join(below, "transport"), "w") as f:
        f.write("tcp\n")
    assert "nvme2n1: NVMe/TCP takes no peer memory" in matrix()


def test_no_peers():
    assert matrix(peers="no") == ["peer memory: no PCI device offers any"]
    assert good("pool", "show", "ctx0", "-o", "json", peers="no").json()["pool"]["peers"] == []


def test_peers_unknown():
    assert matrix(peers="none") == ["peer memory: this kernel has no PCI peer-to-peer DMA"]
    pool = good("pool", "show", "ctx0", "-o", "json", peers="none").json()["pool"]
    assert "peers" not in pool and pool["peers_unknown"] == "this kernel has no PCI peer-to-peer DMA", pool
    assert matrix(old=1) == ["peer memory: this module does not tell"]


def test_list():
    r = good("pool", "list")
    assert r.log == ["pool dump version 1"], r
    lines = [line.split() for line in r.out.splitlines()]
    assert lines == [["POOL", "STATE", "MEMBERS", "CAPACITY", "FREE", "SEGMENT"],
                     ["ctx0", "degraded", "2", "20.0", "GiB", "5.2", "GiB", "256.0", "MiB"],
                     ["ctx1", "online", "1", "10.0", "GiB", "2.5", "GiB", "256.0", "MiB"]], r
    names = [p["name"] for p in good("pool", "list", "-o", "json").json()["pools"]]
    assert names == ["ctx0", "ctx1"]


def test_list_of_nothing():
    assert good("pool", "list", pools="no").out.split() == ["POOL", "STATE", "MEMBERS", "CAPACITY", "FREE",
                                                            "SEGMENT"]
    assert good("pool", "list", "-o", "json", pools="no").json() == {"format": 1, "pools": []}
    assert good("tenant", "list", "-o", "json", pools="no").json() == {"format": 1, "tenants": []}
    assert good("stat", "-o", "json", pools="no").json() == {"format": 1, "stats": []}
    r = run("stat", pools="no")
    assert (r.status, r.out, r.err) == (OK, "", "no pool is attached\n"), r


def test_detach():
    r = good("pool", "detach", "ctx0")
    assert r.log == ["detach version 1", "  pool=ctx0"] and r.out == "Pool ctx0 detached.\n", r
    assert good("pool", "detach", "ctx0", "-o", "json").json() == {"format": 1, "detached": "ctx0"}


def test_show_settings():
    text = good("pool", "show", "ctx0").out
    assert re.search(r"^discard +512.0 MiB/s$", text, re.M), text
    assert re.search(r"^write budget +2.0 TiB a day, 1.0 TiB left now$", text, re.M), text
    text = good("pool", "show", "ctx1").out
    assert re.search(r"^discard +off$", text, re.M) and re.search(r"^write budget +off$", text, re.M), text
    assert re.search(r"^write budget +-$", good("pool", "show", "ctx0", old=1).out, re.M)
    assert "write_budget" not in good("pool", "show", "ctx0", "-o", "json", old=1).out


def test_pool_set():
    r = good("pool", "set", "ctx0", "--discard", "on")
    assert r.log == ["pool-set version 1", "  pool=ctx0", f"  discard_rate={1 << 30}"], r
    assert r.out == "Pool ctx0 set.\n", r
    r = good("pool", "set", "ctx0", "--discard=64M", "--write-budget=2T", "-o", "json")
    assert r.log[2:] == [f"  discard_rate={64 << 20}", f"  write_budget={2 << 40}"], r
    assert r.json() == {"format": 1, "set": "ctx0"}, r
    assert good("pool", "set", "ctx0", "--discard=off").log[2:] == ["  discard_rate=0"]
    assert good("pool", "set", "ctx0", "--write-budget", "off").log[2:] == ["  write_budget=0"]
    r = bad(USAGE, "give --discard, --write-budget or both", "pool", "set", "ctx0")
    assert not r.log, r
    bad(USAGE, "not off or a size", "pool", "set", "ctx0", "--write-budget", "on")
    bad(USAGE, "not on, off or bytes", "pool", "set", "ctx0", "--discard", "fast")
    bad(USAGE, "said as 'off'", "pool", "set", "ctx0", "--discard", "0")
    bad(USAGE, "said as 'off'", "pool", "set", "ctx0", "--write-budget", "0G")
    bad(USAGE, "write-budget", "pool", "attach", "/dev/x", "--write-budget", "1G")


def test_tenant_add():
    r = good("tenant", "add", "ctx0", "llama")
    assert r.log == ["tenant-add version 1", "  pool=ctx0", "  tenant=llama"], r
    assert r.out == "added: /dev/kvctx/ctx0/llama\n", r
    r = good("tenant", "add", "ctx0", "llama", "--uid", "root", "--gid=12", "--mode", "0640", "-o", "json")
    assert r.log[3:] == ["  uid=0", "  gid=12", f"  mode={0o640}"], r
    assert r.json() == {"format": 1, "added": {"pool": "ctx0", "tenant": "llama",
                                               "node": "/dev/kvctx/ctx0/llama"}}, r


def test_tenant_flags():
    r = good("tenant", "add", "ctx0", "llama", "--require-verified")
    assert r.log == ["tenant-add version 1", "  pool=ctx0", "  tenant=llama", "  flags=1"], r
    r = good("tenant", "set", "ctx0", "llama", "--require-verified")
    assert r.log == ["tenant-set version 1", "  pool=ctx0", "  tenant=llama", "  flags=1"], r
    assert r.out == "set: /dev/kvctx/ctx0/llama\n", r
    r = good("tenant", "set", "ctx0", "llama", "--allow-unverified", "-o", "json")
    assert r.log[3:] == ["  flags=0"] and r.json()["set"]["tenant"] == "llama", r
    r = bad(USAGE, "one of --require-verified", "tenant", "set", "ctx0", "llama")
    assert not r.log, r
    bad(USAGE, "one of", "tenant", "set", "ctx0", "llama", "--require-verified", "--allow-unverified")
    bad(USAGE, "allow-unverified", "tenant", "add", "ctx0", "llama", "--allow-unverified")


SIZES = {"quota": "quota", "reserve": "reserve", "write_budget": "write-budget", "pinned": "max-pinned", "leased": "max-leased",
         "bandwidth": "bandwidth"}
NUMBERS = {"keyspaces": "max-keyspaces", "inflight": "max-inflight"}


def test_tenant_limits():
    """What is given is sent, in bytes, and nothing else"""
    for verb, more in (("add", []), ("set", [])):
        for name, option in SIZES.items():
            r = good("tenant", verb, "ctx0", "llama", f"--{option}", "10G", *more)
            assert r.log[1:] == ["  pool=ctx0", "  tenant=llama", f"  limit {name}={10 << 30}"], r
            assert good("tenant", verb, "ctx0", "llama", f"--{option}=off").log[3:] == [f"  limit {name}=0"]
            bad(USAGE, "said as 'off'", "tenant", verb, "ctx0", "llama", f"--{option}=0")
            bad(USAGE, "not off or a size", "tenant", verb, "ctx0", "llama", f"--{option}", "much")
        for name, option in NUMBERS.items():
            assert good("tenant", verb, "ctx0", "llama", f"--{option}=12").log[3:] == [f"  limit {name}=12"]
            assert good("tenant", verb, "ctx0", "llama", f"--{option}=off").log[3:] == [f"  limit {name}=0"]
            for wrong in ("0", "4294967296", "-1", "1K", ""):
                bad(USAGE, f"--{option}", "tenant", verb, "ctx0", "llama", f"--{option}={wrong}")
        for weight in (1, 10000):
            assert good("tenant", verb, "ctx0", "llama", f"--weight={weight}").log[3:] == [f"  limit weight={weight}"]
        for wrong in ("0", "10001", "-1", "off", ""):
            bad(USAGE, "--weight", "tenant", verb, "ctx0", "llama", f"--weight={wrong}")
        assert good("tenant", verb, "ctx0", "llama", "--no-urgent").log[3:] == ["  limit flags=1"]
        assert good("tenant", verb, "ctx0", "llama", "--urgent").log[3:] == ["  limit flags=0"]
        bad(USAGE, "not both", "tenant", verb, "ctx0", "llama", "--urgent", "--no-urgent")
    r = good("tenant", "set", "ctx0", "llama", "--quota=2G", "--reserve=1G", "--allow-unverified", "-o", "json")
    assert r.log[3:] == ["  flags=0", f"  limit quota={2 << 30}", f"  limit reserve={1 << 30}"], r
    assert r.json()["set"]["tenant"] == "llama", r
    bad(FAILED, "reserve: at most the quota", "tenant", "set", "ctx0", "llama", "--reserve=3G", errno=22,
        why="reserve: at most the quota, write budget: 1M to 1E")


def test_tenant_show():
    r = good("tenant", "show", "ctx0", "llama", "-o", "json")
    assert r.log == ["tenants dump version 1", "  pool=ctx0"], r
    t = r.json()["tenant"]
    assert (t["tenant"], t["quota"], t["reserve"], t["write_budget"]) == ("llama", 1 << 30, 1 << 20, 1 << 40), t
    assert (t["max_pinned"], t["max_leased"], t["max_keyspaces"], t["no_urgent"]) == (2 << 30, 2 << 20, 7, True), t
    assert (t["bandwidth"], t["max_inflight"], t["weight"]) == (4 << 20, 5, 101), t
    assert t == good("tenant", "list", "ctx0", "-o", "json").json()["tenants"][1], t
    text = good("tenant", "show", "ctx0", "llama").out
    assert re.search(r"^memory pinned +4.0 KiB$", text, re.M), text
    assert re.search(r"^leased +512.0 KiB$", text, re.M) and re.search(r"^keyspaces +3$", text, re.M), text
    assert re.search(r"^quota +1.0 GiB$", text, re.M) and re.search(r"^urgent operations +no$", text, re.M), text
    text = good("tenant", "show", "ctx0", "default").out
    assert re.search(r"^quota +off$", text, re.M) and re.search(r"^urgent operations +yes$", text, re.M), text
    assert re.search(r"^max keyspaces +off$", text, re.M) and re.search(r"^weight +100$", text, re.M), text
    assert re.search(r"^bandwidth a second +off$", text, re.M) and re.search(r"^max in flight +off$", text, re.M), text
    assert "off" not in good("tenant", "show", "ctx0", "default", old=1).out
    bad(NODEV, "no tenant named other", "tenant", "show", "ctx0", "other")


def test_tenant_remove():
    r = good("tenant", "remove", "ctx0", "llama")
    assert r.log == ["tenant-remove version 1", "  pool=ctx0", "  tenant=llama"], r
    assert good("tenant", "remove", "ctx0", "llama", "-o", "json").json()["removed"]["tenant"] == "llama"


def test_tenant_list():
    r = good("tenant", "list")
    assert r.log == ["tenants dump version 1"], r
    assert r.out.splitlines()[2].split() == ["ctx0", "llama", "1001", "2001", "0640", "1", "required", "44.0", "KiB",
                                             "1.0", "GiB", "512.0", "KiB", "3", "/dev/kvctx/ctx0/llama"], r
    r = good("tenant", "list", "ctx1", "-o", "json")
    assert r.log == ["tenants dump version 1", "  pool=ctx1"], r
    assert r.json() == {"format": 1, "tenants": [{
        "pool": "ctx1", "tenant": "default", "uid": 1002, "gid": 2002, "mode": 0o640, "sessions": 2, "pages": 12,
        "bytes": 12 * 4096, "pinned": 8192, "leased": 1 << 20, "keyspaces": 6, "major": 240, "minor": 2, "require_verified": False, "quota": 2 << 30, "reserve": 2 << 20,
        "write_budget": 2 << 40, "max_pinned": 4 << 30, "max_leased": 4 << 20, "max_keyspaces": 14, "no_urgent": False,
        "bandwidth": 8 << 20, "max_inflight": 10, "weight": 102,
        "node": "/dev/kvctx/ctx1/default"}]}, r
    assert [t["require_verified"] for t in good("tenant", "list", "-o", "json").json()["tenants"]] == [False, True, False]
    r = good("tenant", "list", "ctx0", old=1)
    assert r.out.splitlines()[2].split()[6] == "-", r
    assert "require_verified" not in good("tenant", "list", "-o", "json", old=1).out


def counters():
    """Names and numbers of the counters, from the ABI's header"""
    text = open("uapi/linux/kvctx_genl.h").read()
    body = re.search(r"enum kvctx_genl_stat \{(.*?)\}", text, re.S).group(1)
    names = re.findall(r"^\t(KVCTX_S_\w+),", body, re.M)
    return {name.removeprefix("KVCTX_S_").lower(): i for i, name in enumerate(names) if i > 1}


def test_stat_has_every_counter():
    want = {name: 1000 * i for name, i in counters().items()}
    assert len(want) > 20
    r = good("stat", "ctx0", "-o", "json")
    assert r.log == ["stats dump version 1", "  pool=ctx0"], r
    written = [want[f"{what}_written_bytes"] for what in ("host", "reclaim", "meta")]
    factor = round(sum(written) / written[0], 3)
    assert r.json() == {"format": 1, "stats": [dict(want, pool="ctx0", write_amplification=factor)]}, r
    lines = [line.split() for line in good("stat", "ctx0").out.splitlines()]
    assert lines[0] == ["pool", "ctx0"] and lines[-1] == ["write_amplification", f"{factor:.3f}"], lines
    assert {line[0]: int(line[1]) for line in lines[1:-1]} == want
    assert {line[0] for line in lines[1:-1] if len(line) > 2} == {k for k in want if "bytes" in k} | {"index_limit"}, lines


def test_stat_all_pools():
    assert [s["pool"] for s in good("stat", "-o", "json").json()["stats"]] == ["ctx0", "ctx1"]
    assert good("stat").out.count("pool ctx") == 2


def test_stat_of_an_older_kernel():
    assert good("stat", "ctx0", "-o", "json", old=1).json()["stats"] == [{"pool": "ctx0", "pages": 2000}]
    assert good("stat", "ctx0", old=1).out.split() == ["pool", "ctx0", "pages", "2000"]


def test_stat_unknown_pool():
    bad(NODEV, ["stat nope", "no such pool"], "stat", "nope")


def watched(count, *args):
    """The answer, and a check of what its samples say that they took together: as long as was asked for, and no longer
    than the program. The machine may be busy, and the next sample is on the beat all the same."""
    began = time.monotonic()
    r = good(*args, "--watch=0.5", "--count", str(count))
    took = time.monotonic() - began

    def check(seconds):
        assert len(seconds) == count and min(seconds) > 0, (seconds, r)
        assert 0.99 * 0.5 * count <= sum(seconds) <= 1.01 * took, (seconds, took, r)
    return r, check


def test_stat_watch_rates():
    number = counters()
    r, check = watched(3, "stat", "ctx0")
    lines = [line.split() for line in r.out.splitlines()]
    assert lines[0][0] == "POOL" and len(lines) == 4, r
    for nr, line in enumerate(lines[1:]):
        values = dict(zip(lines[0], line))
        assert values["PAGES"] == str(1000 * number["pages"] * (nr + 2)), r
        hits = 100 * number["loads"] / (number["loads"] + number["misses"])
        assert abs(float(values["HIT-%"]) - hits) < 0.06, r
    # each answer raises each counter by a thousand times its number
    for title, key in (("LOADS/s", "loads"), ("STORES/s", "stores"), ("EVICT/s", "evicted_pages")):
        check([1000 * number[key] / float(line[lines[0].index(title)]) for line in lines[1:]])


def test_stat_watch_json_is_one_object_a_line():
    r, check = watched(2, "stat", "-o", "json")
    lines = [json.loads(line) for line in r.out.splitlines()]
    check([line["seconds"] for line in lines])
    assert all(line["format"] == 1 for line in lines), r
    assert lines[1]["stats"][0]["pages"] == lines[0]["stats"][0]["pages"] * 3 / 2, r


def test_stat_watch_without_number():
    r = good("stat", "ctx0", "--watch", "--count", "1")
    assert len(r.out.splitlines()) == 2, r
    bad(NODEV, "no such pool", "stat", "--watch", "nope")


TENANT_COUNTERS = ["stores", "store_bytes", "dedups", "unadmitted", "loads", "load_bytes", "from_dram", "misses", "failed",
                   "evicted_pages", "inflight", "waiting"]


def test_tenant_stat():
    r = good("tenant", "stat", "ctx0", "llama", "-o", "json")
    assert r.log == ["tenant-stats dump version 1", "  pool=ctx0"], r
    (t,) = r.json()["tenants"]
    assert (t["pool"], t["tenant"]) == ("ctx0", "llama"), t
    assert {k: t[k] for k in TENANT_COUNTERS} == {k: 10000 * (i + 2) for i, k in enumerate(TENANT_COUNTERS)}, t
    load, store = t["latencies"]
    assert (load["operation"], load["priority"], load["count"]) == ("load", "urgent", 1000), load
    # where the bucket ends that has the one in question: of the loads the third of an octave from 1024 ns on, and 2^20 on
    assert (load["p50_ns"], load["p99_ns"], load["p999_ns"]) == (1024 * 7 // 4, 1024 * 7 // 4, (1 << 20) * 5 // 4), load
    assert (store["operation"], store["priority"], store["count"]) == ("store", "normal", 1010), store
    assert store["p50_ns"] == (1 << 22) * 6 // 4 and store["p999_ns"] == 1 << 35, store
    assert len(load["buckets"]) == 101 and load["buckets"][3] == 990 and store["buckets"] == [10] * 101, load
    text = [line.split() for line in good("tenant", "stat", "ctx0", "llama").out.splitlines()]
    assert text[0] == ["tenant", "ctx0/llama"] and text[1] == ["stores", "20000"], text
    assert text[-2] == ["load", "urgent", "1000", "1.8", "1.8", "1310.7"], text
    assert [(t["pool"], t["tenant"]) for t in good("tenant", "stat", "-o", "json").json()["tenants"]] == [
        ("ctx0", "default"), ("ctx0", "llama"), ("ctx1", "default")]
    bad(NODEV, "no tenant named x", "tenant", "stat", "ctx0", "x")
    bad(USAGE, "--count: needs --watch", "tenant", "stat", "--count", "1")


def test_tenant_stat_watch():
    r, check = watched(2, "tenant", "stat", "ctx0")
    lines = [line.split() for line in r.out.splitlines()]
    assert lines[0][0] == "TENANT" and [line[0] for line in lines[1:]] == ["ctx0/default", "ctx0/llama"] * 2, r
    for line in lines[1:]:
        values = dict(zip(lines[0], line))
        # of those since the line before
        assert (values["LOAD-p99"], values["STORE-p99"]) == ("1.8", "30064771.1"), r
    for tenant, scale in ("ctx0/default", 1), ("ctx0/llama", 10):
        rates = [float(line[lines[0].index("LOADS/s")]) for line in lines[1:] if line[0] == tenant]
        check([1000 * scale * (TENANT_COUNTERS.index("loads") + 2) / rate for rate in rates])
    r, check = watched(2, "tenant", "stat", "-o", "json")
    check([json.loads(line)["seconds"] for line in r.out.splitlines()])


def test_events():
    r = good("events", "--count", "4")
    assert r.log == ["joins 31"], r
    lines = [line.split(" ", 1) for line in r.out.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", when) for when, _ in lines), r
    assert [" ".join(what.split()) for _, what in lines] == [
        "pool_attached ctx0", "tenant_added ctx0/llama", "lost some events were not told: the reader was too slow",
        "member_lost ctx1 member 3 /dev/nvme5n1", "pool_detached ctx1"], r
    events = [json.loads(line) for line in good("events", "--count", "4", "-o", "json").out.splitlines()]
    assert [(e["event"], e["pool"]) for e in events] == [
        ("pool_attached", "ctx0"), ("tenant_added", "ctx0"), ("lost", ""), ("member_lost", "ctx1"), ("pool_detached", "ctx1")]
    assert events[1]["object"] == good("tenant", "show", "ctx0", "llama", "-o", "json").json()["tenant"], events[1]
    assert events[3]["object"]["members"][0]["state"] == "failed" and "object" not in events[2], events
    assert "ctx0" not in good("events", "--count", "2", "ctx1").out
    r = run("events", "--count", "0")
    assert r.status == 0 and not r.out and not r.err, r
    bad(NODEV, "needs CAP_NET_ADMIN", "events", join="no")
    bad(NODEV, "there is no kvctxd", "events", "--socket", "/nonexistent/control")


def test_events_of_pages():
    r = good("events", "--pages", "--count", "7")
    assert r.log == ["joins 31", "joins 32"], r
    key = "fe" + 30 * "00" + "07" + "0201" + 6 * "00"
    keyspace = "ab" + 14 * "00" + "01"
    assert [" ".join(line.split()[1:]) for line in r.out.splitlines()][-4:] == [
        f"page_stored ctx0/llama {keyspace} {key} 4096", f"page_evicted ctx0/llama {keyspace} {key} 4096",
        "lost ctx1 12345 events of pages were not told: too many", f"page_deleted ctx1/llama {keyspace} {key} 4096"], r
    events = [json.loads(line) for line in good("events", "--pages", "--count", "7", "-o", "json").out.splitlines()][-4:]
    assert [(e["event"], e["pool"]) for e in events] == [
        ("page_stored", "ctx0"), ("page_evicted", "ctx0"), ("lost", "ctx1"), ("page_deleted", "ctx1")], events
    assert events[0]["object"] == {"tenant": "llama", "keyspace": keyspace, "key": key, "bytes": 4096}, events
    assert events[2]["object"] == {"events": 12345}, events
    # in the middle of a message, too
    assert good("events", "--pages", "--count", "5").out.splitlines()[-1].split()[1] == "page_stored"
    r = good("events", "--pages", "--count", "3", "ctx1")
    assert "ctx0" not in r.out and r.out.splitlines()[-1].split()[1] == "page_deleted", r


def test_kernel_sentence_is_shown():
    for args in EVERY:
        r = bad(FAILED, "sessions are open, 2 of them", *args, errno=16, why="sessions are open, 2 of them")
        assert r.err.startswith("kvctxctl: " + " ".join(args[:2])), r
        bad(FAILED, "this one", *args, errno=16, why="this one", capped=1)
    for args in DUMPS:
        bad(FAILED, "at the end", *args, errno=5, why="at the end", in_done=1)


def test_without_sentence_the_error_is_told():
    for args in EVERY:
        bad(FAILED, "Device or resource busy", *args, errno=16)
    for args in DUMPS:
        bad(FAILED, "Input/output error", *args, errno=5, in_done=1)


def test_error_names_the_object():
    bad(FAILED, "kvctxctl: tenant add ctx0 llama: busy", "tenant", "add", "ctx0", "llama", errno=16, why="busy")
    bad(FAILED, "kvctxctl: pool detach ctx0: busy", "pool", "detach", "ctx0", errno=16, why="busy")


def test_no_permission():
    for args in EVERY:
        bad(NODEV, ["not permitted", "CAP_SYS_ADMIN"], *args, errno=1)
        bad(NODEV, "only for root", *args, errno=1, why="only for root")


def test_status_follows_the_error():
    for errno, status in ((2, NODEV), (19, NODEV), (6, NODEV), (13, NODEV), (95, NOSUPP), (22, FAILED), (17, FAILED)):
        bad(status, "x", "pool", "attach", "/dev/x", errno=errno, why="x")


def test_module_not_loaded():
    for args in EVERY:
        bad(NODEV, ["module is not loaded", "kvctxctl load"], *args, family="no")


def test_no_netlink():
    for args in EVERY:
        bad(FAILED, "netlink", *args, connect="no")


def test_interrupted_dump_is_asked_again():
    for args in DUMPS:
        r = good(*args, interrupted=3)
        assert len(r.log) == 4, r
    assert len(good("pool", "list", "-o", "json", interrupted=3).json()["pools"]) == 2
    bad(FAILED, "netlink", "pool", "list", interrupted=100)


def test_malformed_answer():
    bad(FAILED, "Bad message", "pool", "show", "ctx0", bad=1)
    bad(FAILED, "Bad message", "pool", "list", bad=1)


def test_full_output():
    with open("/dev/full", "w") as full:
        r = spawn(os.path.join(tool.OUT, "test/kvctxctl-fake"), ["pool", "list"], {}, stdout=full)
    assert r.status == FAILED and "kvctxctl: output: No space left on device" in r.err, r


def test_json_without_slash_escapes():
    r = run("tenant", "list", "-o", "json")
    assert '"/dev/kvctx/ctx0/llama"' in r.out, r
