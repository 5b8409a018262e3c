#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of the report of `make bench-connectors`, from made-up runs."""

import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

import connectors_report as report
import ground
import sides
from sides import DAEMON, KIB, MIB, PROCESS

RAW = sides.RAW_SIDE.name


def runs(case, op, side, rates, cpu=0.1, size=64 * KIB):
    return [{"case": case, "size": size, "side": side, "pair": n, "op": op, "rate": rate, "cpu": cpu}
            for n, rate in enumerate(rates, 1)]


def compare(ours, theirs, case="lmcache.64k.1", op="load", their_name="fs", name=PROCESS, size=64 * KIB,
            cpu=(0.1, 0.1)):
    return report.rows_of(runs(case, op, name, ours, cpu[0], size) + runs(case, op, their_name, theirs, cpu[1], size))


class RowTest(unittest.TestCase):
    def test_ratio_is_the_median_of_pairs_not_of_sides(self):
        row, = compare([100, 400, 90, 50, 30], [100, 200, 300, 50, 10])
        self.assertEqual((row["ratio"], row["ours"], row["theirs"], row["pairs"]), (1.0, 90, 100, 5))

    def test_a_run_without_its_partner_is_no_pair(self):
        row, = compare([100, 7], [50])
        self.assertEqual((row["ratio"], row["pairs"], row["ours"]), (2.0, 1, 100))

    def test_a_row_for_each_competitor_and_each_of_ours(self):
        records = [r for name in (PROCESS, DAEMON, "fs", "fs_native", RAW)
                   for r in runs("lmcache.1m.8", "store", name, [1], size=MIB)]
        self.assertEqual({(r["our_name"], r["their_name"]) for r in report.rows_of(records)},
                         {(o, t) for o in (PROCESS, DAEMON) for t in ("fs", "fs_native", RAW)})

    def test_fields_that_are_promised(self):
        row, = compare([3], [2], cpu=(0.3, 0.2))
        wanted = {"case": "lmcache.64k.1", "op": "load", "size": 65536, "ours": 3, "theirs": 2, "their_name": "fs",
                  "ratio": 1.5, "our_cpu": 0.3, "their_cpu": 0.2}
        self.assertEqual({k: row[k] for k in wanted}, wanted)

    def test_of_first_tokens_less_is_better(self):
        row, = compare([50], [200], case="vllm.first-token", op="first token", their_name="recompute",
                       name="kvctx.vllm")
        self.assertEqual((row["ratio"], row["unit"]), (4.0, "ms"))

    def test_lookups_of_each_shape_are_rows_and_have_no_bar(self):
        row, = compare([300000], [100000], op="lookup", cpu=(None, None))
        wanted = {"case": "lmcache.64k.1", "op": "lookup", "unit": "keys/s", "ratio": 3.0, "our_cpu": None}
        self.assertEqual({k: row[k] for k in wanted}, wanted)
        self.assertRegex(report.table([row])[1], "lmcache.64k.1 +lookup .* 300000 .* 100000 keys/s +3.00")
        self.assertEqual(report.judge([row], 0), report.judge([], 0))
        self.assertFalse(any(line.startswith("plot") for line in report.picture([row], "a.svg")))

    def test_no_processor_time_is_no_figure(self):
        row, = compare([3], [2], cpu=(None, 0.1))
        self.assertIsNone(row["our_cpu"])
        self.assertTrue(report.table([row]))


class BarTest(unittest.TestCase):
    def bar(self, rows, text, crc=0.05):
        return next(b for b in report.judge(rows, crc) if b.text.startswith(text))

    def test_nothing_measured_is_not_met(self):
        judged = report.judge([], 0.05)
        self.assertTrue(judged)
        self.assertFalse(any(b.met for b in judged))

    def test_only_parts_that_were_asked_for(self):
        self.assertTrue(all(b.text.startswith("lookup") for b in report.judge([], 0.05, {"lookup", "vllm"})))
        self.assertEqual(report.judge([], 0.05, {"vllm"}), [])

    def test_the_best_competitor_counts(self):
        rows = compare([100], [50]) + compare([100], [110], their_name="fs_native") + \
            compare([100], [1000], their_name=RAW)
        bar = self.bar(rows, f"lmcache, {PROCESS}: load, best of theirs")
        self.assertAlmostEqual(bar.figure, 100 / 110)
        self.assertFalse(bar.met)

    def test_the_page_cache_is_no_competitor(self):
        rows = compare([100], [500], case="sglang.1m", their_name="file") + \
            compare([100], [50], case="sglang.1m", their_name="nixl POSIX")
        bar = next(b for b in report.judge(rows, 0) if b.text == f"sglang, {PROCESS}: load, best of theirs")
        self.assertEqual((bar.figure, bar.met), (2.0, True))

    def test_median_and_each(self):
        rows = compare([99], [100]) + compare([100], [100], case="lmcache.1m.1", size=MIB) + \
            compare([90], [100], case="lmcache.8m.1", size=8 * MIB)
        judged = {b.text: b for b in report.judge(rows, 0)}
        self.assertFalse(judged[f"lmcache, {PROCESS}: load, best of theirs, median"].met)
        self.assertEqual(judged[f"lmcache, {PROCESS}: load, best of theirs, median"].figure, 0.99)
        self.assertIn("2 of 3 cases; worst lmcache.8m.1", judged[f"lmcache, {PROCESS}: load, best of theirs"].where)
        self.assertFalse(judged[f"lmcache, {DAEMON}: load, best of theirs"].met)

    def test_each_size_of_stores_has_its_bar(self):
        for size, case, limit in ((64 * KIB, "lmcache.64k.8", 5), (MIB, "lmcache.1m.8", 1.5),
                                  (8 * MIB, "lmcache.8m.8", 1)):
            text = f"lmcache, {PROCESS}: store {report.show_size(size)}, best"
            for rate, met in ((limit, True), (limit * 0.99, False)):
                self.assertEqual(self.bar(compare([rate], [1], case=case, op="store", size=size), text).met, met)

    def test_raw_has_bars_of_its_own(self):
        for op, limit in (("load", 0.9), ("store", 0.8)):
            for rate, met in ((limit, True), (limit - 0.01, False)):
                bar = self.bar(compare([rate], [1], op=op, their_name=RAW), f"lmcache, {PROCESS}: {op}, raw")
                self.assertEqual(bar.met, met)

    def test_checksums_are_taken_off(self):
        text = f"lmcache, {PROCESS}: CPU"
        self.assertTrue(self.bar(compare([1], [1], cpu=(0.24, 0.2)), text).met)
        self.assertFalse(self.bar(compare([1], [1], cpu=(0.26, 0.2)), text).met)

    def test_lookups(self):
        for name in (PROCESS, DAEMON):
            for rate, met in ((500, True), (499, False)):
                rows = compare([rate], [100], case="lookup.10000", op="lookup", name=name, cpu=(None, None))
                self.assertEqual(self.bar(rows, f"lookup of 10000 keys, {name}").met, met)

    def test_few_pairs_are_told(self):
        text = f"lmcache, {PROCESS}: load, raw"
        self.assertIn("3 pairs only", self.bar(compare([1] * 3, [1] * 3, their_name=RAW), text).where)
        self.assertNotIn("only", self.bar(compare([1] * 9, [1] * 9, their_name=RAW), text).where)


class SidesTest(unittest.TestCase):
    def test_names_are_what_rows_are_found_by(self):
        for part in sides.PARTS:
            self.assertEqual(len({s.name for s in part.sides}), len(part.sides))
            self.assertTrue(all(c.name.startswith(part.name + ".") for c in part.cases))
            self.assertTrue({s.kind for s in part.sides} >= {sides.OURS, sides.THEIRS})
        names = [c.name for part in sides.PARTS for c in part.cases]
        self.assertEqual(len(names), len(set(names)))

    def test_what_is_compared_goes_past_the_page_cache(self):
        for part in sides.PARTS:
            for side in part.sides:
                if side.kind == sides.THEIRS and side.direct and part.name != "vllm":
                    self.assertRegex(json.dumps(side.options), "use_(odirect|direct_io)\": (\"true\"|true)")


class OrderTest(unittest.TestCase):
    def test_each_run_of_a_bench_has_the_same(self):
        self.assertEqual(sides.order("abcdef", "lmcache.1m.8", 3), sides.order("abcdef", "lmcache.1m.8", 3))

    def test_all_are_run_once(self):
        self.assertEqual(sorted(sides.order({"b": 1, "a": 2}, "lmcache.1m.8", 1)), ["a", "b"])

    def test_nobody_always_follows_the_same_one(self):
        for part in sides.PARTS:
            names = [side.name for side in part.sides]
            orders = [sides.order(names, case.name, pair) for case in part.cases for pair in range(1, report.ENOUGH + 1)]
            for name in names:
                before = [found[found.index(name) - 1] if found[0] != name else None for found in orders]
                self.assertLess(max(map(before.count, before)), len(orders) * 0.6, (part.name, name))


class PictureTest(unittest.TestCase):
    def test_gnuplot_makes_it(self):
        rows = compare([2], [1]) + compare([3], [1], case="lmcache.1m.1", their_name="fs_native", size=MIB)
        with tempfile.TemporaryDirectory() as tmp:
            lines = report.picture(rows, f"{tmp}/a.svg")
            self.assertIn("lmcache.64k.1 2.0000", lines)
            with open(f"{tmp}/a.gnuplot", "w", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")
            done = subprocess.run(["gnuplot", f"{tmp}/a.gnuplot"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(os.path.getsize(f"{tmp}/a.svg"))


WORKER = """import sys
from worker import serve
def start(options):
    if options["bad"]:
        raise ValueError("no such thing\\nmore")
    def measure(request):
        print("noise")
        return {"twice": 2 * request["n"]}
    return measure
serve(start)
"""


class WorkerTest(unittest.TestCase):
    """A worker that is no engine's, with this Python"""

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        os.makedirs(f"{self.tmp.name}/lmcache/bin")
        os.symlink(sys.executable, f"{self.tmp.name}/lmcache/bin/python")
        with open(f"{self.tmp.name}/fake.py", "w", encoding="utf-8") as f:
            f.write(WORKER)
        self.log = open(f"{self.tmp.name}/log", "w+", encoding="utf-8")     # pylint: disable=consider-using-with
        self.addCleanup(self.log.close)

    def worker(self, bad):
        side = sides.Side("fake", sides.THEIRS, "lmcache", f"{self.tmp.name}/fake.py", {"bad": bad})
        made = ground.Worker(side, types.SimpleNamespace(new_dir=lambda: self.tmp.name), self.tmp.name, self.log)
        self.addCleanup(made.process.stdout.close)
        self.addCleanup(made.stop)
        return made

    def test_answers_and_noise(self):
        worker = self.worker(False)
        self.assertEqual(worker.answer(), {"ready": True})
        self.assertEqual(worker.measure({"n": 4}), {"twice": 8})
        with self.assertRaisesRegex(ground.Failed, "KeyError"):
            worker.measure({})
        self.assertEqual(worker.measure({"n": 5}), {"twice": 10})
        worker.stop()
        self.assertIsNotNone(worker.process.returncode)

    def test_why_a_side_cannot_begin(self):
        with self.assertRaisesRegex(ground.Failed, "ValueError: no such thing$"):
            self.worker(True).answer()

    def test_one_that_dies(self):
        worker = self.worker(False)
        worker.answer()
        worker.process.kill()
        worker.process.wait()
        with self.assertRaises(ground.Failed):
            worker.measure({"n": 1})


class SweepTest(unittest.TestCase):
    def test_what_killed_runs_left(self):
        with tempfile.TemporaryDirectory() as tmp:
            for name in (f"{ground.NAME}.999999999", f"{ground.NAME}.999999999.sock", f"{ground.NAME}.{os.getpid()}",
                         "other.999999999"):
                os.makedirs(f"{tmp}/{name}/x")
            ground.sweep(tmp)
            self.assertEqual(sorted(os.listdir(tmp)), sorted([f"{ground.NAME}.{os.getpid()}", "other.999999999"]))

    def test_pools_and_raw_files_are_written_whole(self):
        with tempfile.TemporaryDirectory() as tmp:
            os.makedirs(f"{tmp}/build/bin")
            os.symlink("/bin/true", f"{tmp}/build/bin/kvctxctl")
            place = ground.Ground(tmp, f"{tmp}/build", 32 * MIB)
            files = [place.raw, os.path.join(place.pool("process"), "member0")]
            self.assertEqual([os.path.getsize(path) for path in files], [32 * MIB] * 2)
            place.remove()
            self.assertEqual(os.listdir(tmp), ["build"])


def main():
    stream = io.TextIOWrapper(sys.stdout.buffer, line_buffering=True)
    result = unittest.TextTestRunner(stream=stream, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
    bad = len(result.failures) + len(result.errors)
    print(f"connectors-bench: {result.testsRun - bad} passed, {bad} failed, {len(result.skipped)} skipped")
    return 1 if bad or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
