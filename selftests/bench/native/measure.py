# SPDX-License-Identifier: GPL-2.0
"""Runs of a cell: raw and kvctx alternate, as jobs of one fio, or, where fio has no engine for it, of the program readv.

A run goes on for RUN_MS. The processor time of a run is that of all threads of fio, and of the daemon, between the
job's start and its end: of opening the session nothing counts.
"""

import collections
import json
import os
import subprocess
import tempfile

from place import FLOOD, Failed

from figures import latency_of, rate_of     # by the path that cells.py sets

RUN_MS = 400
LATENCY_MS = 1000           # p99.9 needs many
LAYOUT = "layout"
# Buffers of fio's own engines in huge pages, as those of kvctx. The alignment makes small ones large enough for one, and
# with a threshold that is set each is mapped by itself, also in jobs behind the first
HUGE = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=131072"}
HOT = "16M"                 # what is loaded beside a stream of stores

# What a run of one side, kvctx or raw, measured: MB/s, CPU seconds a GiB, {percentile: us}
Run = collections.namedtuple("Run", "side pair rate cpu latency")


def is_latency(cell):
    return cell.op in ("latency", "mixed", "flood")


def is_store(cell):
    return cell.op == "store"


class Bench:
    def __init__(self, build, fio, pairs, fewer):
        self.build, self.fio, self.pairs, self.fewer = os.path.abspath(build), os.path.abspath(fio), pairs, fewer
        self.daemon, self.env = None, HUGE

    def pairs_of(self, cell):
        return self.pairs if cell.bar else self.fewer

    # Job files

    def head(self):
        return ["[global]", "thread", "norandommap", "randrepeat=1", "disk_util=0"]

    def kvctx(self, disk, size, filename="pages", tenant="default"):
        path = os.path.join(os.path.dirname(self.daemon.path) if self.daemon else disk.pool, tenant)
        # both engines have buffers in huge pages; what kvctxd maps is a memfd of its own
        memory = "arena" if self.daemon else "registered"
        return [f"ioengine=external:{self.build}/lib/kvctx-fio.so", f"path={path}", f"keyspace={size}",
                f"filename={filename}", f"bs={size}", f"memory={memory}"]

    def raw(self, path, size):
        return ["ioengine=io_uring", "fixedbufs", "registerfiles", "direct=1", "iomem_align=4m", f"filename={path}", f"bs={size}"]

    def depth(self, depth):
        return [f"iodepth={depth}", f"iodepth_batch_submit={depth}", f"iodepth_batch_complete_min={(depth + 1) // 2}"]

    def timed(self, cell):
        if not is_latency(cell):
            return ["time_based", f"runtime={RUN_MS}ms"]
        return ["time_based", f"runtime={LATENCY_MS}ms", "clat_percentiles=0", "lat_percentiles=1"]

    def clocked(self):
        pids = "$PPID" + (f" {self.daemon.pid}" if self.daemon else "")
        return [f"exec_{when}run={self.build}/selftests/cputime {pids}" for when in ("pre", "post")]

    def side(self, disk, cell, side, pair, hot=False, tenant="default"):
        """Lines of a job without its name, batches and limit. @hot: it loads what lay_out_hot() stored."""
        store, span = is_store(cell), HOT if hot else disk.span
        if side == "raw" or cell.target == "control":
            lines = self.raw(disk.raw[0 if side == "raw" else 1], cell.size)
            span = disk.size if store else span
        else:
            # keys of stores are new because no other job has this name
            new = f"new-{cell.disk}-{cell.target}-{cell.depth}-{cell.verify}-{pair}"
            lines = self.kvctx(disk, cell.size, new if store else "hot" if hot else "pages", tenant)
            lines += [f"verify_load={cell.verify}", f"segments={cell.segments}"] + ["overwrite_page=new"] * store
        return lines + [f"size={span}", "rw=randwrite" if store else "rw=randread"]

    # Running them

    def run_jobs(self, lines):
        """What fio says of the jobs, with the nanoseconds of processor time of those that were clocked"""
        with tempfile.TemporaryDirectory() as tmp:
            with open(f"{tmp}/jobs", "w", encoding="utf-8") as f:
                f.write("\n".join(self.head() + lines) + "\n")
            done = subprocess.run([self.fio, "--eta=never", "--output-format=json", f"--output={tmp}/out", "jobs"],
                                  cwd=tmp, env=self.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            with open(f"{tmp}/out", encoding="utf-8") as f:
                out = f.read()
            if done.returncode:
                raise Failed("fio: " + (done.stdout + out[:out.find("{")]).strip())
            jobs = json.loads(out[out.index("{"):])["jobs"]
            for job in jobs:
                cpu = [f"{tmp}/{job['jobname']}.{when}run.txt" for when in ("pre", "post")]
                if all(os.path.exists(path) for path in cpu):
                    first, last = (int(open(path, encoding="ascii").read()) for path in cpu)
                    job["cpu"] = last - first
        return jobs

    def lay_out(self, disk, sizes):
        lines = []
        for size in sorted(sizes - disk.laid_out):
            lines += [f"[{LAYOUT}-{size}]", "stonewall", *self.kvctx(disk, size), *self.depth(8), "rw=write",
                      f"size={disk.span}"]
        if lines:
            self.run_jobs(lines)
        disk.laid_out |= sizes

    def lay_out_hot(self, disk, cell):
        self.run_jobs([f"[{LAYOUT}]", *self.kvctx(disk, cell.size, "hot"), *self.depth(16), "rw=write", f"size={HOT}"])

    def run(self, disk, cell):
        """Runs of all pairs"""
        if cell.segments > 1:
            return [self.scattered(disk, cell, side, pair) for side, pair in self.order(cell)]
        if cell.op in ("mixed", "flood"):
            return [self.beside(disk, cell, side, pair) for side, pair in self.order(cell)]
        lines = []
        for side, pair in self.order(cell):
            lines += [f"[{side}.{pair}]", "stonewall", *self.side(disk, cell, side, pair), *self.depth(cell.depth),
                      *self.timed(cell), *self.clocked()]
        return [run_of(job) for job in self.run_jobs(lines)]

    def order(self, cell):
        """Whose turn it is: every other pair is turned round."""
        for pair in range(1, self.pairs_of(cell) + 1):
            for side in ("raw", "kvctx") if pair % 2 else ("kvctx", "raw"):
                yield side, pair

    def scattered(self, disk, cell, side, pair):
        if side == "kvctx":
            return run_of(self.run_jobs([f"[kvctx.{pair}]", *self.side(disk, cell, side, pair), *self.depth(cell.depth),
                                         *self.timed(cell), *self.clocked()])[0])
        args = [f"{self.build}/selftests/readv", disk.raw[0], cell.op, cell.size, cell.depth, f"{RUN_MS}ms",
                cell.segments, disk.span]
        done = subprocess.run([str(a) for a in args], env=HUGE, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise Failed("readv failed")
        size, ns, cpu = (int(n) for n in done.stdout.split())
        return Run(side, pair, size / ns * 1000, cpu / size * 2**30 / 1e9, {})

    def beside(self, disk, cell, side, pair):
        """Loads one at a time beside 16 stores, of the same tenant or of another"""
        stores = cell._replace(op="store", depth=16)
        if side == "kvctx":
            self.lay_out_hot(disk, cell)
        jobs = self.run_jobs([f"[{side}.{pair}]", *self.side(disk, cell, side, pair, hot=True), *self.depth(1),
                              *self.timed(cell),
                              "[stores]", *self.side(disk, stores, side, f"{cell.op}-{pair}",
                                                     tenant=FLOOD if cell.op == "flood" else "default"),
                              *self.depth(16), *self.timed(cell)])
        return run_of(jobs[0])


def run_of(job):
    """Run of a job as fio tells it"""
    side, pair = job["jobname"].split(".")
    done = max(job["read"], job["write"], key=lambda d: d["io_bytes"])
    if job["error"] or not done["io_bytes"]:
        raise Failed(f"job {job['jobname']}: error {job['error']}, {done['io_bytes']} bytes")
    return Run(side, int(pair), rate_of(done),
               job["cpu"] / done["io_bytes"] * 2**30 / 1e9 if "cpu" in job else None, latency_of(done))
