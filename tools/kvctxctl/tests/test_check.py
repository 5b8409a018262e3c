# SPDX-License-Identifier: GPL-2.0
"""check: what is sound, what is damaged, and how it says so."""
import os
import shutil
import subprocess

import tool
from pools import block, change_super, end, flip, log, page, size, sound, write
from tool import FAILED, NODEV, NOSUPP, USAGE, bad, good, image, put, run


def damaged(words, *args, **kw):
    """Exit status 1 and one finding that says this, in text and in JSON"""
    r = run("check", *args, **kw)
    found = [line for line in r.out.splitlines() if line.startswith("damage: ")]
    assert r.status == FAILED and not r.err and len(found) == 1 and found[0].endswith(words), r
    assert r.out.endswith("Damaged: 1 finding.\n"), r
    j = run("check", *args, "-o", "json", **kw)
    check = j.json()["check"]
    assert j.status == FAILED and not check["sound"] and check["nr_damage"] == len(check["damage"]) == 1, j
    return check


def test_sound():
    devices = write(sound())
    before = [open(d, "rb").read() for d in devices]
    r = good("check", *devices)
    assert r.out.endswith("\nSound.\n") and "superblock slot 3: valid, sequence 1" in r.out, r
    c = good("check", *reversed(devices), "-o", "json").json()["check"]
    assert c["sound"] and c["damage"] == [] and "data" not in c, c
    assert (c["pages"], c["bytes"], c["refused"]) == (4, 36000, 1), c
    tenants = [{key: t[key] for key in ("tenant", "pages", "bytes")} for t in c["tenants"]]
    assert tenants == [{"tenant": "default", "pages": 3, "bytes": 27000}, {"tenant": "one", "pages": 1, "bytes": 9000},
                            {"tenant": "two", "pages": 0, "bytes": 0}], c
    a, b = c["members"]
    assert [a[k] for k in ("blank", "empty", "logs", "damaged", "page_records", "tombstones")] == [2, 1, 1, 0, 4, 0], a
    assert [b[k] for k in ("blank", "empty", "logs", "damaged", "page_records", "tombstones")] == [3, 0, 1, 0, 2, 1], b
    assert [a["device"], b["device"]] == devices
    assert [(s["valid"], s["current"], s["seq"]) for s in a["slots"]] == [(True, True, n) for n in (2, 1, 2, 1)], a
    assert [open(d, "rb").read() for d in devices] == before


def test_sound_data():
    devices = write(sound())
    r = good("check", "--data", *devices)
    assert "Read 4 pages, 0 of them without checksums: 0 bad." in r.out, r
    c = good("check", "--data", "-o", "json", *devices).json()["check"]
    assert c["data"] == {"pages": 4, "bytes": 36000, "without_checksums": 0, "bad": 0}, c


def test_an_empty_pool():
    a = image("a", 9 << 20)
    good("pool", "format", "p", a, "--segment-size", "1M")
    c = good("check", a, "-o", "json", "--data").json()["check"]
    assert (c["pool"], c["sound"], c["pages"], c["members"][0]["blank"]) == ("p", True, 0, 7), c


def test_superblock_slots():
    for slot, at in enumerate((0, 65536, -131072, -65536)):
        devices = write(sound(), f"p{slot}")
        flip(devices[1], at % os.path.getsize(devices[1]) + 300)
        c = damaged(f"1: superblock slot {slot}: checksum mismatch", *devices)
        assert [s["valid"] for s in c["members"][1]["slots"]] == [n != slot for n in range(4)], c
        assert c["members"][1]["slots"][slot]["reason"] == "checksum mismatch", c
        assert c["pages"] == 4


def test_no_superblock_left():
    devices = write(sound())
    for at in (0, 65536, -131072, -65536):
        flip(devices[1], at % os.path.getsize(devices[1]) + 300)
    bad(FAILED, ["1: superblock damaged: checksum mismatch"], "check", *devices)
    bad(NODEV, "a: no kvctx superblock", "check", image("a", 9 << 20))
    bad(NODEV, "b: no kvctx superblock, too small for one", "check", image("b", 1 << 20))


def test_another_format():
    devices = write([size(), change_super(0, 2, 8, 2)])
    bad(NOSUPP, "0: superblock: format version not supported", "check", *devices)
    devices = write([size(), change_super(0, 0, 40, 2)], "q")
    bad(NOSUPP, "0: superblock: unknown incompatible feature", "check", *devices)


def test_torn_extent():
    devices = write(sound())
    put(devices[0], block(1, 2) + 128, bytes(512))
    c = damaged("0: log: segment 1: block 2: checksum mismatch", *devices)
    assert c["pages"] == 2 and c["members"][0]["damaged"] == 1, c
    assert c["damage"] == [{"device": devices[0], "what": "log", "segment": 1, "block": 2, "reason": "checksum mismatch"}], c


def test_lost_extent():
    """Not even its magic is left; but the one behind it is of the same log"""
    devices = write(sound())
    put(devices[0], block(1, 1), bytes(4096))
    damaged("log: another extent follows at block 2: segment 1: block 1: not a kvctx structure", *devices)


def test_damaged_header():
    devices = write(sound())
    flip(devices[0], block(1, 0) + 200)
    c = damaged("0: header: segment 1: block 0: checksum mismatch", *devices)
    assert c["members"][0]["blank"] == 3, c


def test_bad_record():
    """Its checksum is right, but the page lies outside of the segment"""
    devices = write([size(), log(0, 1, 5), page(1, 2, 9000, 1), page(2, 1, 9000, 2), end()])
    damaged("log: segment 1: block 1: record with a field out of range", *devices)


def test_record_that_the_engine_refuses():
    """A sequence that nobody can have counted to"""
    devices = write([size(), log(0, 1, 5), page(1, 2, 9000, (1 << 62) - 1), end()])
    damaged("log: segment 1: block 2: record with a field out of range", *devices)


def test_what_an_older_log_left_is_no_damage():
    older = [size(), log(0, 1, 5), page(1, 2, 9000, 1), end(), page(2, 5, 9000, 2), end()]
    devices = write(older + [log(0, 1, 9), page(3, 2, 9000, 3), end()])
    assert good("check", *devices, "-o", "json").json()["check"]["pages"] == 1
    # also when its checksum is not right any more
    flip(devices[0], block(1, 2) + 2000)
    assert good("check", *devices, "-o", "json").json()["check"]["pages"] == 1


def test_flipped_page_byte():
    devices = write(sound())
    # key 3, 8 blocks from the end, its second chunk
    flip(devices[0], block(1, 63 - 8) + 5000)
    good("check", *devices)
    c = damaged(": segment 1: block 55: chunk 1: checksum mismatch", "--data", *devices)
    assert c["data"] == {"pages": 4, "bytes": 36000, "without_checksums": 0, "bad": 1}, c
    assert c["damage"][0]["key"].startswith("a0a1a2a2a4") and c["damage"][0]["what"] == "page", c


def test_bytes_of_a_dead_page_do_not_matter():
    devices = write(sound())
    flip(devices[0], block(1, 63 - 5) + 5000)
    good("check", "--data", *devices)


def test_of_two_records_of_a_key_one_is_the_page():
    devices = write([size(1), log(0, 1, 5), page(1, 2, 9000, 1), page(1, 5, 8000, 2), page(1, 8, 7000, 2), end()])
    flip(devices[0], block(1, 63 - 2))
    c = good("check", "--data", *devices, "-o", "json").json()["check"]
    assert (c["pages"], c["tenants"][0]["pages"], c["data"]["bytes"]) == (1, 1, 8000), c


def test_page_without_checksums():
    devices = write([size(), log(0, 1, 5), page(1, 2, 9000, 1 | 1 << 63), end()])
    flip(devices[0], block(1, 63 - 2))
    r = good("check", "--data", *devices)
    assert "Read 1 pages, 1 of them without checksums: 0 bad." in r.out, r


def test_missing_member():
    devices = write(sound())
    c = damaged("member 1 of 2 is missing", devices[0])
    # its tombstone too
    assert c["pages"] == 4 and c["members"][1]["device"] == "missing" and "slots" not in c["members"][1], c
    c = damaged("member 0 of 2 is missing", "--data", devices[1])
    assert c["data"]["pages"] == 1, c


def test_removed_member():
    """Member 1 has a newer superblock, with a hole in the place of member 0."""
    newer = [change_super(1, slot, 16, 4 - slot % 2) for slot in range(4)]
    hole = [change_super(1, slot, 256 + at, 0) for slot in range(4) for at in range(0, 24, 4)]
    devices = write(sound() + newer + hole)
    # records that name the removed one are no damage
    c = good("check", "--data", devices[1], "-o", "json").json()["check"]
    assert (c["sound"], c["pages"], len(c["members"])) == (True, 1, 1), c
    assert c["members"][0]["device"] == devices[1], c
    r = run("check", *devices)
    assert r.status != 0 and "no member of the pool any more" in r.err, r


def test_two_histories():
    """Member 0 went on without member 1, and the other way round"""
    program = [size()]
    for member in range(2):
        for slot in range(4):
            program.append(change_super(member, slot, 256 + 24 * (1 - member) + 20, 1))
    devices = write(program)
    damaged("these members were attached without each other", *devices)
    c = damaged("member 1 of 2 is missing", devices[0])
    assert c["members"][0]["device"] == devices[0], c


def test_missing_member_that_claims_too_much():
    devices = write([size()] + [change_super(0, slot, 256 + 24 + 16, 1 << 24) for slot in range(4)])
    bad(FAILED, "16777216 segments, too many", "check", devices[0])


def test_too_small():
    devices = write(sound())
    for slot in range(4):
        with open(devices[1], "rb") as f:
            f.seek((0, 65536, -131072, -65536)[slot], 0 if slot < 2 else 2)
            data = f.read(65536)
        put(devices[1], (0, 65536, 1 << 20, (1 << 20) + 65536)[slot], data)
    os.truncate(devices[1], (1 << 20) + 131072)
    bad(FAILED, "1: too small, the pool needs 2228224 bytes", "check", *devices)


def test_foreign_device():
    devices = write(sound())
    a = image("a", 9 << 20)
    good("pool", "format", "other", a, "--segment-size", "1M")
    bad(NODEV, "a: of another pool, other", "check", devices[0], a)
    bad(NODEV, "0: of another pool, rig", "check", a, devices[0])


def test_copy_of_a_member():
    devices = write(sound())
    with open(devices[0], "rb") as f:
        copy = image("copy", 0)
        put(copy, 0, f.read())
    bad(NODEV, "copy: member 0, and so is another device", "check", devices[0], copy)
    bad(USAGE, "the same device as", "check", devices[0], devices[0])


def test_cannot_be_read():
    devices = write(sound())
    bad(NODEV, ["0: in use", "--force"], "check", *devices, open_errno=16)
    bad(NODEV, "Permission denied", "check", *devices, open_errno=13)
    bad(NODEV, "No such file", "check", "nope")
    bad(NODEV, "neither a block device nor a file", "check", tool.DIR)
    bad(USAGE, "at most 64 devices", "check", *["d"] * 65)
    assert good("check", "--force", *devices).status == 0


def test_block_device_in_use():
    """Held by another as an attached pool holds it"""
    devices = write(sound())
    done = subprocess.run(["losetup", "--find", "--show", devices[0]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False) if shutil.which("losetup") else None
    if not done or done.returncode:
        raise tool.Skip("no loop device")
    loop = done.stdout.strip()
    try:
        good("check", loop, devices[1])
        holder = os.open(loop, os.O_RDWR | os.O_EXCL)
        bad(NODEV, [f"{loop}: in use", "--force"], "check", loop, devices[1])
        bad(NODEV, [f"{loop}: in use", "--force"], "dump", loop)
        good("check", "--force", loop, devices[1])
        good("dump", "--force", loop)
        os.close(holder)
    finally:
        subprocess.run(["losetup", "--detach", loop], check=False)


def test_much_damage_is_counted():
    program = [size(3, 6)] + [op for m in range(3) for s in range(6) for op in (log(m, s, 5), page(1, 2, 9000, 1), end())]
    devices = write(program)
    for device in devices:
        for s in range(6):
            flip(device, block(s, 1) + 1000)
    r = run("check", *devices)
    assert r.status == FAILED and r.out.count("damage: ") == 18 and "Damaged: 18 findings." in r.out, r


def test_write_nothing():
    """Not even opened for writing"""
    devices = write(sound())
    for d in devices:
        os.chmod(d, 0o444)
    good("check", "--data", *devices)
