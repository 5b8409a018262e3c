# SPDX-License-Identifier: GPL-2.0
"""pool attach and pool add keep their hands off what is not ours."""
import os
import struct

from foreign import dos, ext4, gpt, lvm, swap, xfs
from pools import change_super, flip, size, write
from tool import FAILED, NODEV, bad, good, image, put, run

MIB = 1 << 20
SIZE = 9 * MIB


def pool(name, *paths):
    good("pool", "format", name, *paths, "--segment-size", "1M")
    return paths


def test_another_signature_over_a_member():
    for name, make, kind in (("e", ext4, "ext4"), ("x", xfs, "xfs"), ("s", swap, "swap"), ("d", dos, "dos"),
                             ("l", lvm, "LVM2_member"), ("g", lambda p: gpt(p, SIZE), "gpt")):
        a, b = image(name, SIZE), image(name + "2", SIZE)
        pool("p", b, a)
        make(a)
        r = bad(FAILED, [f"{a}: holds {kind} now, over a member of pool p", "wipefs"], "pool", "attach", b, a)
        assert r.log == [], r
        bad(FAILED, [f"{a}: ", kind], "pool", "attach", a, "--degraded", "-o", "json")


def test_two_signatures_over_a_member():
    a, = pool("p", image("a", SIZE))
    ext4(a)
    lvm(a)
    bad(FAILED, [f"{a}: ", "ext4", "LVM2_member"], "pool", "attach", a)


def test_a_sound_pool_is_attached():
    a, = pool("p", image("a", SIZE))
    assert good("pool", "attach", a).log == ["attach version 1", f"  device={a}"]


def test_the_front_is_gone():
    """All that the other one wrote is at the front, and the superblock at the end is whole"""
    a, = pool("p", image("a", SIZE))
    put(a, 0, bytes(MIB))
    assert good("pool", "attach", a).log
    ext4(a)
    bad(FAILED, [f"{a}: ", "ext4", "pool p"], "pool", "attach", a)


def vmfs(path):
    put(path, 2 * MIB, b"\x5e\xf1\xab\x2f")


def luks(path):
    """The second header"""
    put(path, 4 * MIB, b"SKUL\xba\xbe" + struct.pack(">HQQ", 2, 16384, 1) + bytes(230) + struct.pack(">Q", 4 * MIB))


def test_what_pages_hold_is_no_signature():
    """Who may store must not be able to keep the pool from being attached"""
    for name, make, kind in (("v", vmfs, "VMFS"), ("l", luks, "crypto_LUKS")):
        a = image(name, SIZE)
        make(a)
        bad(FAILED, kind, "pool", "format", "p", a, "--segment-size", "1M")
        os.remove(a)
        pool("p", image(name, SIZE))
        make(a)
        assert good("pool", "attach", a).log, kind
        # beside them, and in the place of the first header, which is never theirs
        put(a, MIB, b"\x0d\xd0\x01\xc0")
        bad(FAILED, "VMFS_volume_member", "pool", "attach", a)


def test_superblocks_are_no_signature():
    """Random numbers of members stand where others have theirs"""
    paths = [image(f"d{i}", 3 * MIB) for i in range(64)]
    good("pool", "format", "p", *paths, "--segment-size", "256K")
    assert len(good("pool", "attach", *paths).log) == 65
    # a slot whose checksum is right is ours, whatever it looks like; one that is damaged is whose it looks like
    for kind, offset, value in (("dos", 508, 0xaa550000), ("vxfs", 1024, 0xa501fcf5)):
        devices = write([size(), *(change_super(m, slot, offset, value) for m in (0, 1) for slot in range(4))], kind)
        assert good("pool", "attach", *devices).log
        flip(devices[1], 300)
        bad(FAILED, [f"{devices[1]}: ", kind], "pool", "attach", *devices)


def test_a_device_that_cannot_be_looked_at():
    a, = pool("p", image("a", SIZE))
    r = bad(NODEV, [f"{a}: cannot look for other signatures", "Permission denied"], "pool", "attach", a, open_errno=13)
    assert r.log == [], r
    bad(FAILED, "Input/output error", "pool", "attach", a, open_errno=5)
    # in use, gone, of another kind: the module says it better
    for errno in (16, 6, 19):
        assert good("pool", "attach", a, open_errno=errno).log, errno
    assert good("pool", "attach", "/dev/null", "/nowhere/x", "./").log


def test_add_refuses_signatures():
    a = image("a", 1100 * MIB)
    ext4(a)
    r = run("pool", "add", "ctx0", a)
    assert r.status == FAILED and "holds something (ext4)" in r.err and r.log[-1] == "  dry-run", r
    with open(a, "rb") as f:
        assert f.read(2048)[1080:1082] == b"\x53\xef"
