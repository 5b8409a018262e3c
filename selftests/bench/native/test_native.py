#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The code of the native bench, on made-up measurements. Ends with "native-bench: N passed, N failed, N skipped"."""

import collections
import os
import sys
import tempfile
import unittest
from unittest import mock

import cells
import measure
import native_report
import place
from cells import MIB
from measure import Run
from place import Failed

KIB = 1 << 10
PLACE = collections.namedtuple("PLACE", "dir pool raw size span")("/d", "/d/pool", ["/d/raw0", "/d/raw1"], 2 << 30, 1 << 20)


def runs_of(pairs, cpu=(None, None)):
    """Runs of pairs (kvctx, raw)"""
    return [Run(side, n, rate, c, {}) for n, both in enumerate(pairs)
            for side, rate, c in zip(("kvctx", "raw"), both, cpu)]


def row(target="process", op="load", size=64 * KIB, disk="disk", depth=16, verify=1, segments=1, **given):
    """A row of one pair, @given: kvctx, raw and cpu"""
    cell = cells.Cell(target, disk, op, size, depth, segments, verify, True)
    found, = native_report.rows_of(cell, runs_of([(given.get("kvctx", 100), given.get("raw", 100))],
                                                 given.get("cpu", (None, None))))
    found.update({k: v for k, v in given.items() if k == "spread"})
    return found


class CellsTest(unittest.TestCase):
    def test_names_tell_all_cells_apart(self):
        names = [cells.name(c) for c in cells.all_cells()]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(35 <= len(names) <= 65, len(names))

    def test_what_the_bars_need_is_measured(self):
        found = {(c.target, c.op, c.size) for c in cells.all_cells()
                 if c.disk == "disk" and c.depth == 16 and c.verify and c.segments == 1 and c.bar}
        for op in ("load", "store"):
            for size in cells.SIZES:
                self.assertIn(("process", op, size), found)
                if size >= 64 * KIB:
                    self.assertIn(("daemon", op, size), found)
            self.assertTrue(any(f[:2] == ("control", op) for f in found))

    def test_processor_time_is_measured(self):
        found = {(c.target, c.op, c.size, c.verify) for c in cells.all_cells()
                 if c.disk == "memory" and c.depth == 16 and c.segments == 1 and c.bar}
        for target, verify in (("process", 0), ("process", 1), ("daemon", 1)):
            self.assertLessEqual({(target, op, size, verify) for op in ("load", "store") for size in cells.SIZES}, found)

    def test_latencies_are_measured_of_both_targets(self):
        found = {(c.target, c.op) for c in cells.all_cells() if c.bar}
        for op in ("mixed", "flood"):
            self.assertLessEqual({("process", op), ("daemon", op)}, found)

    def test_stores_come_last(self):
        ops = [c.op in ("store", "mixed", "flood") for c in cells.all_cells()]
        self.assertEqual(ops, sorted(ops))


class RowTest(unittest.TestCase):
    def test_ratio_is_the_median_of_pairs_not_of_sides(self):
        cell = cells.cell("process", "disk", "load", 64 * KIB, 16)
        found, = native_report.rows_of(cell, runs_of([(100, 100), (400, 200), (90, 300), (50, 50), (30, 10)]))
        self.assertEqual((found["ratio"], found["kvctx"], found["raw"], found["pairs"]), (1.0, 90, 100, 5))

    def test_a_run_without_its_partner_is_no_pair(self):
        cell = cells.cell("process", "disk", "load", 64 * KIB, 16)
        found, = native_report.rows_of(cell, runs_of([(100, 100), (1, 1)])[:3])
        self.assertEqual(found["pairs"], 1)

    def test_fields(self):
        wanted = "target disk op size depth segments verify kvctx raw ratio spread kvctx_cpu raw_cpu cpu_ratio"
        self.assertLessEqual(set(wanted.split()), set(row()))

    def test_cpu(self):
        found = row(cpu=(0.3, 0.2))
        self.assertEqual((found["kvctx_cpu"], found["raw_cpu"]), (0.3, 0.2))
        self.assertAlmostEqual(found["cpu_ratio"], 1.5)

    def test_latencies_are_rows_of_their_own(self):
        cell = cells.cell("process", "disk", "mixed", 64 * KIB, 1)
        found = native_report.rows_of(cell, [Run(side, 1, 1, None, {"p50": 1, "p99": 2, "p99.9": tail})
                                             for side, tail in (("kvctx", 30), ("raw", 20))])
        self.assertEqual([r["op"] for r in found], ["mixed-p50", "mixed-p99", "mixed-p99.9"])
        self.assertEqual([r["ratio"] for r in found], [1, 1, 1.5])

    def test_ranks_of_the_interval(self):
        # of tables of the sign test: the interval of 15 values is from the 4th to the 12th, of 6 all of them
        self.assertEqual([native_report.tail_rank(n) for n in (1, 5, 6, 9, 15, 20)], [0, 0, 0, 1, 3, 5])

    def test_spread(self):
        self.assertEqual(native_report.spread([1.0]), 0)
        self.assertEqual(native_report.spread(range(15)), 4)


class BarTest(unittest.TestCase):
    def bar(self, rows, text, crc=0.05, costs=None):
        return next(b for b in native_report.judge(rows, crc, costs or {}) if b.text == text)

    def test_nothing_measured_is_not_met(self):
        judged = native_report.judge([], 0.05, {})
        self.assertTrue(judged)
        self.assertFalse(any(b.met for b in judged))

    def test_the_spread_of_the_control_is_allowed(self):
        text = "throughput, load, process, 64K and more"
        self.assertFalse(self.bar([row(kvctx=95)], text).met)
        self.assertFalse(self.bar([row(kvctx=95), row("control", spread=0.01)], text).met)
        self.assertTrue(self.bar([row(kvctx=95), row("control", spread=0.03)], text).met)
        # not that of another operation or disk
        self.assertFalse(self.bar([row(kvctx=95), row("control", "store", spread=1), row("control", disk="memory", spread=1)],
                                  text).met)

    def test_the_nearest_size_of_the_control(self):
        rows = [row("control", size=16 * KIB, spread=0.2), row("control", size=256 * KIB, spread=0.1)]
        self.assertEqual(native_report.control_spread(rows, row(size=2 << 20)), 0.1)
        self.assertEqual(native_report.control_spread(rows, row(size=16 * KIB)), 0.2)

    def test_each_bar_has_its_cells(self):
        rows = [row(kvctx=97), row(kvctx=90, size=16 * KIB), row("daemon", kvctx=90)]
        for text in ("process, 64K and more", "process, 16K", "daemon, 64K and more"):
            self.assertTrue(self.bar(rows, f"throughput, load, {text}").met)
        others = [row(kvctx=1, depth=1), row(kvctx=1, verify=0), row(kvctx=1, segments=64), row(kvctx=1, disk="memory"),
                  row("daemon", kvctx=1, size=16 * KIB)]
        for text in ("process, 64K and more", "process, 16K", "daemon, 64K and more"):
            self.assertTrue(self.bar(rows + others, f"throughput, load, {text}").met)

    def test_the_worst_is_shown(self):
        bar = self.bar([row(kvctx=99), row(kvctx=50, size=256 * KIB)], "throughput, load, process, 64K and more")
        self.assertEqual(bar.figure, 0.5)
        self.assertIn("1 of 2 cells; worst disk load 256K", bar.where)

    def test_checksums_are_taken_off(self):
        text, verified = "CPU a GiB, process", "CPU a GiB less the checksum's, process"
        self.assertTrue(self.bar([row(disk="memory", verify=0, cpu=(0.23, 0.2))], text).met)
        self.assertFalse(self.bar([row(disk="memory", verify=0, cpu=(0.24, 0.2))], text).met)
        self.assertTrue(self.bar([row(disk="memory", cpu=(0.27, 0.2))], verified).met)
        self.assertFalse(self.bar([row(disk="memory", cpu=(0.29, 0.2))], verified).met)

    def test_the_daemon_has_a_bar_of_its_own(self):
        text = "CPU a GiB less the checksum's, daemon"
        rows = [row("daemon", disk="memory", cpu=(0.27, 0.2)), row(disk="memory", cpu=(9, 0.2))]
        self.assertTrue(self.bar(rows, text).met)
        self.assertFalse(self.bar([row("daemon", disk="memory", cpu=(0.29, 0.2)), *rows], text).met)

    def test_stores_and_scattered_pages_take_processor_time(self):
        for target in ("process", "daemon"):
            text, good = f"CPU a GiB less the checksum's, {target}", row(target, disk="memory", cpu=(0.27, 0.2))
            for what in ({"op": "store"}, {"size": 2 * MIB}, {"size": 16 * KIB}, {"op": "store", "size": 2 * MIB}):
                self.assertFalse(self.bar([good, row(target, disk="memory", cpu=(0.29, 0.2), **what)], text).met)
            bar = self.bar([good, row(target, disk="memory", segments=64, cpu=(0.29, 0.2))], text)
            self.assertFalse(bar.met)
            self.assertIn("worst memory load 64K of 64", bar.where)
        self.assertFalse(self.bar([row(disk="memory", op="store", size=2 * MIB, verify=0, cpu=(0.24, 0.2))],
                                  "CPU a GiB, process").met)

    def test_stores_of_the_daemon(self):
        text = "throughput, store, daemon, 64K and more"
        self.assertTrue(self.bar([row("daemon", "store", 2 * MIB, kvctx=90)], text).met)
        self.assertFalse(self.bar([row("daemon", "store", kvctx=90), row("daemon", "store", 2 * MIB, kvctx=89)], text).met)

    def test_tails(self):
        for target, other in (("process", "daemon"), ("daemon", "process")):
            text = f"p99.9 of loads beside stores, {target}"
            rows = [row(target, "mixed-p99.9", kvctx=200), row(other, "mixed-p99.9", kvctx=999)]
            self.assertTrue(self.bar(rows, text).met)
            self.assertFalse(self.bar([*rows, row(target, "mixed-p99.9", kvctx=201)], text).met)
            text = f"p99 of loads beside another tenant's, {target}"
            rows = [row(target, "flood-p99", kvctx=150), row(other, "flood-p99", kvctx=999)]
            self.assertTrue(self.bar(rows, text).met)
            self.assertFalse(self.bar([*rows, row(target, "flood-p99", kvctx=151)], text).met)

    def test_what_a_batch_costs(self):
        found = native_report.costs_of("load_packed, absent          15.3 ns a page\nload_packed   49.9 ns a page\n")
        self.assertEqual(found, {"load_packed, absent": 15.3, "load_packed": 49.9})
        for language, other in (("C", "Python"), ("Python", "C")):
            text = f"ns an operation of a batch, {language}"
            self.assertTrue(self.bar([], text, costs={language: found, other: {"load": 99.0}}).met)
            self.assertFalse(self.bar([], text, costs={other: found}).met)
            bar = self.bar([], text, costs={language: {**found, "load": 50.0}})
            self.assertFalse(bar.met)
            self.assertEqual((bar.figure, bar.where), (50.0, "2 of 3 calls; worst load"))


class PlaceTest(unittest.TestCase):
    def test_files_are_filled_by_turns(self):
        with tempfile.TemporaryDirectory() as tmp:
            paths = [os.path.join(tmp, name) for name in "ab"]
            synced = []
            with mock.patch("os.fsync", lambda fd: synced.append([os.path.getsize(p) for p in paths])):
                place.fill(32 * MIB, *paths)
            self.assertEqual(synced, [[n * MIB, m * MIB] for n, m in ((16, 0), (16, 16), (32, 16), (32, 32))])

    def test_sockets_have_short_paths_wherever_the_disk_is(self):
        with tempfile.TemporaryDirectory() as tmp:
            deep = os.path.join(tmp, "deep" * 25)
            os.mkdir(deep)
            program = os.path.join(tmp, "kvctxd")
            with open(program, "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\nmkdir -p "$2/pool" && : > "$2/pool/default" && exec sleep 60\n')
            os.chmod(program, 0o755)
            daemon = place.Daemon(program, PLACE._replace(dir=deep))
            daemon.stop()
            self.assertLess(len(os.fsencode(daemon.path)), 108)
            self.assertEqual(daemon.path, os.path.join(daemon.run, "pool", "default"))
            self.assertFalse(os.path.exists(daemon.run))


class JobsTest(unittest.TestCase):
    def setUp(self):
        self.bench = measure.Bench("build", "fio", 15, 7)

    def lines(self, cell, side, **more):
        lines = self.bench.side(PLACE, cell, side, 3, **more)
        keys = [line.split("=")[0] for line in lines]
        self.assertEqual(len(keys), len(set(keys)))
        return dict(line.partition("=")[::2] for line in lines)

    def test_both_sides_read_as_much(self):
        cell = cells.cell("process", "disk", "load", 64 * KIB, 16, verify=0)
        kvctx, raw = (self.lines(cell, side) for side in ("kvctx", "raw"))
        self.assertEqual([kvctx[k] for k in ("size", "bs", "rw")], [raw[k] for k in ("size", "bs", "rw")])
        self.assertEqual((kvctx["path"], kvctx["verify_load"]), ("/d/pool/default", "0"))
        self.assertEqual((raw["filename"], raw["direct"]), ("/d/raw0", "1"))

    def test_a_flood_is_another_tenants(self):
        cell = cells.cell("process", "disk", "store", 64 * KIB, 16)
        self.assertEqual(self.lines(cell, "kvctx", tenant="flood")["path"], "/d/pool/flood")

    def test_control_is_raw_on_two_files(self):
        for op, size in (("load", PLACE.span), ("store", PLACE.size)):
            cell = cells.cell("control", "disk", op, 64 * KIB, 16)
            sides = [self.lines(cell, side) for side in ("kvctx", "raw")]
            self.assertEqual([s["filename"] for s in sides], ["/d/raw1", "/d/raw0"])
            self.assertEqual([s["size"] for s in sides], [str(size)] * 2)
            self.assertEqual([s["ioengine"] for s in sides], ["io_uring"] * 2)

    def test_stores_are_of_new_pages(self):
        names = {self.lines(c, "kvctx")["filename"] for c in cells.all_cells() if c.op == "store" and c.target != "control"}
        self.assertEqual(len(names), len({(c.target, c.disk, c.depth, c.verify) for c in cells.all_cells()
                                          if c.op == "store" and c.target != "control"}))

    def test_pairs_alternate_in_turn(self):
        cell = cells.cell("process", "disk", "load", 64 * KIB, 16)
        self.assertEqual(list(self.bench.order(cell))[:4], [("raw", 1), ("kvctx", 1), ("kvctx", 2), ("raw", 2)])
        self.assertEqual(len(list(self.bench.order(cell))), 14)
        self.assertEqual(len(list(self.bench.order(cell._replace(bar=True)))), 30)

    def job(self, **changed):
        idle, done = ({"io_bytes": n, "runtime": 1000, "lat_ns": {"percentile": {"99.900000": 5000}}} for n in (0, 10**8))
        return {"jobname": "kvctx.2", "error": 0, "read": done, "write": idle, "cpu": 10**9, **changed}

    def test_what_fio_says(self):
        run = measure.run_of(self.job())
        self.assertEqual((run.side, run.pair, run.rate, run.latency), ("kvctx", 2, 100, {"p99.9": 5}))
        self.assertAlmostEqual(run.cpu, 2**30 / 1e8)

    def test_a_failed_job_is_no_result(self):
        for changed in ({"error": 5}, {"read": self.job()["write"]}):
            with self.assertRaises(Failed):
                measure.run_of(self.job(**changed))


def main():
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
    bad = len(result.failures) + len(result.errors)
    print(f"native-bench: {result.testsRun - bad} passed, {bad} failed, {len(result.skipped)} skipped")
    return 1 if bad or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
