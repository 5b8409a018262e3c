# SPDX-License-Identifier: GPL-2.0
"""Pools on block devices: pool scan, pool attach by name."""
import fcntl
import re
import shutil
import threading
import time

import tool
from foreign import dos, ext4
from pools import change_super, size, write
from tool import FAILED, NODEV, USAGE, attribute, bad, block, good, image, node, put, run, superblocks

MIB = 1 << 20
SIZE = 9 * MIB


def disks(*names, shown=True):
    """Block devices: as the tool is told them, and their files"""
    made = [block(n, SIZE, shown) for n in names]
    return [m[0] for m in made], [m[1] for m in made]


def pool(name, *devices):
    return good("pool", "format", name, *devices, "--segment-size", "1M", "-o", "json").json()["pool"]["uuid"]


def scan(*args, **fakes):
    return good("pool", "scan", "-o", "json", *args, **fakes).json()


def rows(found):
    return [(m["index"], m["state"], m.get("device")) for m in found["members"]]


def test_two_pools():
    (a, b, c, d), _ = disks("a", "b", "c", "cciss/d0")
    one, two = pool("one", b, a), pool("two", c)
    r = scan()
    assert r["format"] == 1 and r["damaged"] == [], r
    assert r["skipped"] == [{"device": d, "reason": "no kvctx superblock"}], r
    assert [(p["name"], p["uuid"], p["state"], p["nr_members"], p["missing"]) for p in r["pools"]] == [
        ("one", one, "complete", 2, 0), ("two", two, "complete", 1, 0)], r
    assert rows(r["pools"][0]) == [(0, "there", b), (1, "there", a)], r
    text = good("pool", "scan").out
    assert re.search(rf"^pool +one\nuuid +{one}\nstate +complete\n\nMEMBER  STATE  HOLDS  DEVICE\n +0  there  - +{b}$", text, re.M)
    assert "SKIPPED" not in text and re.search(rf"^{d} +no kvctx superblock$", good("pool", "scan", "-v").out, re.M)


def test_nothing():
    disks("a")
    assert good("pool", "scan").out == "No pool found.\n"
    assert scan()["pools"] == []


def test_only_these():
    (a, b), _ = disks("a", "b")
    pool("one", a)
    pool("two", b)
    assert [p["name"] for p in scan(b)["pools"]] == ["two"]
    c = image("c", SIZE)
    pool("three", c)
    r = scan(c, b, c)
    assert [p["name"] for p in r["pools"]] == ["three", "two"] and r["skipped"][0]["reason"].startswith("the same device"), r
    r = run("pool", "scan", "./nope", b, ".")
    assert r.status == NODEV and "two" in r.out and r.err.splitlines() == [
        "kvctxctl: ./nope: cannot open: No such file or directory", "kvctxctl: .: neither a block device nor a file"], r


def test_what_cannot_be_opened():
    (a, b), _ = disks("a", "b")
    pool("one", a)
    block("tiny", MIB)
    with open(tool.DIR + "/root/proc/partitions", "a") as f:
        f.write("  11        0    1048575 sr0\n")           # no medium, no node: no error
    r = scan()
    assert [s["device"] for s in r["skipped"]] == [b, "/dev/tiny", "/dev/sr0"], r
    r = run("pool", "scan", denied="b")
    assert r.status == NODEV and "pool   one" in r.out and "1 block devices may not be opened" in r.err, r
    bad(NODEV, ["two", "no such pool", "1 block devices may not be opened"], "pool", "attach", "two", denied="b")


def test_missing_and_overwritten():
    (a, b, c), (fa, fb, fc) = disks("a", "b", "c")
    uuid = pool("one", a, b, c)
    put(fb, 0, bytes(SIZE))
    ext4(fc)
    p, = scan()["pools"]
    assert (p["state"], p["missing"], p["nr_members"], p["uuid"]) == ("degraded", 2, 3, uuid), p
    assert rows(p) == [(0, "there", a), (1, "missing", None), (2, "overwritten", c)], p
    assert p["members"][2]["signature"] == "ext4", p
    text = good("pool", "scan").out
    assert re.search(r"^ +1  missing +- +-$", text, re.M) and re.search(rf"^ +2  overwritten  ext4 +{c}$", text, re.M), text
    r = bad(FAILED, [c, "holds ext4 now"], "pool", "attach", "one")
    assert r.log == [], r
    assert good("pool", "attach", "one", "--degraded").log == ["attach version 1", f"  device={a}", "  degraded"]
    ext4(fa)
    assert scan()["pools"][0]["state"] == "unusable"
    bad(FAILED, "none of its members", "pool", "attach", "one", "--degraded")


def test_damaged():
    (a, b), (fa, fb) = disks("a", "b")
    pool("one", a)
    for at in (0, 65536, SIZE - 131072, SIZE - 65536):
        put(fa, at + 500, b"damage")
    r = scan()
    assert r["pools"] == [] and r["damaged"] == [{"device": a, "reason": "superblock damaged: checksum mismatch"}], r
    assert re.search(rf"^{a} +superblock damaged", good("pool", "scan").out, re.M)
    shutil.copy(write([size(), change_super(0, 2, 8, 2)])[0], fb)
    assert "version" in scan()["damaged"][1]["reason"]


def test_the_module_and_kvctxd():
    """Both are asked, the one that is loaded and the one that is named"""
    (a,), (fa,) = disks("a")
    pool("one", a)
    r = scan()
    assert r["pools"][0]["state"] == "complete", r
    socket = ["--socket", "/nowhere/control"]
    for verb in (["scan"], ["scan", a], ["attach", "one"], ["destroy", "one", "-f"], ["destroy", a, "-f"]):
        r = bad(NODEV, "/nowhere/control: there is no kvctxd", "pool", *verb, *socket)
        assert r.log == [], r
    assert [s["reason"] for s in superblocks(fa)] == [0] * 4
    node("/sys/module/kvctx/refcnt")
    assert bad(NODEV, "there is no kvctxd", "pool", "scan", *socket).log == ["pool dump version 1"]


def test_older_members():
    """A member that was removed, and one that has shrunk"""
    (a, b), (fa, fb) = disks("a", "b")
    one, two = write([size(2), change_super(0, 0, 16, 4), change_super(0, 2, 16, 4), change_super(0, 0, 280, 7),
                      change_super(0, 2, 280, 7)])
    shutil.copy(one, fa)
    shutil.copy(two, fb)
    p, = scan()["pools"]
    assert p["missing"] == 1 and (1, "stale", b) in rows(p) and (1, "missing", None) in rows(p), p


def test_histories():
    (a, b), (fa, fb) = disks("a", "b")
    one, two = write([size(2), *(change_super(m, s, 256 + 24 * (1 - m) + 20, 1) for m in (0, 1) for s in range(4)),
                      change_super(0, 0, 16, 4), change_super(0, 2, 16, 4),
                      change_super(1, 0, 16, 6), change_super(1, 2, 16, 6)])
    shutil.copy(one, fa)
    shutil.copy(two, fb)
    assert [p["state"] for p in scan()["pools"]] == ["mismatch"]


def test_two_paths():
    """One namespace behind two block devices"""
    (a, b, c), (fa, fb, fc) = disks("nvme0n1", "nvme1n1", "nvme2n1")
    pool("one", a, c)
    shutil.copy(fa, fb)
    p, = scan()["pools"]
    assert p["state"] == "ambiguous" and rows(p) == [(0, "there", a), (0, "copy", b), (1, "there", c)], p
    r = bad(FAILED, ["one", f"member 0 is there twice, {a} and {b}"], "pool", "attach", "one")
    assert r.log == [], r
    for name in ("nvme0n1", "nvme1n1"):
        attribute(f"/sys/class/block/{name}/wwid", "uuid.5e1f7e57-0000-4000-8000-000000000001")
    p, = scan()["pools"]
    assert p["state"] == "complete" and rows(p) == [(0, "there", a), (0, "other_path", b), (1, "there", c)], p
    r = run("pool", "attach", "one")
    assert r.status == 0 and r.log == ["attach version 1", f"  device={a}", f"  device={c}"], r
    assert r.err == f"kvctxctl: {b}: left out: another path to {a}\n", r
    # held by a device above them, as by multipath: that is the member
    above, = disks("dm-0")[1]
    shutil.copy(fa, above)
    p, = scan(busy="nvme0n1 nvme1n1")["pools"]
    assert rows(p) == [(0, "in_use", a), (0, "in_use", b), (0, "there", "/dev/dm-0"), (1, "there", c)], p
    # attached by the one path: the other is seen to be one
    node("/sys/module/kvctx/refcnt")
    p, = scan(busy="nvme1n1 nvme2n1", uuid=p["uuid"].replace("-", ""))["pools"]
    assert p["state"] == "attached" and rows(p)[:2] == [(0, "other_path", a), (0, "there", b)], p


def test_partitions_of_one_disk():
    """They have one name, and are not one"""
    (a, b), (fa, fb) = disks("nvme0n1p1", "nvme0n1p2")
    pool("one", a)
    shutil.copy(fa, fb)
    for nr in "12":
        attribute(f"/sys/class/block/nvme0n1p{nr}/wwid", "eui.1")
        attribute(f"/sys/class/block/nvme0n1p{nr}/partition", nr)
    assert scan()["pools"][0]["state"] == "ambiguous"


def test_the_last_partition():
    """A disk ends with the same superblocks as its last partition"""
    (disk, part), (fd, fp) = disks("sda", "sda1")
    pool("one", part)
    with open(fp, "rb") as f:
        f.seek(SIZE - 131072)
        put(fd, SIZE - 131072, f.read())
    dos(fd)
    p, = scan()["pools"]
    assert p["state"] == "complete" and rows(p) == [(0, "overwritten", disk), (0, "there", part)], p
    assert good("pool", "attach", "one").log == ["attach version 1", f"  device={part}"]


def test_attach_by_name():
    (a, b, c), _ = disks("a", "b", "c")
    one, two = pool("one", b, a), pool("two", c)
    r = good("pool", "attach", "one")
    assert sorted(r.log) == ["  device=/dev/a", "  device=/dev/b", "attach version 1"] and "Attached." in r.out, r
    assert good("pool", "attach", two.upper()).log[1:] == ["  device=/dev/c"]
    assert good("pool", "attach", "two", "-o", "json").json()["pool"]["name"] == "ctx0"
    bad(NODEV, ["three", "no such pool"], "pool", "attach", "three")
    bad(USAGE, "with a slash", "pool", "attach", "one", "two")
    bad(USAGE, "with a slash", "pool", "attach", "/dev/a", "two")


def test_two_pools_of_one_name():
    (a, b), _ = disks("a", "b")
    one, two = pool("one", a), pool("one", b)
    r = bad(FAILED, ["one: several pools", one, two, "UUID"], "pool", "attach", "one")
    assert r.log == [], r
    assert good("pool", "attach", two).log == ["attach version 1", "  device=/dev/b"]


def test_attached():
    (a, b), (fa, fb) = disks("a", "b")
    uuid = pool("one", a)
    pool("two", b)
    # not asked when it is not loaded: asking would load it
    assert good("pool", "scan", busy="a").log == []
    assert scan(busy="a")["pools"][0]["state"] == "unusable"
    node("/sys/module/kvctx/refcnt")
    fakes = {"busy": "a", "uuid": uuid.replace("-", "")}
    r = good("pool", "scan", "-o", "json", **fakes)
    assert r.log == ["pool dump version 1"] and [p["state"] for p in r.json()["pools"]] == ["attached", "complete"], r
    assert rows(r.json()["pools"][0]) == [(0, "there", a)], r
    bad(FAILED, "one: is attached", "pool", "attach", "one", **fakes)
    bad(FAILED, "no answer", "pool", "scan", errno=5, why="no answer")


def test_rejoin():
    """Members that the kernel has lost, by their devices or wherever they are"""
    r = good("pool", "rejoin", "ctx0", "x", "/dev/y")
    assert r.log == ["pool-rejoin version 1", "  pool=ctx0", f"  device={tool.DIR}/x",
                     "pool-rejoin version 1", "  pool=ctx0", "  device=/dev/y"], r
    assert r.out == f"{tool.DIR}/x is back in pool ctx0.\n/dev/y is back in pool ctx0.\n", r
    r = bad(FAILED, "pool rejoin ctx0: /dev/x: so not", "pool", "rejoin", "ctx0", "/dev/x", "/dev/y", errno=116, why="/dev/x: so not")
    assert r.log.count("  pool=ctx0") == 1, r
    (a, b, c), (_, fb, fc) = disks("a", "b", "c")
    fakes = {"uuid": pool("ctx0", a, b).replace("-", ""), "busy": "a"}
    # not asked when it is not loaded
    assert bad(NODEV, "ctx0: no pool of this name is attached", "pool", "rejoin", "ctx0", **fakes).log == []
    node("/sys/module/kvctx/refcnt")
    r = good("pool", "rejoin", "ctx0", **fakes)
    assert [line for line in r.log if "device" in line] == [f"  device={b}"] and r.out == f"{b} is back in pool ctx0.\n", r
    r = good("pool", "rejoin", "ctx0", "-o", "json", **fakes)
    assert r.json()["pool"]["members"][1]["state"] == "online", r
    assert good("pool", "rejoin", "ctx0", member=0, **fakes).out == "Pool ctx0 has lost no member.\n"
    assert good("pool", "rejoin", "ctx0", member=2, **fakes).out == "Pool ctx0 has lost no member.\n"
    bad(NODEV, "nothere: no pool", "pool", "rejoin", "nothere", **fakes)
    # the device that it had comes before another one with the same content, as what is below it has
    shutil.copy(fb, fc)
    assert f"  device={c}" in good("pool", "rejoin", "ctx0", device=c, **fakes).log
    good("pool", "format", "other", b, c, "--segment-size", "1M", "--force")
    bad(NODEV, "ctx0: of 1 lost member no device is there", "pool", "rejoin", "ctx0", **fakes)


def test_rejoin_in_another_order():
    """The first one is refused until the other one has returned."""
    (a, b), _ = disks("a", "b")
    node("/sys/module/kvctx/refcnt")
    r = run("pool", "rejoin", "ctx0", uuid=pool("ctx0", a, b).replace("-", ""), first_lost=1)
    assert [line for line in r.log if "device" in line] == [f"  device={d}" for d in (a, b, a)], r
    assert r.status == 0 and "others were lost later" in r.err, r
    assert r.out == f"{b} is back in pool ctx0.\n{a} is back in pool ctx0.\n", r


def test_scan_writes_nothing():
    (a, b), (fa, fb) = disks("a", "b")
    pool("one", a, b)
    before = open(fa, "rb").read()
    scan()
    assert open(fa, "rb").read() == before and [s["reason"] for s in superblocks(fb)] == [0] * 4
    assert good("pool", "scan", pwrite_fail=1, fail_from=1)


def test_attach_waits():
    """For a member that comes, not for what no other device mends"""
    (a, b), (fa, fb) = disks("a", "b")
    pool("one", a, b)
    shutil.copy(fb, fb + ".gone")
    put(fb, 0, bytes(SIZE))
    bad(FAILED, "", "pool", "attach", "one", "--wait", "0.6", why="there are not all", errno=22)
    mover = threading.Timer(1, lambda: shutil.copy(fb + ".gone", fb))
    mover.start()
    r = good("pool", "attach", "one", "--wait", "60")
    mover.join()
    assert r.log == ["attach version 1", f"  device={a}", f"  device={b}"], r
    began = time.monotonic()
    bad(NODEV, "no such pool", "pool", "attach", "two", "--wait", "0.2")
    assert time.monotonic() - began >= 0.2
    bad(USAGE, "--wait", "pool", "attach", a, b, "--wait", "1")


def test_attach_waits_no_more_for_what_is_attached():
    (a, b), _ = disks("a", "b")
    uuid = pool("ctx0", a, b).replace("-", "")
    node("/sys/module/kvctx/x")
    bad(FAILED, ["ctx0", "is attached"], "pool", "attach", "ctx0", uuid=uuid, busy="a b")
    r = good("pool", "attach", "ctx0", "--wait", "5", uuid=uuid, busy="a b")
    assert r.out.startswith("Attached already.\n") and not [x for x in r.log if x.startswith("attach")], r


def test_attach_goes_without():
    (a, b), (_, fb) = disks("a", "b")
    pool("one", a, b)
    put(fb, 0, bytes(SIZE))
    assert good("pool", "attach", "one", "--wait", "0.2", "--degraded").log == ["attach version 1", f"  device={a}", "  degraded"]


def test_format_waits_for_udev():
    """Which has a lock while it looks at what was closed a moment ago"""
    (a, b), (fa, fb) = disks("a", "b")
    with open(fa) as udev, open(fb) as other:
        fcntl.flock(udev, fcntl.LOCK_SH)
        release = threading.Timer(0.5, lambda: fcntl.flock(udev, fcntl.LOCK_UN))
        release.start()
        pool("one", a)
        release.join()
        fcntl.flock(other, fcntl.LOCK_SH)
        bad(FAILED, [b, "in use"], "pool", "format", "two", b, "--segment-size", "1M")


def test_probe():
    (a, b), (fa, fb) = disks("a", "b")
    uuid = pool("one", a, b)
    r = good("probe", b, "-o", "json").json()["member"]
    assert (r["pool"], r["pool_uuid"], r["index"], r["nr_members"]) == ("one", uuid, 1, 2), r
    told = dict(line.split("=") for line in good("probe", "--udev", b).out.splitlines())
    assert told == {"ID_FS_USAGE": "raid", "ID_FS_TYPE": "kvctx_member", "ID_FS_UUID": uuid, "ID_FS_UUID_SUB": r["uuid"],
                    "KVCTX_POOL": "one", "KVCTX_MEMBER": "1"}, told
    assert re.search(r"^pool +one$", good("probe", a, busy="a").out, re.M)
    ext4(fb)
    bad(FAILED, [b, "holds ext4 now", "pool one"], "probe", "--udev", b)
    put(fa, 0, bytes(SIZE))
    bad(NODEV, "no kvctx superblock", "probe", "--udev", a)
    bad(NODEV, "cannot open", "probe", "/dev/nope")
