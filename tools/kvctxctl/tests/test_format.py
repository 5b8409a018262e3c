# SPDX-License-Identifier: GPL-2.0
"""pool format on sparse files."""
import errno
import fcntl
import os
import re
import signal

import tool
from foreign import dos, ext4, gpt, lvm, swap, xfs
from tool import FAILED, NODEV, USAGE, bad, good, image, put, run, superblocks

MIB = 1 << 20
BAD_MAGIC = 1


def blank(path):
    return [s["reason"] for s in superblocks(path)] == [BAD_MAGIC] * 4


def fingerprint(path):
    with open(path, "rb") as f:
        return f.read()


def test_format_one():
    a = image("a", 9 * MIB + 131072)
    r = good("pool", "format", "p", a, "--segment-size", "1M")
    assert r.out == "Pool p formatted: 1 member, 8 segments of 1.0 MiB, 8.0 MiB.\n", r
    slots = superblocks(a)
    assert [s["reason"] for s in slots] == [0] * 4 and [s["seq"] for s in slots] == [2, 1, 2, 1], slots
    for s in slots:
        assert s["name"] == "p" and s["nr_members"] == 1 and s["member"] == 0 and s["segments"] == 8, s
        assert s["segment_size"] == MIB and s["chunk_size"] == 65536, s
        assert s["tenants"] == [["default", 0, 0, 0o600]], s


def test_format_three_with_json():
    paths = [image(f"d{i}", (10 + 10 * i) * MIB + 143417) for i in range(3)]
    r = good("pool", "format", "pool.3", *paths, "--segment-size=2M", "--chunk-size", "4K", "-o", "json").json()
    assert r["format"] == 1
    pool = r["pool"]
    assert (pool["name"], pool["segment_size"], pool["chunk_size"]) == ("pool.3", 2 * MIB, 4096)
    assert [m["segments"] for m in pool["members"]] == [4, 9, 14] and pool["segments"] == 27
    assert pool["capacity"] == 54 * MIB and [m["device"] for m in pool["members"]] == paths
    for i, path in enumerate(paths):
        for s in superblocks(path):
            assert (s["reason"], s["member"], s["nr_members"], s["chunk_size"]) == (0, i, 3, 4096), s
            assert s["uuid"] == pool["uuid"].replace("-", ""), s
            assert s["member_uuid"] == pool["members"][i]["uuid"].replace("-", ""), s
        assert os.path.getsize(path) == (10 + 10 * i) * MIB + 143417
    assert len({m["uuid"] for m in pool["members"]} | {pool["uuid"]}) == 4
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", pool["uuid"])


def test_defaults():
    a = image("a", 1026 * MIB)
    good("pool", "format", "p", a)
    s = superblocks(a)[0]
    assert (s["segment_size"], s["chunk_size"], s["segments"]) == (256 * MIB, 65536, 4), s
    assert (s["discard_rate"], s["write_budget"]) == (1 << 30, 0), s


def test_uuids_differ_each_time():
    a = image("a", 9 * MIB)
    first = good("pool", "format", "p", a, "--segment-size", "1M", "-o", "json").json()["pool"]["uuid"]
    again = good("pool", "format", "p", a, "--segment-size", "1M", "-o", "json", "-f").json()["pool"]["uuid"]
    assert first != again


def test_geometry():
    a = image("a", 64 * MIB)
    for size in ("128K", "2G", "262145", "1048577", "0"):
        bad(USAGE, "--segment-size: not a multiple of 4K between 256K and 1G", "pool", "format", "p", a,
            "--segment-size", size)
    for size in ("2K", "2M", "5K", "0", "65537"):
        bad(USAGE, "--chunk-size: not a power of two between 4K and 1M", "pool", "format", "p", a,
            "--chunk-size", size)
    assert blank(a)
    good("pool", "format", "p", a, "--segment-size", "260K", "--chunk-size", "1M")


def test_too_small():
    a = image("a", 5 * MIB + 131071)
    bad(FAILED, ["a: too small", "has 5.1 MiB, needs 5.1 MiB for 4 segments"], "pool", "format", "p", a,
        "--segment-size", "1M")
    assert blank(a)
    b = image("b", 5 * MIB + 131072)
    good("pool", "format", "p", b, "--segment-size", "1M")
    bad(FAILED, "too small", "pool", "format", "p", image("c", 0))


def test_too_large():
    """16M segments are the most a member can have: what is not used is told"""
    most = (16 << 20) * 262144 + MIB + 131072
    a = image("a", most + 262143)
    good("pool", "format", "p", a, "--segment-size", "256K")
    b = image("b", most + (1 << 40))
    for force in ([], ["--force"]):
        r = run("pool", "format", "p", b, "--segment-size", "256K", *force)
        assert r.status == 0 and "4.0 TiB.\n" in r.out, r
        assert r.err == (f"kvctxctl: {b}: only 4.0 TiB of 5.0 TiB are used, 16777216 segments; "
                         "larger ones (--segment-size) use all of it\n"), r
        put(b, 0, bytes(MIB))
        put(b, most + (1 << 40) - 131072, bytes(131072))
    good("pool", "format", "p", b, "--segment-size", "512K")


def test_nothing_is_written_before_all_are_checked():
    a, b = image("a", 9 * MIB), image("b", MIB)
    put(a, 3, b"precious")
    before = fingerprint(a)
    bad(FAILED, "b: too small", "pool", "format", "p", a, b, "--segment-size", "1M", "--force")
    assert fingerprint(a) == before


def test_same_device_twice():
    a, b = image("a", 9 * MIB), image("b", 9 * MIB)
    os.symlink(a, tool.DIR + "/link")
    os.link(a, tool.DIR + "/hard")
    for other in (a, "link", "hard", "./a"):
        r = run("pool", "format", "p", a, b, other, "--segment-size", "1M", "--force")
        assert r.status == USAGE and f"the same device as {a}" in r.err, r
    assert blank(a) and blank(b)


def test_not_a_device():
    bad(NODEV, ["nope", "No such file"], "pool", "format", "p", "nope")
    bad(FAILED, "neither a block device nor a file", "pool", "format", "p", tool.DIR)
    bad(FAILED, "neither a block device nor a file", "pool", "format", "p", "/dev/null", "--force")


def test_busy_and_forbidden():
    a = image("a", 9 * MIB)
    bad(FAILED, "in use: mounted", "pool", "format", "p", a, open_errno=16)
    bad(NODEV, "Permission denied", "pool", "format", "p", a, open_errno=13)
    bad(FAILED, "Read-only file system", "pool", "format", "p", a, open_errno=30)


def test_too_many():
    devices = [f"d{i}" for i in range(65)]
    r = run("pool", "format", "p", *devices)
    assert r.status == USAGE and "at most 64 devices" in r.err, r


def test_sixty_four():
    paths = [image(f"d{i}", 3 * MIB) for i in range(64)]
    good("pool", "format", "p", *paths, "--segment-size", "256K")
    assert superblocks(paths[63])[0]["member"] == 63 and superblocks(paths[63])[1]["nr_members"] == 64


def test_own_superblock():
    a, b = image("a", 9 * MIB), image("b", 9 * MIB)
    good("pool", "format", "old", a, "--segment-size", "1M")
    before = fingerprint(a)
    bad(FAILED, ["member of the pool old", "--force"], "pool", "format", "new", b, a, "--segment-size", "1M")
    assert fingerprint(a) == before and blank(b)
    good("pool", "format", "new", b, a, "--segment-size", "1M", "--force")
    assert {s["name"] for s in superblocks(a) + superblocks(b)} == {"new"}


def test_force_tells_what_is_lost():
    a, b = image("a", 9 * MIB), image("b", 9 * MIB)
    good("pool", "format", "old", a, "--segment-size", "1M")
    ext4(b)
    words = ["pool", "format", "new", a, b, "--segment-size", "1M", "--force"]
    r = good(*words, "--dry-run")
    assert r.out.splitlines() == [
        "Pool new would be formatted: 2 members, 14 segments of 1.0 MiB, 14.0 MiB.",
        f"{a}: what it holds would be lost: member of the pool old.",
        f"{b}: what it holds would be lost: ext4.", "Nothing was written."], r
    r = good(*words, "-o", "json").json()
    assert [m["held"] for m in r["pool"]["members"]] == ["member of the pool old", "ext4"] and "dry_run" not in r, r
    assert f"{a}: what it held is lost: member of the pool new.\n" in good(*words).out


def test_dry_run():
    a = image("a", 9 * MIB)
    before = fingerprint(a)
    r = good("pool", "format", "p", a, "--segment-size", "1M", "--dry-run", "-o", "json").json()
    assert r["dry_run"] is True and "uuid" not in r["pool"] and "uuid" not in r["pool"]["members"][0], r
    assert r["pool"]["segments"] == 7 and "held" not in r["pool"]["members"][0] and fingerprint(a) == before, r
    good("pool", "format", "old", a, "--segment-size", "1M")
    bad(FAILED, "member of the pool old", "pool", "format", "p", a, "--segment-size", "1M", "--dry-run")
    new = os.path.join(tool.DIR, "new")
    good("pool", "format", "p", "--size", "9M", "--segment-size", "1M", "--dry-run", new)
    assert not [n for n in os.listdir(tool.DIR) if "new" in n]
    bad(FAILED, "No space left", "pool", "format", "p", "--size", "9M", "--segment-size", "1M", "--dry-run", new,
        fallocate_errno=28)


def test_own_superblock_in_one_slot_and_damaged():
    a = image("a", 9 * MIB)
    good("pool", "format", "old", a, "--segment-size", "1M")
    put(a, 0, bytes(65536))
    bad(FAILED, "member of the pool old", "pool", "format", "new", a, "--segment-size", "1M")
    put(a, 65536 + 500, b"damage")
    bad(FAILED, "member of a pool (", "pool", "format", "new", a, "--segment-size", "1M")
    good("pool", "format", "new", a, "--segment-size", "1M", "-f")


def test_own_superblock_at_the_end():
    """Something took the first MiB: the copy at the end says what the device is, until it is formatted"""
    a = image("a", 17 * MIB)
    good("pool", "format", "old", a, "--segment-size", "1M")
    put(a, 0, bytes(MIB))
    assert [s["reason"] for s in superblocks(a)] == [BAD_MAGIC, BAD_MAGIC, 0, 0]
    bad(FAILED, "member of the pool old", "pool", "format", "new", a, "--segment-size", "1M")
    # also when the new pool's segments are of another size
    good("pool", "format", "new", a, "--segment-size", "2M", "--force")
    assert {s["name"] for s in superblocks(a)} == {"new"}


def test_foreign_signatures():
    for name, make, kind in (("e", ext4, "ext4"), ("x", xfs, "xfs"), ("s", swap, "swap"), ("d", dos, "dos"),
                             ("l", lvm, "LVM2_member")):
        a = image(name, 9 * MIB)
        make(a)
        before = fingerprint(a)
        bad(FAILED, [f"holds something ({kind})", "--force"], "pool", "format", "p", a, "--segment-size", "1M")
        assert fingerprint(a) == before
        good("pool", "format", "p", a, "--segment-size", "1M", "--force")
        assert [s["reason"] for s in superblocks(a)] == [0] * 4
        # Nothing of it is left: what is found now is the pool
        bad(FAILED, "member of the pool p", "pool", "format", "q", a, "--segment-size", "1M")


def test_signatures_far_from_the_start():
    """ZFS labels, the backup of a GPT: --force wipes what lies behind the superblocks too"""
    a = image("a", 9 * MIB)
    gpt(a, 9 * MIB)
    bad(FAILED, "holds something (gpt)", "pool", "format", "p", a, "--segment-size", "1M")
    good("pool", "format", "p", a, "--segment-size", "1M", "--force")
    assert b"EFI PART" not in fingerprint(a)


def test_force_wipes_other_members_of_the_old_content():
    """The data behind the first megabyte is left alone"""
    a = image("a", 9 * MIB)
    put(a, 2 * MIB, b"old pages")
    put(a, MIB - 9, b"old start")
    good("pool", "format", "p", a, "--segment-size", "1M", "--force")
    text = fingerprint(a)
    assert text[2 * MIB:2 * MIB + 9] == b"old pages" and b"old start" not in text


def sweep(fault):
    """Let the n-th call fail until nothing is left to fail; no device may look like a member before that"""
    for n in range(1, 100):
        paths = [image(f"d{i}", 9 * MIB) for i in range(3)]
        r = run("pool", "format", "p", *paths, "--segment-size", "1M", "--force", **{fault: n})
        if r.status == 0:
            assert all([s["reason"] for s in superblocks(p)] == [0] * 4 for p in paths), r
            return n - 1
        assert r.status == FAILED and "Input/output error" in r.err and not r.out, r
        assert all(blank(p) for p in paths), r
    raise AssertionError("never succeeds")


def test_every_write_may_fail():
    assert sweep("pwrite_fail") >= 9


def test_every_flush_may_fail():
    assert sweep("fsync_fail") == 6


def test_what_was_not_begun_is_left_alone():
    """Whichever device cannot be cleared: those behind it keep what they had"""
    paths = [image(f"d{i}", 9 * MIB) for i in range(3)]
    good("pool", "format", "old", *paths, "--segment-size", "1M")
    before = [fingerprint(p) for p in paths]
    failed = -1
    n = 0
    while failed < 2:
        n += 1
        r = run("pool", "format", "p", *paths, "--segment-size", "1M", "--force", pwrite_fail=n)
        failed = paths.index(re.match(r"kvctxctl: (.*): cannot write", r.err)[1])
        assert [fingerprint(p) for p in paths[failed + 1:]] == before[failed + 1:], r
        assert all(blank(p) for p in paths[:failed + 1]), r


def test_a_device_that_fails_for_good_is_named():
    paths = [image(f"d{i}", 9 * MIB) for i in range(2)]
    r = run("pool", "format", "p", *paths, "--segment-size", "1M", fsync_fail=3, fail_from=1)
    assert r.status == FAILED and r.err.count("may still hold a superblock") == 2, r


def create(*names, size="9M", **fakes):
    paths = [os.path.join(tool.DIR, n) for n in names]
    return paths, run("pool", "format", "p", *paths, "--segment-size", "1M", "--size", size, **fakes)


def nothing_is_left(names=()):
    return sorted(set(os.listdir(tool.DIR)) - {"log"}) == sorted(names)


def test_files_are_created():
    for less in ({}, {"no_tmpfile": 1}, {"fallocate_errno": errno.EOPNOTSUPP}):
        paths, r = create("a", "b", **less)
        assert r.status == 0 and r.out == "Pool p formatted: 2 members, 14 segments of 1.0 MiB, 14.0 MiB.\n", r
        for i, path in enumerate(paths):
            st = os.stat(path)
            assert (st.st_size, st.st_mode & 0o777) == (9 * MIB, 0o600) and st.st_blocks * 512 >= 9 * MIB
            assert [(s["reason"], s["member"]) for s in superblocks(path)] == [(0, i)] * 4
        assert nothing_is_left("ab")
        good("check", *paths)
        for path in paths:
            os.unlink(path)


def test_files_that_are_there_are_not_created():
    a = image("a", 9 * MIB)
    before = fingerprint(a)
    for name, other in (("a", "b"), ("b", "a")):
        paths, r = create(name, other)
        assert r.status == FAILED and f"{a}: is there already; without --size" in r.err, r
        assert fingerprint(a) == before and nothing_is_left("a")
    r = create("b", "b")[1]
    assert r.status == FAILED and nothing_is_left("a"), r


def test_files_that_cannot_be_created_leave_nothing():
    for less in ({}, {"no_tmpfile": 1}):
        r = create("a", "b", fallocate_errno=errno.ENOSPC, **less)[1]
        assert r.status == FAILED and "a: cannot be created: No space left on device" in r.err, r
        assert nothing_is_left()
        r = create("a", size="5M", **less)[1]
        assert r.status == FAILED and "too small" in r.err and nothing_is_left(), r
        for fault in ("pwrite_fail", "fsync_fail"):
            for n in range(1, 30):
                r = create("a", "b", **{fault: n}, **less)[1]
                if r.status == 0:
                    assert n > 5
                    break
                assert r.status == FAILED and nothing_is_left(), r
            for name in "ab":
                os.unlink(os.path.join(tool.DIR, name))
    r = create("nowhere/a")[1]
    assert r.status == NODEV and "no such directory" in r.err, r


def test_files_are_not_left_by_signals():
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        for less in ({}, {"no_tmpfile": 1}):
            r = tool.spawn(os.path.join(tool.OUT, "test/kvctxctl-fake"),
                           ["pool", "format", "p", "a", "b", "--segment-size", "1M", "--size", "9M"],
                           {"fallocate_signal": int(sig), **less})
            assert r.status == -sig and not r.out, r
            # who is killed has no say; what is left is of no member's name, and the next one takes it over
            assert nothing_is_left([".a.new"] if less and sig == signal.SIGKILL else []), r
    r = create("a", "b", no_tmpfile=1)[1]
    assert r.status == 0 and nothing_is_left("ab"), r


def test_a_file_that_a_process_serves():
    a = image("a", 9 * MIB)
    good("pool", "format", "p", a, "--segment-size", "1M")
    with open(a, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        bad(FAILED, "in use", "pool", "format", "p", a, "--segment-size", "1M", "--force")
        bad(NODEV, ["in use", "--force looks at it anyway"], "check", a)
        good("check", a, "--force")
