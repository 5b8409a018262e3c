# SPDX-License-Identifier: GPL-2.0
"""The kernel module and connections: load, unload, version, connect, disconnect."""
import os
import time

import tool
from tool import FAILED, NODEV, NOSUPP, USAGE, bad, good, run

TCP = ["connect", "-t", "tcp", "-a", "192.0.2.7", "-n", "nqn.test:c"]


def test_load():
    r = good("load")
    assert r.log == ["insert kvctx"] and r.out == "kvctx loaded\n", r
    assert good("load", "-o", "json").json() == {"format": 1, "module": "kvctx", "loaded": True}


def test_load_twice():
    for state in ("live", "builtin"):
        r = good("load", module=state)
        assert r.log == [] and "already" in r.out, r
        assert good("load", "-o", "json", module=state).json()["loaded"] is False


def test_load_refused():
    bad(NODEV, "no module kvctx is installed", "load", module="none")
    bad(NODEV, "CAP_SYS_MODULE", "load", module_errno=1)
    bad(FAILED, "built for another kernel", "load", module_errno=8)
    bad(FAILED, "not signed", "load", module_errno=126)
    bad(FAILED, "not signed", "load", module_errno=129)
    bad(FAILED, "Cannot allocate memory", "load", module_errno=12)


def test_unload():
    r = good("unload", module="live")
    assert r.log == ["remove kvctx at once"] and r.out == "kvctx unloaded\n", r
    assert good("unload", "-o", "json", module="live").json() == {"format": 1, "module": "kvctx", "unloaded": True}


def test_unload_what_is_not_loaded():
    r = good("unload")
    assert r.log == [] and "not loaded" in r.out, r
    assert good("unload", "-o", "json").json()["unloaded"] is False


def test_unload_refused():
    r = bad(FAILED, ["in use by 3", "close the sessions"], "unload", module="live", refcnt=3)
    assert r.log == [], r
    bad(FAILED, "in use", "unload", module="live", module_errno=11)
    bad(FAILED, "in use", "unload", module="live", module_errno=16)
    bad(NODEV, "CAP_SYS_MODULE", "unload", module="live", module_errno=1)
    bad(NOSUPP, "built into the kernel", "unload", module="builtin")


def test_version():
    assert good("version").out.splitlines()[1:] == ["control ABI 1", "module not loaded"]
    assert good("version", module="live").out.splitlines()[2] == "module loaded"
    assert good("--version").out == good("version").out == good("-V").out
    r = good("-o", "json", "--version", module="live").json()
    assert r.pop("version")[0].isdigit() and r == {"format": 1, "control_abi": 1, "module_loaded": True}


def test_connect():
    tool.node("/dev/nvme-fabrics")
    r = good(*TCP)
    assert r.out == "/dev/nvme1n1\n", r
    assert r.log == ["scan", "ctrl nqn.test:c tcp 192.0.2.7 4420 from -", "connect queues=0 loss=600 fail=0"], r


def test_connect_json():
    tool.node("/dev/nvme-fabrics")
    assert good(*TCP, "-o", "json").json() == {"format": 1, "nqn": "nqn.test:c", "controller": "nvme1",
                                               "devices": ["/dev/nvme1n1"]}


def test_connect_without_multipath():
    tool.node("/dev/nvme-fabrics")
    assert good(*TCP, namespaces="nvme1n1").out == "/dev/nvme1n1\n"


def test_connect_several_namespaces():
    tool.node("/dev/nvme-fabrics")
    r = good(*TCP, namespaces="nvme0c1n10 nvme0c1n2")
    assert r.out == "/dev/nvme0n2\n/dev/nvme0n10\n", r


def test_connect_options():
    tool.node("/dev/nvme-fabrics")
    r = good(*TCP, "-s", "4421", "-w", "192.0.2.1", "-q", "nqn.host", "-I", "an-id", "-i", "3", "-l", "30", "-F", "5")
    assert r.log == ["scan", "host nqn.host an-id", "ctrl nqn.test:c tcp 192.0.2.7 4421 from 192.0.2.1",
                     "connect queues=3 loss=30 fail=5"], r


def test_connect_loop_needs_no_address():
    tool.node("/dev/nvme-fabrics")
    r = good("connect", "-t", "loop", "-n", "nqn.test:c")
    assert r.log[1] == "ctrl nqn.test:c loop - - from -", r
    for transport in ("tcp", "rdma", "fc"):
        bad(USAGE, ["--traddr", "missing"], "connect", "-t", transport, "-n", "nqn.test:c")


def test_connect_hostid_alone():
    bad(USAGE, "needs --hostnqn", *TCP, "--hostid", "x")


def test_connect_loads_the_module():
    r = good(*TCP)
    assert r.log[0] == "insert nvme-fabrics" and r.out == "/dev/nvme1n1\n", r


def test_connect_impossible():
    r = bad(NODEV, ["/dev/nvme-fabrics", "nvme-fabrics is not loaded"], *TCP, fabrics="no")
    assert r.log == ["insert nvme-fabrics"], r


def test_connect_no_permission():
    tool.node("/dev/nvme-fabrics")
    assert bad(NODEV, ["/dev/nvme-fabrics", "Permission denied"], *TCP, access_errno=13).log == []


def test_connect_refused():
    tool.node("/dev/nvme-fabrics")
    bad(FAILED, ["nqn.test:c", "already connected"], *TCP, nvme_errno=1012)
    bad(FAILED, "Connection refused", *TCP, nvme_errno=111)
    bad(FAILED, ["cannot be reached", "kernel log"], *TCP, nvme_errno=1006)
    bad(NODEV, "fabrics error", *TCP, nvme_errno=1005)
    bad(NOSUPP, "fabrics error", *TCP, nvme_errno=1016)
    bad(NOSUPP, "fabrics error", *TCP, nvme_errno=1009)


def test_connect_no_device_appears():
    tool.node("/dev/nvme-fabrics")
    start = time.monotonic()
    # one would appear after some seconds
    r = bad(FAILED, ["no block device appeared within 0.5 s", "disconnected"], *TCP, "--timeout", "0.5", appear=100)
    assert time.monotonic() - start > 0.4, r
    assert r.log[-1] == "disconnect nvme1", r
    r = bad(FAILED, ["no block device appeared", "nvme1 cannot be disconnected: Input/output error"], *TCP,
            "--timeout", "0.1", appear=0, disconnect_errno=5)
    assert "disconnected again" not in r.err, r


def test_connect_waits_for_the_device():
    tool.node("/dev/nvme-fabrics")
    start = time.monotonic()
    assert good(*TCP, appear=20).out == "/dev/nvme1n1\n"
    assert time.monotonic() - start > 0.9


def test_connect_needs_the_node_too():
    """A namespace in sysfs without its node in /dev does not count"""
    tool.node("/dev/nvme-fabrics")
    tool.node("/sys/class/nvme/nvme1/nvme7c1n1/size")
    bad(FAILED, "no block device", *TCP, "--timeout", "0.3", appear=0)


def test_disconnect():
    r = good("disconnect", "-n", "nqn.test:a")
    assert r.log == ["scan", "disconnect nvme4", "disconnect nvme5"], r
    assert r.out == "disconnected: nvme4\ndisconnected: nvme5\n", r
    assert good("disconnect", "-n", "nqn.test:b", "-o", "json").json() == {
        "format": 1, "nqn": "nqn.test:b", "disconnected": ["nvme6"]}


def test_disconnect_one_of_two():
    assert good("disconnect", "-n", "nqn.test:a", "-a", "192.0.2.2").log[1:] == ["disconnect nvme5"]
    assert good("disconnect", "-n", "nqn.test:b", "-t", "loop").log[1:] == ["disconnect nvme6"]
    bad(NODEV, "not connected", "disconnect", "-n", "nqn.test:a", "-t", "rdma")
    bad(NODEV, "not connected", "disconnect", "-n", "nqn.test:a", "-s", "1")
    bad(NODEV, "not connected", "disconnect", "-n", "nqn.test:b", "-a", "192.0.2.1")


def test_disconnect_what_is_not_connected():
    bad(NODEV, ["nqn.test:z", "not connected"], "disconnect", "-n", "nqn.test:z")


def test_disconnect_refused():
    r = bad(NODEV, "Permission denied", "disconnect", "-n", "nqn.test:a", nvme_errno=13)
    assert r.log == ["scan", "disconnect nvme4", "disconnect nvme5"], r


def test_nothing_is_written_to_the_real_system():
    """The fakes are in place: a connection leaves its nodes in the test's folder only"""
    tool.node("/dev/nvme-fabrics")
    run(*TCP, namespaces="nvme99n1")
    assert os.path.exists(tool.DIR + "/root/dev/nvme99n1") and not os.path.exists("/dev/nvme99n1")
