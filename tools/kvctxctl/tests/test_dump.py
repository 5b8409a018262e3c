# SPDX-License-Identifier: GPL-2.0
"""dump: superblocks, segments, pages."""
import os
import re

from pools import block, change_super, end, flip, log, page, size, sound, write
from tool import FAILED, NODEV, USAGE, bad, good, image, put, run


def test_super():
    devices = write(sound())
    slots = good("dump", devices[1], "-o", "json").json()["superblocks"]
    assert [s["slot"] for s in slots] == [0, 1, 2, 3] and [s["seq"] for s in slots] == [2, 1, 2, 1], slots
    assert [s["offset"] for s in slots] == [0, 65536, 2097152, 2162688], slots
    assert [s["counts"] for s in slots] == [True, False, False, False] and slots[3]["valid"] is True and "reason" not in slots[3], slots
    s = slots[0]
    assert (s["version"], s["pool"], s["segment_size"], s["chunk_size"]) == (1, "rig", 262144, 4096), s
    assert (s["nr_members"], s["member_index"]) == (2, 1) and [m["segments"] for m in s["members"]] == [4, 4], s
    assert s["uuid"] == "11111111-1111-1111-1111-111111111111" and re.fullmatch("0x[0-9a-f]+", s["crc"]), s
    assert [(t["slot"], t["tenant"], t["epoch"]) for t in s["tenants"]] == [(0, "default", 0), (1, "one", 0), (2, "two", 5)], s
    text = good("dump", devices[1], "super").out
    assert "pool: rig\n" in text and " mode 0" in text and "- slot 2 tenant two flags 0x1 epoch 5 " in text, text


def test_limits():
    """Shown where the superblock says that there are some; tenant 1's quota and flags here"""
    rows = [(32, 2), (21248 + 64, 12345), (21248 + 64 + 60, 1)]
    devices = write(sound() + [change_super(m, slot, at, value) for m in range(2) for slot in range(4) for at, value in rows])
    tenants = good("dump", devices[0], "-o", "json").json()["superblocks"][0]["tenants"]
    assert [(t["quota"], t["reserve"], t["limit_flags"]) for t in tenants] == [
        (0, 0, "0x0"), (12345, 0, "0x1"), (0, 0, "0x0")], tenants
    assert " quota 12345 reserve 0 write_budget 0 " in good("dump", devices[0]).out
    tenants = good("check", *devices, "-o", "json").json()["check"]["tenants"]
    assert [(t["tenant"], t["quota"], t["reserve"]) for t in tenants] == [
        ("default", 0, 0), ("one", 12345, 0), ("two", 0, 0)], tenants
    devices = write(sound() + [change_super(0, 0, 21248 + 64, 12345)], "q")
    assert "quota" not in good("dump", devices[0]).out
    devices = write(sound() + [change_super(0, 0, 32, 2), change_super(0, 0, 21248 + 64 + 60, 2)], "bad")
    assert run("dump", devices[0], "-o", "json").json()["superblocks"][0]["reason"].startswith("tenant or its limits")


def test_damaged_super():
    """It is shown as it lies there, text that is none too"""
    devices = write(sound())
    put(devices[0], 64, b"r\n\xffg")
    put(devices[0], 108, b"\xff\xff\xff\xff")
    put(devices[0], 65536, b"gone")
    r = run("dump", devices[0], "-o", "json")
    slots = r.json()["superblocks"]
    assert r.status == FAILED and [s.get("reason", "valid") for s in slots] == ["checksum mismatch", "not a kvctx structure", "valid",
                                                                   "valid"], r
    assert slots[0]["pool"] == "r\\x0a\\xffg" and slots[0]["nr_members"] == 0xffffffff, r
    assert len(slots[0]["members"]) == 64 and "seq" not in slots[1] and slots[2]["counts"], r


def test_no_super():
    a = image("a", 9 << 20)
    for what in ([], ["super"], ["segment", "1"], ["page", "00"]):
        bad(NODEV, "no kvctx superblock", "dump", a, *what)
    devices = write(sound())
    for at in (0, 65536, -131072, -65536):
        flip(devices[1], at % os.path.getsize(devices[1]) + 300)
    assert run("dump", devices[1]).status == FAILED
    bad(FAILED, "superblock damaged: checksum mismatch", "dump", devices[1], "segment", "1")


def test_segment():
    devices = write(sound())
    s = good("dump", devices[0], "segment", "1", "-o", "json").json()["segment"]
    assert (s["member"], s["segment"], s["offset"], s["state"]) == (0, 1, block(1, 0), "log"), s
    assert (s["generation"], s["salt"], s["log_end"], s["behind_it"]) == (6, "0x7", 3, "not a kvctx structure"), s
    assert [(e["block"], e["bytes"], e["nr_records"]) for e in s["extents"]] == [(0, 4096, 0), (1, 4096, 2), (2, 4096, 2)], s
    assert [e["flags"] for e in s["extents"]] == ["0x0"] * 3, s
    rec = s["extents"][1]["records"][0]
    assert (rec["type"], rec["seq"], rec["block"], rec["length"], rec["tenant"]) == ("page", 1, 61, 9000, 0), rec
    assert rec["key"].startswith("a0a0a2a3") and len(rec["key"]) == 80 and len(rec["crcs"]) == 3, rec
    text = good("dump", devices[0], "segment", "1").out
    assert text.count("- type page key ") == 4 and f"crcs {' '.join(rec['crcs'])}\n" in text, text


def test_tombstone_and_states():
    devices = write(sound())
    s = good("dump", devices[1], "segment", "2", "-o", "json").json()["segment"]
    tomb = s["extents"][1]["records"][1]
    assert (tomb["type"], tomb["seq"], tomb["victim_member"], tomb["victim_segment"], tomb["victim_generation"]) == (
        "tombstone", 7, 0, 1, 6), tomb
    assert good("dump", devices[0], "segment", "0", "-o", "json").json()["segment"]["state"] == "empty"
    s = good("dump", devices[0], "segment", "3", "-o", "json").json()["segment"]
    assert s["state"] == "blank" and "generation" not in s and s["extents"] == [], s


def test_damaged_segment():
    devices = write(sound())
    flip(devices[0], block(1, 2) + 700)
    r = run("dump", devices[0], "segment", "1", "-o", "json")
    s = r.json()["segment"]
    assert r.status == FAILED and s["damage"] == "an extent is damaged" and s["behind_it"] == "checksum mismatch", r
    devices = write([size(), log(0, 1, 5), page(1, 2, 9000, 1), page(2, 1, 9000, 2), end()], "q")
    r = run("dump", devices[0], "segment", "1", "-o", "json")
    e = r.json()["segment"]["extents"][1]
    assert r.status == FAILED and e["damage"] == "record with a field out of range" and len(e["records"]) == 1, r


def test_pages():
    devices = write(sound())
    recs = good("dump", devices[0], "page", "a0", "-o", "json").json()["records"]
    assert [r["seq"] for r in recs] == [1, 2, 3, 4] and recs[2]["offset"] == block(1, 55), recs
    one = good("dump", devices[0], "page", recs[1]["key"].upper(), "-o", "json").json()["records"]
    assert one == [recs[1]], one
    assert good("dump", devices[0], "page", recs[0]["key"], recs[3]["key"]).out.count("- type page") == 2
    bad(FAILED, "no record of this key", "dump", devices[1], "page", recs[0]["key"])
    for key in ("", "a", "xy", "a0 1", "00" * 41):
        bad(USAGE, "", "dump", devices[0], "page", key)


def test_usage():
    devices = write(sound())
    bad(USAGE, ["frob", "not super, segment or page"], "dump", devices[0], "frob")
    bad(USAGE, "one argument too many", "dump", devices[0], "super", "1")
    bad(USAGE, "needs one number", "dump", devices[0], "segment")
    bad(USAGE, "needs one number", "dump", devices[0], "segment", "1", "2")
    bad(USAGE, "needs a key", "dump", devices[0], "page")
    for n in ("4", "-", "x", "99999999999"):
        r = run("dump", devices[0], "segment", n)
        assert r.status == USAGE and "0 to 3" in r.err and not r.out, r
    bad(NODEV, "in use", "dump", devices[0], open_errno=16)


def test_records_of_other_versions():
    devices = write([size(), change_super(1, 0, 8, 2)])
    r = run("dump", devices[1])
    assert r.status == FAILED and "reason: format version not supported" in r.out and "version: 2\n" in r.out, r
