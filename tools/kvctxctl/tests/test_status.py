# SPDX-License-Identifier: GPL-2.0
"""status and doctor: what they find, and what they say is to be done."""
import os
import re

import tool
from foreign import ext4
from tool import FAILED, NODEV, attribute, bad, block, good, node, run

MIB = 1 << 20
SIZE = 9 * MIB


def pool(name, *devices):
    return good("pool", "format", name, *devices, "--segment-size", "1M", "-o", "json").json()["pool"]["uuid"]


def status(*args, **fakes):
    return good("status", "-o", "json", *args, **fakes).json()["status"]


def loaded():
    node("/sys/module/kvctx/x")
    return {"module": "live"}


def test_nothing_is_here():
    block("a", SIZE)
    s = status(module="none")
    assert (s["module_installed"], s["module_loaded"], s["daemon"], s["pools"], s["found"]) == (False, False, False, [], []), s
    assert len(s["advice"]) == 1 and "kvctx-dkms" in s["advice"][0] and "kvctxd" in s["advice"][0], s
    s = status()
    assert s["module_installed"] and len(s["advice"]) == 1 and "pool format" in s["advice"][0], s
    text = good("status").out
    assert text.startswith("module  not loaded\nkvctxd  does not run\n\n- there is no pool yet"), text


def test_pools_of_the_module():
    block("a", SIZE)
    s = status(**loaded())
    one, two = s["pools"]
    assert (one["pool"], one["served_by"], one["state"], one["members"], one["members_online"]) == (
        "ctx0", "module", "degraded", 2, 1), one
    assert (two["pool"], two["members"], two["members_online"]) == ("ctx1", 1, 1), two
    assert one["tenants"] == 2 and "sessions" in one and "capacity" in one and "bytes" in one, one
    assert any("member 1 (/dev/nvme2n1) is failed" in a and "kvctxctl pool remove ctx0 1" in a for a in s["advice"]), s
    text = good("status", **loaded()).out
    assert re.search(r"^ctx0 +module +degraded +1 of 2 ", text, re.M) and text.startswith("module  loaded\n"), text


def test_what_is_not_attached():
    (a, _), (b, fb), (c, _) = block("a", SIZE), block("b", SIZE), block("c", SIZE)
    uuid = pool("one", a, b)
    pool("two", c)
    tool.put(fb, 0, bytes(SIZE))
    s = status()
    assert [(f["name"], f["state"], f["missing"]) for f in s["found"]] == [("one", "degraded", 1), ("two", "complete", 0)], s
    assert s["found"][0]["uuid"] == uuid, s
    assert [a for a in s["advice"] if "kvctxctl pool attach two" in a] and [a for a in s["advice"] if "one: not attached, and degraded" in a], s
    assert re.search(rf"^one +degraded +1 +{uuid}$", good("status").out, re.M)
    s = status(denied="c")
    assert any("1 block devices may not be opened" in a for a in s["advice"]) and len(s["found"]) == 1, s


def test_a_pool_that_a_process_serves():
    (a, _), (b, fb) = block("a", SIZE), block("b", SIZE)
    pool("one", a, b)
    s = status(busy="a b")
    assert [(f["name"], f["state"], f["missing"]) for f in s["found"]] == [("one", "in_use", 0)] and not s["advice"], s
    code, found = doctor(busy="a b")
    assert code == 0 and of(found, "one")[0][0] == "fine", found
    tool.put(fb, 0, bytes(SIZE))
    s = status(busy="a")
    assert s["found"][0]["state"] == "unusable" and s["advice"], s


def test_a_daemon_that_was_named():
    block("a", SIZE)
    bad(NODEV, "there is no kvctxd", "status", "--socket", "/nowhere/control")


def doctor(*args, **fakes):
    r = run("doctor", "-o", "json", *args, **fakes)
    assert not r.err, r
    return r.status, [(f["subject"], f["result"], f["text"]) for f in r.json()["doctor"]]


def of(found, subject):
    return [(result, text) for s, result, text in found if s == subject]


def test_doctor_of_a_host():
    block("a", SIZE)
    code, found = doctor(module="none")
    assert code == 0 and of(found, "module")[0][0] == "note" and of(found, "devices")[0][0] == "note", found
    assert {"kernel", "module", "peer-to-peer", "io_uring", "locked memory", "devices"} <= {f[0] for f in found}, found
    attribute("/proc/sys/kernel/io_uring_disabled", "2")
    _, found = doctor(**loaded())
    assert of(found, "module") == [("fine", "loaded")] and of(found, "io_uring")[0][0] == "warning", found
    assert "io_uring_disabled = 2" in of(found, "io_uring")[0][1], found
    assert re.search(r"^SUBJECT +RESULT +WHAT$", good("doctor").out, re.M)


def test_doctor_of_devices():
    (a, _), (b, fb), (c, _) = block("nvme0n1", SIZE), block("b", SIZE), block("c", SIZE)
    pool("one", a, b)
    pool("two", c)
    attribute("/sys/class/block/nvme0n1/queue/write_cache", "write back")
    attribute("/sys/class/block/nvme0n1/queue/rotational", "0")
    attribute("/sys/class/block/nvme0n1/device/nvme3/transport", "tcp")
    attribute("/sys/class/block/nvme0n1/device/nvme3/fast_io_fail_tmo", "off")
    attribute("/sys/class/block/c/device/transport", "rdma")             # without multipath
    attribute("/sys/class/block/c/device/fast_io_fail_tmo", "5")
    attribute("/sys/class/block/b/queue/rotational", "1")
    attribute("/sys/class/block/b/queue/stable_writes", "1")
    attribute("/sys/class/block/b/start", "2047")
    code, found = doctor()
    assert code == 0 and of(found, c) == [("fine", "member 0 of pool two")], found
    assert [r for r, _ in of(found, a)] == ["note", "warning"] and "fast_io_fail_tmo" in of(found, a)[1][1], found
    assert [r for r, _ in of(found, b)] == ["warning", "note", "warning"] and "4 KiB" in of(found, b)[2][1], found
    attribute("/sys/class/block/c/device/fast_io_fail_tmo", "off")
    assert "comes over rdma without" in of(doctor()[1], c)[0][1]
    ext4(fb)
    code, found = doctor()
    assert code == FAILED and of(found, b)[0] == ("problem", "holds ext4 now, over a member of pool one"), found
    assert of(found, "one")[0][0] == "problem" and "degraded" in of(found, "one")[0][1], found


def test_doctor_asks_the_module():
    """Also where other commands ask a kvctxd"""
    os.environ["KVCTX_SOCKET"] = "/nowhere/control"
    block("a", SIZE)
    try:
        doctor(**loaded())
    finally:
        del os.environ["KVCTX_SOCKET"]


def test_doctor_of_attached_pools():
    (a, _) = block("a", SIZE)
    uuid = pool("ctx0", a)
    code, found = doctor(uuid=uuid.replace("-", ""), **loaded())
    assert code == FAILED and of(found, "ctx0")[0][0] == "problem" and "/dev/kvctx" in of(found, "ctx0")[0][1], found
    node("/dev/kvctx/ctx0/default")
    code, found = doctor(uuid=uuid.replace("-", ""), **loaded())
    assert code == 0 and not of(found, "ctx0"), found
