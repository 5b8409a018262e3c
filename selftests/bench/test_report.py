#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The code of the report, on made-up measurements. Ends with "bench: N passed, N failed, N skipped"."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import bars
import insn
import report


def fio_job(name, rate, p999=0, p99=2000):
    """A job as fio prints it: @rate MB/s for one second, on the side of its operation"""
    done = {"io_bytes": rate * 1000000, "runtime": 1000,
            "lat_ns": {"percentile": {"50.000000": 1000, "99.000000": p99, "99.900000": p999}}}
    idle = {"io_bytes": 0, "runtime": 0, "lat_ns": {}}
    store = ".store." in name
    return {"jobname": name, "error": 0, "read": idle if store else done, "write": done if store else idle}


class Dir:
    """Directories as the guests leave them"""

    def __init__(self, path):
        self.path, self.jobs, self.stat, self.results = path, [], [], []
        os.mkdir(path)

    def pair(self, case, number, kvctx, raw, **more):
        self.jobs += [fio_job(f"kvctx.{case}.{number}", kvctx, **more), fio_job(f"raw.{case}.{number}", raw, p999=1000)]

    def put(self, name, text):
        with open(f"{self.path}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def close(self):
        self.put("a.json", "fio: a note before the report\n" + json.dumps({"jobs": self.jobs}))
        self.put("stat", "".join(line + "\n" for line in self.stat))
        self.put("results", "".join(f"@{line}\n" for line in self.results))


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.timed = Dir(f"{self.tmp.name}/timed")

    def rows(self, counted=None):
        self.timed.close()
        runs, others = report.read_timed(self.timed.path)
        return report.make_rows(runs, others, counted or {})

    def row(self, case, counted=None):
        return bars.one(self.rows(counted), case)

    def test_ratio_is_the_median_of_pairs_not_of_engines(self):
        for number, (kvctx, raw) in enumerate([(100, 100), (400, 200), (90, 300), (50, 50), (30, 10)]):
            self.timed.pair("ssd.load.64k.16.1.0", number, kvctx, raw)
        row = self.row("load")
        self.assertEqual(row["ratio"], 1.0)
        self.assertEqual((row["kvctx"], row["raw"]), (90, 100))
        self.assertEqual((row["target"], row["size"], row["batch"], row["segments"], row["verify"], row["pairs"]),
                         ("ssd", 65536, 16, 1, 0, 5))

    def test_a_run_without_its_partner_is_no_pair(self):
        self.timed.pair("ssd.load.64k.16.1.0", 1, 100, 100)
        self.timed.jobs.append(fio_job("kvctx.ssd.load.64k.16.1.0.2", 1))
        self.assertEqual(self.row("load")["pairs"], 1)

    def test_a_failed_job_is_no_result(self):
        self.timed.pair("ssd.load.64k.16.1.0", 1, 100, 100)
        self.timed.jobs[0]["error"] = 5
        with self.assertRaises(SystemExit):
            self.rows()

    def test_raw_of_a_verified_store_is_its_partner(self):
        self.timed.pair("tcp.store.2m.1.1.1", 1, 50, 100)
        row = self.row("store")
        self.assertEqual((row["ratio"], row["size"], row["verify"]), (0.5, 2 << 20, 1))

    def test_cpu_time_a_gib(self):
        self.timed.pair("null.load.16k.16.1.0", 1, 1024, 1024)
        for engine, ticks in (("kvctx", 50), ("raw", 100)):
            job = f"{engine}.null.load.16k.16.1.0.1"
            self.timed.stat += [f"{job} prerun cpu 10 0 20 1000 5 0 1 0 0 0",
                                f"{job} postrun cpu {10 + ticks} 0 20 9000 70 0 1 0 0 0"]
        row = self.row("load")
        self.assertAlmostEqual(row["kvctx_cpu"], 0.5 * 2**30 / 1024e6)
        self.assertEqual(row["cpu_ratio"], 0.5)

    def test_instructions_join_their_case(self):
        self.timed.pair("null.load.64k.16.1.0", 1, 100, 100)
        key = ("null", "load", 65536, 16, 1)
        row = self.row("load", {("kvctx", *key): 900.0, ("raw", *key): 1000.0})
        self.assertEqual((row["kvctx_insn"], row["insn_ratio"]), (900.0, 0.9))

    def test_readv_is_the_partner_of_scattered_pages(self):
        self.timed.jobs.append(fio_job("kvctx.null.load.64k.16.64.0.1", 300))
        self.timed.results.append("readv raw.null.load.64k.16.64.0.1 200000000 1000000000")
        self.assertEqual(self.row("load")["ratio"], 1.5)

    def test_cost_of_verification(self):
        # 1 ms a MB more, beside crc32c() of 1 ms a MiB; in the second pair all takes twice as long
        for pair in (1, 2):
            for verify, rate in ((0, 500), (1, 1000 / 3)):
                self.timed.jobs.append(fio_job(f"kvctx.null.verify1.256k.16.1.{verify}.{pair}", rate / pair))
        self.timed.results += ["crc 1 1 1000000", "crc 1 2 2000000", "crc 2 1 5"]
        row = self.row("verify-1cpu")
        self.assertAlmostEqual(row["kvctx"], 1.5 * 1048576, delta=1)
        self.assertAlmostEqual(row["ratio"], 1.048576, places=5)

    def test_calls_and_match(self):
        self.timed.results += ["syscalls match 1 submit 1 wait 0 all 2", "match 100 5000", "match 10000 400000"]
        judged = {bar.text: bar for bar in bars.calls(self.rows())}
        self.assertTrue(all(bar.met for bar in judged.values()))
        self.assertEqual(judged["MATCH of 10,000 keys beside 100 of 100"].figure, 0.8)

    def test_a_missed_bar(self):
        self.timed.pair("ssd.load.64k.16.1.0", 1, 98, 100)
        self.timed.pair("ssd.load.2m.16.1.0", 1, 97, 100)
        self.timed.pair("tcp.load.2m.16.1.0", 1, 98, 100)
        judged = {bar.text: bar for bar in bars.judge(self.rows())}
        missed = judged["throughput, load, 64K and more, SSD"]
        self.assertFalse(missed.met)
        self.assertEqual(missed.figure, 0.97)
        self.assertEqual(missed.where, "1 of 2 cases; worst ssd load 2048K batch 16")
        self.assertTrue(judged["throughput, load, 64K and more, NVMe/TCP"].met)

    def test_bars_take_their_sizes_and_batches(self):
        for case in ("null.load.16k.1", "null.load.16k.16", "null.load.64k.1"):
            self.timed.pair(f"{case}.1.0", 1, 80, 100)
        judged = {bar.text: bar.where for bar in bars.judge(self.rows())}
        self.assertTrue(judged["throughput, load, 16K, batch 16 and up"].startswith("0 of 1 cases"))
        self.assertTrue(judged["throughput, load, 64K and more, null_blk"].startswith("0 of 1 cases"))

    def test_a_bar_without_figures_is_missed(self):
        judged = bars.judge([])
        self.assertTrue(judged)
        self.assertFalse(any(bar.met for bar in judged))

    def test_tail_beside_stores(self):
        self.timed.pair("ssd.mixed.64k.1.1.0", 1, 1, 1, p999=2000)
        self.assertTrue(next(bars.tails(self.rows())).met)
        self.timed.pair("null.mixed.64k.1.1.0", 1, 1, 1, p999=2100)
        self.assertFalse(next(bars.tails(self.rows())).met)

    def test_tail_beside_another_tenant(self):
        self.timed.pair("ssd.flood.64k.1.1.0", 1, 1, 1, p99=2980)
        judged = {bar.text: bar for bar in bars.tails(self.rows())}["p99 of loads beside another tenant's stores"]
        self.assertEqual((judged.met, judged.figure), (True, 1.49))
        self.timed.pair("null.flood.64k.1.1.0", 1, 1, 1, p99=3020)
        self.assertFalse(list(bars.tails(self.rows()))[1].met)

    def run_main(self, *args):
        self.timed.close()
        argv = ["report.py", *args, self.timed.path, "-", self.tmp.name]
        with contextlib.redirect_stdout(io.StringIO()) as out, mock.patch.object(sys, "argv", argv):
            return report.main(), out.getvalue()

    def test_files_and_status(self):
        self.timed.pair("ssd.load.64k.16.1.0", 1, 50, 100)
        status, text = self.run_main()
        self.assertEqual(status, 0)
        self.assertIn("MISSED throughput, load, 64K and more, SSD", text)
        with open(f"{self.tmp.name}/report.json", encoding="utf-8") as f:
            self.assertEqual(json.load(f)[0]["ratio"], 0.5)
        with open(f"{self.tmp.name}/report.gnuplot", encoding="utf-8") as f:
            self.assertIn("65536 0.5000", f.read())
        self.assertEqual(self.run_main("--strict")[0], 3)


class InsnTest(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.dir = Dir(f"{self.tmp.name}/counted")
        self.dir.put("kallsyms", "ffffffff81000000 T start\nffffffff81000100 t do_it\nffffffff81000200 D data\n"
                     "ffffffffc0000000 t other\t[null_blk]\nffffffffc0001008 t load\t[kvctx]\n")
        self.dir.put("cases", "bench: a note\n@insn 1 kvctx.null.base.64k.1.1 1\n@insn 2 kvctx.null.load.64k.16.1 11\n")
        self.dir.put("counts", "1 0 100\n1 ffffffffc0001000 50\n2 0 300\n2 ffffffff81000100 400\n2 ffffffff81000230 10\n"
                     "2 ffffffffc0000010 70\n2 ffffffffc0001000 500\n2 ffffffffc0001050 50\n")

    def test_sums_without_the_base(self):
        case, = insn.read_cases(self.dir.path)
        self.assertEqual(case.name, "kvctx.null.load.64k.16.1")
        self.assertEqual(insn.sums(case), [118, 20, 57, 50])
        self.assertEqual(case.symbols["do_it"], 410)

    def test_nothing_counted_is_an_error(self):
        self.dir.put("counts", "1 0 100\n")
        with self.assertRaises(SystemExit):
            insn.read_cases(self.dir.path)

    def test_expected(self):
        path = f"{self.tmp.name}/expected"
        cases = insn.read_cases(self.dir.path)
        insn.write_expected(cases, path)
        self.assertEqual(insn.read_expected(path), {"kvctx.null.load.64k.16.1": 50})
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(insn.check(cases, path), 0)
        self.assertTrue(out.getvalue().endswith("insn: 1 passed, 0 failed, 0 skipped\n"))

    def test_three_percent_more_fail(self):
        def passes(measured, expected):
            return [ok for ok, _ in insn.compare(measured, expected)]

        self.assertEqual(passes({"a": 102.9}, {"a": 100}), [True])
        self.assertEqual(passes({"a": 103.1}, {"a": 100}), [False])
        self.assertEqual(passes({"a": 50}, {"a": 100}), [True])
        self.assertEqual(passes({}, {"a": 100}), [False])
        self.assertEqual(passes({"a": 100}, {}), [False])


def main():
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
    bad = len(result.failures) + len(result.errors)
    print(f"bench: {result.testsRun - bad} passed, {bad} failed, {len(result.skipped)} skipped")
    return 1 if bad or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
