# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process that stores is killed, again and again; who comes after it never loads a wrong byte: kill.py DIR

The writer stores through KvctxL2Adapter, from LMCache's objects, pages whose bytes follow from their keys, and more
tasks are in flight when SIGKILL comes. Then all keys that it may have stored are looked up and loaded by another.
"""
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time

import torch

from kvctx.lmcache import KvctxL2Adapter
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.platform import consume_fd

PAGE = 256 << 10
TASK = 16  # pages
TASKS = 4  # in flight
KILLS = 5
POOL = {"max_bytes": 768 << 20, "segment_bytes": 16 << 20}


def key(n):
    return ObjectKey(chunk_hash=n.to_bytes(32, "big"), model_name="model", kv_rank=0)


def content(n):
    """Words that tell their page and their place in it."""
    return torch.arange(PAGE // 8, dtype=torch.int64) * 1000003 + n


class L1:
    """Memory for some pages, registered by an adapter that is opened with it."""

    def __init__(self, path, pages, **pool):
        self.words = torch.empty(pages * PAGE // 8, dtype=torch.int64)
        desc = L1MemoryDesc(ptr=self.words.data_ptr(), size=pages * PAGE, align_bytes=4096)
        self.adapter = KvctxL2Adapter({"path": path, **pool}, desc)

    def object(self, place):
        raw = self.words[place * PAGE // 8:(place + 1) * PAGE // 8]
        meta = MemoryObjMetadata(shape=torch.Size([PAGE // 8]), dtype=torch.int64, address=place * PAGE,
                                 phy_size=PAGE, fmt=MemoryFormat.KV_2LTD, ref_count=1)
        return TensorMemoryObj(raw_data=raw.view(torch.uint8), metadata=meta, parent_allocator=None)


def wait(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(60_000):
        raise TimeoutError("no completion")
    consume_fd(fd)


def write(path, first):
    """Store for ever, TASKS tasks at once; says the first page of each task before it is submitted."""
    l1 = L1(path, TASK * TASKS, **POOL)
    places, n = {}, first
    free = list(range(TASKS))
    while True:
        while free:
            place = free.pop() * TASK
            for i in range(TASK):
                l1.words[(place + i) * PAGE // 8:(place + i + 1) * PAGE // 8] = content(n + i)
            print(n, flush=True)
            task = l1.adapter.submit_store_task([key(n + i) for i in range(TASK)],
                                                [l1.object(place + i) for i in range(TASK)])
            places[task] = place // TASK
            n += TASK
        wait(l1.adapter.get_store_event_fd())
        for task, result in l1.adapter.pop_completed_store_tasks().items():
            assert result.is_successful()
            free.append(places.pop(task))


def killed_writer(path, first, seconds):
    """First page behind those that it may have stored."""
    p = subprocess.Popen([sys.executable, __file__, "write", path, str(first)], stdout=subprocess.PIPE, text=True)
    said = p.stdout.readline()
    assert said, "the writer has ended"
    time.sleep(seconds)
    p.send_signal(signal.SIGKILL)
    rest = p.stdout.read().split()
    assert p.wait() == -signal.SIGKILL, "the writer has ended"
    return int((rest or [said])[-1]) + TASK


def check(path, end):
    """(found, loaded, wrong) of pages 0 to end."""
    l1 = L1(path, TASK)
    found = loaded = wrong = 0
    for first in range(0, end, TASK):
        keys = [key(first + i) for i in range(TASK)]
        task = l1.adapter.submit_lookup_and_lock_task(keys, {})
        here = l1.adapter.query_lookup_and_lock_result(task).get_indices_list()
        found += len(here)
        if not here:
            continue
        l1.words.zero_()
        task = l1.adapter.submit_load_task([keys[i] for i in here], [l1.object(i) for i in here])
        wait(l1.adapter.get_load_event_fd())
        good = l1.adapter.query_load_result(task).get_indices_list()
        loaded += len(good)
        wrong += sum(not torch.equal(l1.words[here[i] * PAGE // 8:(here[i] + 1) * PAGE // 8], content(first + here[i]))
                     for i in good)
        l1.adapter.submit_unlock([keys[i] for i in here])
    l1.adapter.close()
    return found, loaded, wrong


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    path, end, ever = os.path.join(folder, "kv0", "default"), 0, 0
    seconds = random.Random(5)
    for n in range(KILLS):
        end = killed_writer(path, end, seconds.uniform(0.02, 0.5))
        found, loaded, wrong = check(path, end)
        bad = wrong or loaded != found
        ever += found
        print(f"{'FAILED' if bad else 'ok'} kill {n}: of {end} pages {found} are found, {loaded} loaded, {wrong} wrong",
              flush=True)
    # one that is killed early has nothing durable
    print(f"{'ok' if ever else 'FAILED'} pages were found", flush=True)
    shutil.rmtree(folder)


if sys.argv[1] == "write":
    write(sys.argv[2], int(sys.argv[3]))
else:
    main(sys.argv[1])
