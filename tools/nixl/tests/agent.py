# SPDX-License-Identifier: LGPL-2.1-or-later
"""The plugin in the agent of NIXL's own Python package: what a consumer may do, and what it is refused.

usage: agent.py NAME PATH FOLDER

NAME is the plugin's, NIXL_PLUGIN_DIR in the environment has it. PATH is a tenant that is empty, of a pool in this
process or of kvctxd; it is opened and closed many times. FOLDER, or "-", is the pool's folder where this process may
spoil what lies on it. Prints a line for each test and ends with "nixl NAME: N passed, N failed, N skipped"; exit
status 1 when any failed.
"""
import ctypes
import glob
import os
import sys
import tempfile
import threading
import time
import traceback

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

NAME, PATH, FOLDER = sys.argv[1:4]
MIB = 1 << 20
TIMEOUT = 60.0


class Skip(Exception):
    pass


class Heard:
    """What native code wrote to standard error inside the block: .text. It is passed on behind it."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile()
        sys.stderr.flush()
        self.former = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self.former, 2)
        os.close(self.former)
        self.file.seek(0)
        self.text = self.file.read().decode(errors="replace")
        self.file.close()


class Agent:
    """One agent with the plugin, and the few things that tests do with it."""

    def __init__(self, **params):
        self.agent = nixl_agent("tester", nixl_agent_config(backends=[]))
        self.agent.create_backend(NAME, {"path": PATH, "entries": "128", **params})
        self.device = 0

    def close(self):
        del self.agent

    def memory(self, *arrays):
        return self.agent.register_memory(
            self.agent.get_reg_descs([(a.ctypes.data, a.nbytes, 0, "") for a in arrays], "DRAM"), backends=[NAME])

    def request(self, op, pieces):
        """Prepare what @pieces say: (address, bytes, key, offset). Returns (handle, registration of the objects)."""
        devices, objects = {}, []
        for _, size, key, offset in pieces:
            if key not in devices:
                self.device += 1
                devices[key] = self.device
            objects.append((offset, size, devices[key]))
        room = {key: max(o + s for _, s, k, o in pieces if k == key) for key in devices}
        reg = self.agent.register_memory(
            self.agent.get_reg_descs([(0, room[k], d, k) for k, d in devices.items()], "OBJ"), backends=[NAME])
        try:
            handle = self.agent.initialize_xfer(
                op, self.agent.get_xfer_descs([(a, s, 0) for a, s, _, _ in pieces], "DRAM"),
                self.agent.get_xfer_descs(objects, "OBJ"), "tester", backends=[NAME])
        except Exception:
            self.agent.deregister_memory(reg, backends=[NAME])
            raise
        return handle, reg

    def wait(self, handle):
        """What became of it: DONE, or the name of the package's exception for NIXL's status."""
        end = time.monotonic() + TIMEOUT
        try:
            state = self.agent.transfer(handle)
            while state == "PROC" and time.monotonic() < end:
                state = self.agent.check_xfer_state(handle)
        except Exception as error:
            if not type(error).__name__.startswith("nixl"):
                raise
            return type(error).__name__
        return state

    def do(self, op, pieces):
        handle, reg = self.request(op, pieces)
        state = self.wait(handle)
        self.agent.release_xfer_handle(handle)
        self.agent.deregister_memory(reg, backends=[NAME])
        return state

    def sizes(self, keys):
        found = self.agent.query_memory([(0, 0, 0, k) for k in keys], NAME, "OBJ")
        return [None if f is None else int(f["size"]) for f in found]


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")


def noise(*shape):
    return np.random.default_rng().integers(0, 256, shape, dtype=np.uint8)


def rows(array, keys, offset=0):
    return [(array.ctypes.data + i * array.strides[0], array.strides[0], k, offset) for i, k in enumerate(keys)]


def names(prefix, nr):
    return [f"{prefix}/{i:04d}/{os.urandom(4).hex()}" for i in range(nr)]


def refused(what, call, *words):
    """@call has to raise, and the plugin to have said why."""
    with Heard() as heard:
        try:
            call()
            failed = False
        except Exception:
            failed = True
    expect(f"{what} is refused", failed, True)
    for word in words:
        if word not in heard.text:
            raise AssertionError(f"{what}: the reason does not say {word!r}: {heard.text!r}")


def test_what_the_agent_knows_of_it(a):
    expect("the plugin is listed", NAME in a.agent.get_plugin_list(), True)
    expect("kinds of the session", sorted(a.agent.get_backend_mem_types(NAME)), ["DRAM_SEG", "OBJ_SEG"])
    expect("kinds of the plugin", sorted(a.agent.get_plugin_mem_types(NAME)), ["DRAM_SEG", "OBJ_SEG", "VRAM_SEG"])
    expect("a parameter", a.agent.get_plugin_params(NAME)["keyspace"], "nixl")


def test_round_trip(a):
    src, keys = noise(64, 65536), names("round", 64)
    dst = np.zeros_like(src)
    reg = a.memory(src, dst)
    expect("write", a.do("WRITE", rows(src, keys)), "DONE")
    expect("read", a.do("READ", rows(dst, keys)), "DONE")
    expect("bytes are equal", bool((src == dst).all()), True)
    a.agent.deregister_memory(reg, backends=[NAME])


def test_1000_objects_in_one_request(a):
    src, keys = noise(1000, 5000), names("thousand", 1000)
    dst = np.zeros_like(src)
    reg = a.memory(src, dst)
    expect("write", a.do("WRITE", rows(src, keys)), "DONE")
    absent = names("absent", 1000)
    expect("what is here", a.sizes([k for pair in zip(keys, absent) for k in pair]), [5000, None] * 1000)
    expect("read", a.do("READ", rows(dst, keys)), "DONE")
    expect("bytes are equal", bool((src == dst).all()), True)
    a.agent.deregister_memory(reg, backends=[NAME])


def test_absent_objects_are_errors(a):
    src, keys = noise(8, 4096), names("some", 8)
    reg = a.memory(src)
    expect("nothing is here", a.do("READ", rows(src, keys)), "nixlNotFoundError")
    expect("write half", a.do("WRITE", rows(src[:4], keys[:4])), "DONE")
    expect("read all", a.do("READ", rows(src, keys)), "nixlNotFoundError")
    expect("read half", a.do("READ", rows(src[:4], keys[:4])), "DONE")
    expect("sizes", a.sizes(keys), [4096] * 4 + [None] * 4)
    a.agent.deregister_memory(reg, backends=[NAME])


def test_pieces_of_one_object_become_one_page(a):
    one, other, (key,) = noise(12288), noise(10000), names("scattered", 1)
    reg = a.memory(one, other)
    # in the object's order: the middle of one, other, the beginning of one; told in another order
    pieces = [(one.ctypes.data, 1000, key, 13000), (one.ctypes.data + 5000, 3000, key, 0),
              (other.ctypes.data, 10000, key, 3000)]
    whole = np.concatenate([one[5000:8000], other, one[:1000]])
    expect("write", a.do("WRITE", pieces), "DONE")
    expect("one page", a.sizes([key]), [14000])
    back = np.zeros(14000, np.uint8)
    more = a.memory(back)
    at = back.ctypes.data
    expect("read in one piece", a.do("READ", [(at, 14000, key, 0)]), "DONE")
    expect("bytes are equal", bool((back == whole).all()), True)
    back[:] = 0
    expect("read in other pieces, with a gap, and the end twice", a.do("READ", [
        (at, 700, key, 10), (at + 700, 900, key, 710), (at + 2000, 500, key, 9000), (at + 5000, 1, key, 13999),
        (at + 6000, 1, key, 13999)]), "DONE")
    want = np.zeros_like(back)
    want[:1600], want[2000:2500], want[5000] = whole[10:1610], whole[9000:9500], whole[13999]
    want[6000] = whole[13999]
    expect("bytes are equal, and no others written", bool((back == want).all()), True)
    expect("behind its end", a.do("READ", [(at, 100, key, 13901)]), "nixlMismatchError")
    for r in (reg, more):
        a.agent.deregister_memory(r, backends=[NAME])


def test_partial_writes_are_refused(a):
    src, (key,) = noise(8192), names("partial", 1)
    dst = np.zeros_like(src)
    reg = a.memory(src, dst)
    at = src.ctypes.data
    expect("write", a.do("WRITE", [(at, 8192, key, 0)]), "DONE")
    for what, pieces, word in (
            ("not from the beginning", [(at, 4096, key, 4096)], "as a whole"),
            ("with a gap", [(at, 1000, key, 0), (at, 1000, key, 2000)], "gap or overlap"),
            ("twice the same bytes", [(at, 1000, key, 0), (at, 1000, key, 500)], "gap or overlap")):
        refused(what, lambda pieces=pieces: a.request("WRITE", pieces), word)
    expect("read", a.do("READ", [(dst.ctypes.data, 8192, key, 0)]), "DONE")
    expect("the page is as it was", bool((src == dst).all()), True)
    a.agent.deregister_memory(reg, backends=[NAME])


def test_overwriting_replaces(a):
    src, keys = noise(3, 16, 8192), names("again", 16)
    dst = np.zeros_like(src[0])
    reg = a.memory(src, dst)
    for version in src:
        expect("write", a.do("WRITE", rows(version, keys)), "DONE")
        expect("read", a.do("READ", rows(dst, keys)), "DONE")
        expect("the new bytes", bool((version == dst).all()), True)
    expect("write fewer", a.do("WRITE", [(src.ctypes.data, 100, keys[0], 0)]), "DONE")
    expect("fewer are there", a.sizes(keys[:2]), [100, 8192])
    expect("read as many as before", a.do("READ", rows(dst, keys)), "nixlMismatchError")
    a.agent.deregister_memory(reg, backends=[NAME])


def test_a_request_can_be_posted_again(a):
    src, keys = noise(4, 4096), names("repost", 4)
    dst = np.zeros_like(src)
    reg = a.memory(src, dst)
    put, objects = a.request("WRITE", rows(src, keys))
    get, others = a.request("READ", rows(dst, keys))
    for _ in range(3):
        src[:] = noise(4, 4096)
        expect("write", a.wait(put), "DONE")
        expect("read", a.wait(get), "DONE")
        expect("bytes are equal", bool((src == dst).all()), True)
    for handle in (put, get):
        a.agent.release_xfer_handle(handle)
    for r in (objects, others, reg):
        a.agent.deregister_memory(r, backends=[NAME])


def test_prepared_lists(a):
    """As vLLM's and LMCache's consumers of NIXL do it: all memory prepared once, indices for each request."""
    pool, keys = noise(32, 16384), names("prepared", 8)
    reg = a.memory(pool)
    rooms = [(pool.ctypes.data + i * 16384, 16384, 0) for i in range(32)]
    mine = a.agent.prep_xfer_dlist("NIXL_INIT_AGENT", rooms, "DRAM")
    objects = a.agent.register_memory([(0, 16384, 5000 + i, k) for i, k in enumerate(keys)], "OBJ", backends=[NAME])
    theirs = a.agent.prep_xfer_dlist("tester", objects.trim())
    old = pool.copy()
    there, back = [3, 1, 4, 15, 9, 2, 6, 5], [20, 21, 22, 23, 27, 26, 25, 24]
    for op, indices in (("WRITE", there), ("READ", back)):
        handle = a.agent.make_prepped_xfer(op, mine, np.array(indices, np.int32), theirs, np.arange(8, dtype=np.int32))
        expect(op, a.wait(handle), "DONE")
        a.agent.release_xfer_handle(handle)
    expect("bytes are equal", bool((pool[back] == old[there]).all()), True)
    for handle in (mine, theirs):
        a.agent.release_dlist_handle(handle)
    for r in (objects, reg):
        a.agent.deregister_memory(r, backends=[NAME])


def released_in_flight(a, op, array, keys):
    """Post and release at once, until one was seen in flight. held.py shows that a release never waits."""
    for _ in range(20):
        handle, objects = a.request(op, rows(array, keys))
        flying = a.agent.transfer(handle) == "PROC"
        a.agent.release_xfer_handle(handle)
        a.agent.deregister_memory(objects, backends=[NAME])
        if flying:
            return
    raise AssertionError("no request was seen in flight")


def test_release_in_flight(a):
    array, keys = noise(160, MIB), names("released", 160)
    reg = a.memory(array)
    expect("write", a.do("WRITE", rows(array, keys)), "DONE")
    for op in ("READ", "WRITE", "READ"):
        released_in_flight(a, op, array, keys)
    a.agent.deregister_memory(reg, backends=[NAME])  # waits
    array[:] = 0x5a
    time.sleep(0.3)
    expect("nothing arrives once the memory is deregistered", bool((array == 0x5a).all()), True)
    again = a.memory(array)
    expect("the session goes on", a.do("WRITE", rows(array[:4], keys[:4])), "DONE")
    a.agent.deregister_memory(again, backends=[NAME])


def test_released_with_the_agent(a):
    """The agent is destroyed while operations are in flight."""
    b = Agent(keyspace="other")
    array, keys = noise(32, MIB), names("abandoned", 32)
    reg = b.memory(array)
    released_in_flight(b, "WRITE", array, keys)
    b.close()
    del reg
    src, (key,) = noise(4096), names("after", 1)
    mine = a.memory(src)
    expect("another session goes on", a.do("WRITE", [(src.ctypes.data, 4096, key, 0)]), "DONE")
    a.agent.deregister_memory(mine, backends=[NAME])


def test_other_kinds_of_memory_are_refused(a):
    area = noise(4096)
    for kind, word in (("BLOCK", "pages have names"), ("FILE", "are no files"), ("VRAM", "kernel module")):
        refused(kind, lambda kind=kind: a.agent.register_memory(
            a.agent.get_reg_descs([(area.ctypes.data, 4096, 0, "")], kind), backends=[NAME]), word)


def test_memory_that_is_not_there_is_refused(a):
    size = 1 << 16
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    at = libc.mmap(None, size, 0, 0x22, -1, 0)  # private, anonymous, without any access
    refused("no access", lambda: a.agent.register_memory(
        a.agent.get_reg_descs([(at, size, 0, "")], "DRAM"), backends=[NAME]), "cannot be registered")


def test_threads_share_an_agent(a):
    b = Agent()
    b.agent = nixl_agent("tester", nixl_agent_config(backends=[], sync_mode=sync_mode())) if sync_mode() else None
    if b.agent is None:
        raise Skip("this version of the package cannot be told to let threads share an agent")
    b.agent.create_backend(NAME, {"path": PATH, "entries": "64"})
    failures = []

    def work(nr):
        try:
            src, keys = noise(20, 9000), names(f"thread{nr}", 20)
            dst = np.zeros_like(src)
            mine = Agent.__new__(Agent)
            mine.agent, mine.device = b.agent, nr << 20
            reg = mine.memory(src, dst)
            for _ in range(10):
                src[:] = noise(20, 9000)
                expect("write", mine.do("WRITE", rows(src, keys)), "DONE")
                expect("sizes", mine.sizes(keys), [9000] * 20)
                expect("read", mine.do("READ", rows(dst, keys)), "DONE")
                expect("bytes are equal", bool((src == dst).all()), True)
            mine.agent.deregister_memory(reg, backends=[NAME])
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(nr,)) for nr in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    b.close()
    expect("failures", failures, [])


def sync_mode():
    try:
        from nixl._api import nixl_thread_sync_t
        nixl_agent_config(backends=[], sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
        return nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    except (ImportError, TypeError, AttributeError):
        return None


def test_another_agent_finds_it(a):
    src, keys = noise(16, 20000), names("later", 16)
    dst = np.zeros_like(src)
    b, reg = Agent(keyspace="later"), None
    reg = b.memory(src)
    expect("write", b.do("WRITE", rows(src, keys)), "DONE")
    b.agent.deregister_memory(reg, backends=[NAME])
    b.close()
    b = Agent(keyspace="later")
    reg = b.memory(dst)
    expect("read", b.do("READ", rows(dst, keys)), "DONE")
    expect("bytes are equal", bool((src == dst).all()), True)
    expect("not in another keyspace", a.sizes(keys), [None] * 16)
    b.agent.deregister_memory(reg, backends=[NAME])
    b.close()


def test_damage_on_media_is_an_error(a):
    if FOLDER == "-":
        raise Skip("the pool is another process's")
    src, keys = noise(4, 65536), names("spoilt", 4)
    dst = np.zeros_like(src)
    reg = a.memory(src, dst)
    expect("write", a.do("WRITE", rows(src, keys)), "DONE")
    spoilt = 0
    for member in glob.glob(os.path.join(FOLDER, "member*")) or glob.glob(os.path.join(FOLDER, "*")):
        with open(member, "r+b") as f:
            at = f.read().find(src[2, 1000:1064].tobytes())
            if at >= 0:
                f.seek(at)
                f.write(b"spoilt")
                spoilt += 1
    expect("the page was found on the medium", spoilt, 1)
    expect("read", a.do("READ", rows(dst, keys)), "nixlNotFoundError")
    expect("it is gone, the others are not", a.sizes(keys), [65536, 65536, None, 65536])
    a.agent.deregister_memory(reg, backends=[NAME])


def test_parameters(a):
    src, (key,) = noise(4096), names("parameters", 1)
    other = nixl_agent("other", nixl_agent_config(backends=[]))
    refused("no path", lambda: other.create_backend(NAME, {"bucket": "kv"}), "no path")
    refused("a path that is none", lambda: other.create_backend(NAME, {"path": "/nowhere/kv0/default"}), "/nowhere")
    refused("no number", lambda: other.create_backend(NAME, {"path": PATH, "entries": "many"}), "whole numbers")
    for params, environment in (({"bucket": PATH, "endpoint_override": "", "num_threads": "4"}, None),
                                ({"bucket": "kv"}, PATH)):
        if environment:
            os.environ["KVCTX_NIXL_PATH"] = environment
        b = Agent(path="", **params)
        os.environ.pop("KVCTX_NIXL_PATH", None)
        reg = b.memory(src)
        expect("write", b.do("WRITE", [(src.ctypes.data, 4096, key, 0)]), "DONE")
        b.agent.deregister_memory(reg, backends=[NAME])
        b.close()


def test_a_pool_is_made(a):
    if FOLDER == "-":
        raise Skip("the pool is another process's")
    src, (key,) = noise(4096), names("made", 1)
    with tempfile.TemporaryDirectory() as folder:
        b = Agent(path=os.path.join(folder, "new", "default"), max_bytes=str(16 * MIB))
        reg = b.memory(src)
        expect("write", b.do("WRITE", [(src.ctypes.data, 4096, key, 0)]), "DONE")
        b.agent.deregister_memory(reg, backends=[NAME])
        b.close()


def main(tests):
    passed = failed = skipped = 0
    a = Agent()
    for test in tests:
        what = test.__name__[5:].replace("_", " ")
        try:
            test(a)
            passed += 1
            print(f"ok {what}", flush=True)
        except Skip as why:
            skipped += 1
            print(f"skipped {what}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {what}\n{traceback.format_exc()}", flush=True)
    a.close()
    print(f"nixl {NAME}: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([f for n, f in globals().items() if n.startswith("test_")]))
