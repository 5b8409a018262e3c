# SPDX-License-Identifier: GPL-2.0
"""What the native bench measures.

Words: a cell is one comparison of kvctx with raw io_uring, measured in pairs of runs that follow each other. Its target
is who serves kvctx: the process itself, the daemon kvctxd, or nobody (control: raw beside raw on another file, which
tells how far two equal things differ here). Its disk is where the files are: disk, or memory (files of a tmpfs).
"""

import collections
import os
import sys

# for all of these files: what both benches have in common
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

KIB = 1 << 10
MIB = 1 << 20

# bar: pairs are not to be saved here, something hangs on it
Cell = collections.namedtuple("Cell", "target disk op size depth segments verify bar")

SIZES = (16 * KIB, 64 * KIB, 256 * KIB, 2 * MIB)


def show_size(size):
    return f"{size // MIB}m" if size >= MIB else f"{size // KIB}k"


def name(cell):
    text = f"{cell.target}.{cell.disk}.{cell.op}.{show_size(cell.size)}.{cell.depth}"
    return text + (f".{cell.segments}" if cell.segments > 1 else "") + ("" if cell.verify else ".noverify")


def cell(target, disk, op, size, depth, segments=1, verify=1, bar=False):
    return Cell(target, disk, op, size, depth, segments, verify, bar)


def process_on_disk():
    for op in ("load", "store"):
        for size in SIZES:
            yield cell("process", "disk", op, size, 16, bar=True)
        for depth in (1, 64):
            yield cell("process", "disk", op, 64 * KIB, depth)
    for size in (16 * KIB, 2 * MIB):
        yield cell("process", "disk", "load", size, 1)
    yield cell("process", "disk", "load", 256 * KIB, 16, verify=0)
    yield cell("process", "disk", "load", 256 * KIB, 16, segments=64)
    yield cell("process", "disk", "load", 4 * MIB, 4, segments=1024)
    yield cell("process", "disk", "latency", 64 * KIB, 1)
    yield cell("process", "disk", "mixed", 64 * KIB, 1, bar=True)
    yield cell("process", "disk", "flood", 64 * KIB, 1, bar=True)


def process_in_memory():
    for size in SIZES:
        yield cell("process", "memory", "load", size, 16, verify=0, bar=True)
        yield cell("process", "memory", "load", size, 16, bar=True)
        yield cell("process", "memory", "store", size, 16, verify=0, bar=True)
        yield cell("process", "memory", "store", size, 16, bar=True)
    yield cell("process", "memory", "load", 256 * KIB, 16, segments=64, bar=True)
    yield cell("process", "memory", "load", 4 * MIB, 4, segments=1024, bar=True)


def control():
    for op in ("load", "store"):
        yield cell("control", "disk", op, 16 * KIB, 16, bar=True)
        yield cell("control", "disk", op, 256 * KIB, 16, bar=True)
    yield cell("control", "memory", "load", 64 * KIB, 16)


def daemon():
    for op in ("load", "store"):
        for size in SIZES[1:]:
            yield cell("daemon", "disk", op, size, 16, bar=True)
    yield cell("daemon", "disk", "load", 16 * KIB, 16)
    yield cell("daemon", "disk", "load", 64 * KIB, 64)
    yield cell("daemon", "disk", "load", 256 * KIB, 16, verify=0)
    yield cell("daemon", "disk", "latency", 64 * KIB, 1)
    yield cell("daemon", "disk", "load", 256 * KIB, 16, segments=64)
    yield cell("daemon", "disk", "load", 4 * MIB, 4, segments=1024)
    yield cell("daemon", "disk", "mixed", 64 * KIB, 1, bar=True)
    yield cell("daemon", "disk", "flood", 64 * KIB, 1, bar=True)
    for op in ("load", "store"):
        for size in SIZES:
            yield cell("daemon", "memory", op, size, 16, bar=True)


# Loads of a target before its stores, which evict what was to be loaded
STAGES = (control, process_on_disk, process_in_memory, daemon)


def all_cells():
    found = [c for stage in STAGES for c in stage()]
    return sorted(found, key=lambda c: c.op in ("store", "mixed", "flood"))
