# SPDX-License-Identifier: GPL-2.0
"""What the programs that measure inside an engine's environment share.

A worker is one side of a comparison: an adapter of LMCache, a backend of SGLang, an engine of vLLM. It is started with
its options, one JSON object, as argument; it answers one line of JSON when it is ready, and one to each line that it
reads. What the engine prints goes to standard error, which is a log. It ends at the end of its input.
"""

import json
import os
import sys
import time
import traceback

GIB = 1 << 30


def process_clock(pid):
    """The processor time of another process as a clock for time.clock_gettime()"""
    return (~pid << 3) | 2


class Clock:
    """Wall and processor time; of this process and of @pids, the servers that work for it."""

    def __init__(self, pids=()):
        self.clocks = [time.CLOCK_PROCESS_CPUTIME_ID, *(process_clock(pid) for pid in pids)]

    def cpu(self):
        return sum(time.clock_gettime(clock) for clock in self.clocks)

    def now(self):
        """(seconds of wall time, of processors)"""
        return time.perf_counter(), self.cpu()


def figures(amount, wall, cpu, unit_bytes=None):
    """What a run is told as: amount/second; and where @unit_bytes were moved, CPU seconds a GiB"""
    return {"rate": amount / wall, "cpu": cpu / unit_bytes * GIB if unit_bytes else None}


def transfer(size, wall, cpu):
    """A run that moved @size bytes: MB/s"""
    return figures(size / 1e6, wall, cpu, size)


def serve(start):
    """Be a worker: start(options) gives a function from request to answer, both of them dicts."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(what):
        out.write(json.dumps(what) + "\n")
        out.flush()

    def attempt(fn, *args):
        try:
            reply(fn(*args))
            return True
        except (Exception, SystemExit) as e:        # pylint: disable=broad-except # whatever an engine raises is told
            traceback.print_exc()
            reply({"error": f"{type(e).__name__}: {e}".strip().splitlines()[0]})
            return False

    made = []
    if not attempt(lambda: made.append(start(json.loads(sys.argv[1]))) or {"ready": True}):
        sys.exit(1)
    for line in sys.stdin:
        attempt(made[0], json.loads(line))
    # engines leave threads behind that would keep the process, and of what they hold nothing matters
    sys.stderr.flush()
    os._exit(0)
