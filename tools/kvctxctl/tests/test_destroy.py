# SPDX-License-Identifier: GPL-2.0
"""pool destroy: what it erases, what it leaves alone, what it refuses."""
import os
import pty
import shutil
import subprocess

import tool
from foreign import ext4
from pools import change_super, size, write
from tool import FAILED, NODEV, NOSUPP, USAGE, attribute, bad, block, good, image, node, put, run, superblocks

MIB = 1 << 20
SIZE = 9 * MIB
BLANK = [1] * 4
WHOLE = [0] * 4


def pool(name, *devices):
    return good("pool", "format", name, *devices, "--segment-size", "1M", "-o", "json").json()["pool"]["uuid"]


def slots(path):
    return [s["reason"] for s in superblocks(path)]


def content(path):
    with open(path, "rb") as f:
        return f.read()


def test_by_device():
    a, b = image("a", SIZE), image("b", SIZE)
    uuid = pool("one", a, b)
    put(a, 2 * MIB, b"page")
    r = good("pool", "destroy", a, b, "--force")
    assert r.out == f"{a}: 4 superblocks erased\n{b}: 4 superblocks erased\nPool one destroyed.\n", r
    assert slots(a) == slots(b) == BLANK
    text = content(a)
    assert text[2 * MIB:2 * MIB + 4] == b"page" and not any(text[:MIB]) and not any(text[-131072:])
    bad(NODEV, "no kvctx superblock", "pool", "destroy", a, "-f")
    good("pool", "format", "again", a, "--segment-size", "1M")
    assert uuid not in good("pool", "scan", a, "-o", "json").out


def test_json():
    a, b = image("a", SIZE), image("b", SIZE)
    uuid = pool("one", a, b)
    r = good("pool", "destroy", a, "--force", "-o", "json").json()
    assert r == {"format": 1, "destroyed": {"pool": "one", "uuid": uuid, "left": 1,
                                            "devices": [{"device": a, "superblocks": 4}]}}, r
    assert slots(b) == WHOLE
    r = good("pool", "destroy", b, "--force")
    assert r.out.endswith("Pool one: 1 of 2 members not among them.\n"), r


def test_by_name():
    paths = [block(n, SIZE) for n in ("a", "b", "c")]
    (a, fa), (b, fb), (c, fc) = paths
    pool("one", a, b)
    pool("two", c)
    r = good("pool", "destroy", "one", "--force")
    assert r.out.endswith("Pool one destroyed.\n") and slots(fa) == slots(fb) == BLANK and slots(fc) == WHOLE, r
    bad(NODEV, "no such pool", "pool", "destroy", "one", "--force")
    bad(NODEV, "no such pool", "pool", "attach", "one")
    assert [p["name"] for p in good("pool", "scan", "-o", "json").json()["pools"]] == ["two"]
    first, second = pool("three", a), pool("three", b)
    bad(FAILED, [first, second], "pool", "destroy", "three", "--force")
    good("pool", "destroy", second, "--force")
    assert slots(fa) == WHOLE and slots(fb) == BLANK
    bad(USAGE, "with a slash", "pool", "destroy", "three", "two", "--force")


def test_all_that_is_left_of_a_pool():
    """Members that others have made something of, and such as the pool does not know any more"""
    (a, fa), (b, fb), (c, fc) = [block(n, SIZE) for n in ("a", "b", "c")]
    pool("one", a, b, c)
    ext4(fb)
    put(fb, MIB - 4096, b"theirs")
    r = good("pool", "destroy", "one", "--force")
    assert f"{b}: 4 superblocks erased\n" in r.out and slots(fa) == slots(fb) == slots(fc) == BLANK, r
    assert good("pool", "scan").out == "No pool found.\n"


def test_what_was_made_over_it_stays():
    a = image("a", SIZE)
    pool("one", a)
    ext4(a)
    put(a, SIZE - 100, b"theirs")
    before = content(a)
    good("pool", "destroy", a, "--force")
    after = content(a)
    assert slots(a) == BLANK
    # slots 0 and 3 are not whole: of them no more than the magic goes
    assert after[8:65536] == before[8:65536] and after[-65528:] == before[-65528:] and after[1080:1082] == b"\x53\xef"
    assert not any(after[65536:131072]) and not any(after[-131072:-65536])
    # and where nothing of ours is, nothing is written
    assert after[131072:-131072] == before[131072:-131072]


def test_damaged():
    a, b = image("a", SIZE), image("b", SIZE)
    pool("one", a)
    pool("two", b)
    for at in (0, 65536, SIZE - 131072, SIZE - 65536):
        put(a, at + 500, b"damage")
    r = good("pool", "destroy", a, "--force")
    assert r.out.endswith("Pool (damaged) destroyed.\n") and slots(a) == BLANK, r
    # two pools on one device: the end was another one's
    shutil.copy(b, a)
    pool("three", "--force", b)
    put(a, 0, content(b)[:131072])
    r = good("pool", "destroy", a, "--force")
    assert r.out.endswith("Pool three destroyed.\n") and slots(a) == BLANK, r


def test_held_for_a_moment():
    """As by an attach that looks at it"""
    (a, fa), = (block("a", SIZE),)
    pool("one", a)
    good("pool", "destroy", a, "--force", busy="a", busy_opens=3)
    assert slots(fa) != WHOLE


def test_refused():
    (a, fa), (b, fb) = block("a", SIZE), block("b", SIZE)
    uuid = pool("one", a, b)
    other = image("other", SIZE)
    pool("other", other)
    for args in ((a, b), ("one",)):
        r = run("pool", "destroy", *args, "--force", busy="b")
        assert r.status == FAILED and f"{b}: in use" in r.err and slots(fa) == WHOLE, r
    bad(FAILED, ["of another pool, other"], "pool", "destroy", a, other, "--force")
    bad(NODEV, "no kvctx superblock", "pool", "destroy", a, image("blank", SIZE), "--force")
    bad(NODEV, "no kvctx superblock", "pool", "destroy", a, image("tiny", 4096), "--force")
    bad(NODEV, "No such file", "pool", "destroy", a, "./nope", "--force")
    bad(FAILED, "neither a block device nor a file", "pool", "destroy", a, "./", "--force")
    bad(NODEV, "Permission denied", "pool", "destroy", a, b, "--force", denied="b")
    newer = write([size(), change_super(0, 2, 8, 2)])[0]
    bad(NOSUPP, "version", "pool", "destroy", newer, "--force")
    assert slots(fa) == slots(fb) == slots(other) == WHOLE and slots(newer)[0] == 0
    # attached, by another path than this one
    node("/sys/module/kvctx/refcnt")
    for args in ((a, b), ("one",), (uuid,)):
        bad(FAILED, "attached", "pool", "destroy", *args, "--force", uuid=uuid.replace("-", ""))
    bad(FAILED, "no answer", "pool", "destroy", a, "--force", errno=5, why="no answer")
    assert slots(fa) == slots(fb) == WHOLE


def test_the_same_device_twice():
    (a, fa) = block("a", SIZE)
    pool("one", a)
    assert good("pool", "destroy", a, a, "--force").out.count("erased") == 1


def test_another_path():
    (a, fa), (b, fb) = block("a", SIZE), block("b", SIZE)
    pool("one", a)
    shutil.copy(fa, fb)
    bad(FAILED, f"member 0 is there twice, {a} and {b}", "pool", "destroy", "one", "--force")
    assert slots(fa) == slots(fb) == WHOLE
    for name in "ab":
        attribute(f"/sys/class/block/{name}/device/wwid", "naa.5000")
    assert good("pool", "destroy", "one", "--force").out.startswith(f"{a}: 4 ")


def test_a_member_with_disks_below():
    (a, fa), (above, fabove) = block("sda", SIZE), block("dm-0", SIZE)
    pool("one", a)
    shutil.copy(fa, fabove)
    r = good("pool", "destroy", "one", "--force", busy="sda")
    assert r.out == f"{above}: 4 superblocks erased\nPool one destroyed.\n", r


def test_every_write_and_flush_may_fail():
    for fault in ("pwrite_fail", "fsync_fail"):
        for n in range(1, 100):
            a, b = image("a", SIZE), image("b", SIZE)
            pool("one", a, b)
            r = run("pool", "destroy", a, b, "--force", **{fault: n})
            if r.status == 0:
                break
            assert r.status == FAILED and not r.out and r.err.count("may still hold a superblock") == 1, r
            # the other device is done, and this one's other slots
            bad_one = a if a in r.err else b
            assert slots(b if bad_one == a else a) == BLANK and slots(bad_one).count(0) <= 1, r
        assert n == (3 if fault == "fsync_fail" else n) and n > 2, (fault, n)


def ask(answer, *args):
    """On a terminal: what it asks, and how it ends"""
    master, slave = pty.openpty()
    env = dict(os.environ, FAKE_ROOT=os.path.join(tool.DIR, "root"), LC_ALL="C")
    done = subprocess.Popen([os.path.join(tool.OUT, "test/kvctxctl-fake"), "pool", "destroy", *args], env=env, stdin=slave,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(slave)
    os.write(master, answer)
    out, err = done.communicate(timeout=60)
    os.close(master)
    return done.returncode, out, err


def test_asks():
    a = image("a", SIZE)
    uuid = pool("one", a)
    for answer in (b"n\n", b"\n", b"yesterday\n", b"\x04"):
        status, out, err = ask(answer, a)
        assert status == FAILED and not out and slots(a) == WHOLE, (answer, status, out, err)
        assert err.startswith(f"Destroy pool one {uuid} on {a}? All its pages are lost. [y/N] "), err
        assert "nothing was erased" in err
    r = run("pool", "destroy", a)
    assert r.status == USAGE and "--force" in r.err and slots(a) == WHOLE, r
    status, out, err = ask(b"y\n", a)
    assert status == 0 and "Pool one destroyed." in out and slots(a) == BLANK
