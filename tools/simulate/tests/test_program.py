# SPDX-License-Identifier: GPL-2.0
"""kvctx-simulate as a whole, and kvctx-simulate-plot.

If the environment names a file in TRACE, its requests are played, too.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

import model
import program

TRACE = os.environ.get("TRACE")
PLOT = os.path.join(os.path.dirname(__file__), "..", "kvctx-simulate-plot")


class Simulation(program.Both, program.Case):
    """Caches of single pages are the model's, pools are the engine's, and all of it is told."""

    # Leading-page hit ratios of TRACE, if that is the conversation trace of the Mooncake release
    CONVERSATIONS = {
        "2%": (3655, 0.0758, 0.0793, 0.3114),
        "5%": (9139, 0.1750, 0.1958, 0.3664),
        "10%": (18279, 0.2480, 0.2789, 0.3664),
        "25%": (45697, 0.3262, 0.3535, 0.3664),
        "50%": (91395, 0.3554, 0.3631, 0.3664),
    }

    WRONG = [
        ("--trace t --capacity many", "--capacity: 'many' is neither N% nor a size nor a number of pages"),
        ("--trace t --capacity 0%", "--capacity: '0%' is out of range"),
        ("--trace t" + " --capacity 5%" * 65, "--capacity: '5%' is one too many"),
        ("--trace t --segment-size 1M1", "--segment-size: '1M1' is not a number"),
        ("--trace t --segment-size 100K", "--segment-size: '100K' is not within 262144..1073741824"),
        ("--trace t --segment-size 2G", "--segment-size: '2G' is not within 262144..1073741824"),
        ("--trace t --segment-size 1000001", "--segment-size: not a multiple of 4K"),
        ("--trace t --members 0", "--members: '0' is not within 1..64"),
        ("--trace t --members 65", "--members: '65' is not within 1..64"),
        # There is no device to play on, and kvctx-replay's are the others
        ("--trace t --simulate", "unrecognized option '--simulate'"),
        ("--trace t --device /dev/x", "unrecognized option '--device'"),
        ("--trace t --depth 5", "unrecognized option '--depth'"),
        ("--trace t --arena 5M", "unrecognized option '--arena'"),
        ("--trace t --lease-ms 5", "unrecognized option '--lease-ms'"),
        ("--trace t --stall 5", "unrecognized option '--stall'"),
        ("--trace t --verify", "unrecognized option '--verify'"),
    ]

    def test_table_of_the_manual_page(self):
        """What the page shows is what its command prints, but for the speed."""
        with open(program.MAN_PAGE, encoding="utf-8") as page:
            shown = re.search(r"^\.SH TABLE\n\.EX\n\$ kvctx-simulate (.*)\n((?s:.*?))^\.EE", page.read(), re.M)
        args, table = (text.replace("\\-", "-") for text in shown.groups())
        told, _ = self.run_program("--no-progress", *args.split())
        speed = re.compile(r"^(  prefix .*?) +[\d.]+$", re.M)
        self.assertEqual(speed.sub(r"\1", told), speed.sub(r"\1", table))

    def simulate(self, *args, status=0):
        """The rows of the JSON, and what was told on (stdout, stderr)."""
        out, told = self.run_program("--json", self.json, *args, status=status)
        with open(self.json, encoding="utf-8") as report:
            rows = json.load(report)
        for row in rows:
            self.check_row(row)
        return rows, out, told

    def check_row(self, row):
        references = row["pages_referenced"]
        self.assertAlmostEqual(row["prefix_hit_ratio"], row["pages_hit"] / references, places=5)
        self.assertEqual(row["pages_hit"] + row["pages_stored"] + row["dedup_pages"] + row["pages_refused"], references)
        self.assertLessEqual(row["pages_stored"] - row["pages_evicted"], row["pool_pages"])
        self.assertEqual(row["pool_pages"], row["segments"] * row["segment_pages"])
        self.assertLessEqual(abs(row["pool_pages"] - row["capacity_pages"]), row["segment_pages"] / 2)
        padded = (row["page_size"] + 4095) // 4096 * 4096
        self.assertEqual(row["host_bytes"], row["pages_stored"] * padded)
        self.assertEqual(row["reclaim_bytes"], row["pages_moved"] * padded)
        written = row["host_bytes"] + row["reclaim_bytes"] + row["summary_bytes"]
        self.assertAlmostEqual(row["write_amplification"], written / row["host_bytes"], places=5)
        self.assertGreater(row["summary_bytes"], 0)
        self.assertGreater(row["pages_per_second"], 0)

    def test_pages_against_model(self):
        for seed in (1, 2):
            path = self.generated(300, seed=seed)
            requests = model.read_trace(path)
            references = sum(len(ids) for ids in requests)
            distinct = len({page for ids in requests for page in ids})
            capacities = {"40": 40, "150": 150, "2.5%": distinct // 40, "1M": 16, "100%": distinct}
            args = [word for text in capacities for word in ("--capacity", text)]
            rows, _, _ = self.simulate("--trace", path, *args, "--page-size", "64K", "--segment-size", "256K")
            self.assertEqual([row["capacity"] for row in rows], list(capacities))
            for row in rows:
                capacity = capacities[row["capacity"]]
                self.assertEqual((row["capacity_pages"], row["pages_distinct"]), (capacity, distinct))
                for policy in ("fifo", "lru", "optimum"):
                    hits = model.page_hits(requests, capacity, policy)
                    self.assertAlmostEqual(row[policy + "_hit_ratio"], hits / references, places=5)
                self.assertAlmostEqual(row["unbounded_hit_ratio"], model.unbounded_hits(requests) / references,
                                       places=5)

    def test_same_page_twice(self):
        path = self.write("twice", '{"hash_ids": [1, 1, 2, 3, 2]}\n' * 2 +
                          '{"hash_ids": [4, 4, 3, 4]}\n{"hash_ids": [1, 2]}\n')
        requests = model.read_trace(path)
        for capacity in (4, 5):
            rows, _, _ = self.simulate("--trace", path, "--capacity", str(capacity))
            for policy in ("fifo", "lru", "optimum"):
                self.assertAlmostEqual(rows[0][policy + "_hit_ratio"], model.page_hits(requests, capacity, policy) / 16,
                                       places=5)

    def test_capacities(self):
        rows, out, _ = self.simulate("--generate", "400", "--capacity", "10%", "--capacity", "200%")
        self.assertEqual([(row["capacity"], row["policy"]) for row in rows], [("10%", "prefix"), ("200%", "prefix")])
        self.assertEqual([row["pages_refused"] for row in rows], [0, 0])
        self.assertGreater(rows[0]["pages_evicted"], 0)
        self.assertEqual(rows[1]["prefix_hit_ratio"], rows[1]["unbounded_hit_ratio"])
        self.assertEqual((rows[1]["pages_evicted"], rows[1]["pages_moved"]), (0, 0))
        self.assertEqual(len(re.findall(r"^  prefix +0\.\d{4} ", out, re.M)), 2)

    def test_usual_capacities(self):
        rows, _, _ = self.simulate("--generate", "100")
        self.assertEqual([row["capacity"] for row in rows], list(self.CONVERSATIONS))

    def test_geometry(self):
        rows, out, _ = self.simulate("--generate", "300", "--capacity", "30%", "--page-size", "64K",
                                     "--segment-size", "1M", "--members", "3")
        row = rows[0]
        self.assertEqual((row["members"], row["segment_size"], row["segment_pages"]), (3, 1 << 20, 15))
        self.assertIn(f"Pool of {row['pool_pages']} pages: {row['segments']} segments of 1.0 MiB for 15 pages", out)
        for args, why in ((["--capacity", "3"], "--capacity 3: "), (["--page-size", "256K", "--segment-size", "256K"],
                          "--page-size: "), (["--page-size", "129M"], "--page-size: "),
                          (["--capacity", "1K"], "--capacity 1K: "),
                          (["--members", "64", "--capacity", "200"], "--capacity 200: ")):
            _, told = self.run_program("--generate", "50", *args, status=2)
            self.assertIn(why, told)

    def test_flushed_in_the_end(self):
        """Pages in a segment that is not full have their summary counted."""
        sizes = []
        for pages in (1, 60):
            path = self.write("few", "".join(f'{{"hash_ids": [{page}]}}\n' for page in range(pages)))
            rows, _, _ = self.simulate("--trace", path, "--capacity", "1000", "--page-size", "1M",
                                       "--segment-size", "64M")
            self.assertEqual(rows[0]["pages_stored"], pages)
            sizes.append(rows[0]["summary_bytes"])
        # 112 bytes a page and 4 for its one chunk, in whole blocks
        self.assertEqual(sizes[1] - sizes[0], (112 + 4) * 60 // 4096 * 4096)

    def test_same_again(self):
        def figures():
            rows, _, _ = self.simulate("--generate", "300", "--capacity", "10%")
            for row in rows:
                del row["pages_per_second"]
            return rows
        self.assertEqual(figures(), figures())

    def test_generates_what_kvctx_replay_does(self):
        made = []
        for source in (["--generate", "300", "--seed", "3"], ["--trace", self.generated(300, seed=3), "--seed", "3"]):
            rows, _, _ = self.simulate(*source, "--capacity", "10%")
            made.append({key: rows[0][key] for key in set(rows[0]) - {"pages_per_second", "trace"}})
        self.assertEqual(made[0], made[1])

    def test_manual_names_every_figure(self):
        rows, _, _ = self.simulate("--generate", "50", "--capacity", "50%")
        self.check_figures(rows[0])

    def test_json_on_standard_output(self):
        out, told = self.run_program("--generate", "50", "--capacity", "50%", "--json", "-")
        self.assertEqual(len(json.loads(out)), 1)
        self.assertIn("optimum, page by page", told)

    def test_nothing_to_hit(self):
        path = self.write("once", "".join(f'{{"hash_ids": [{page}]}}\n' for page in range(100)))
        rows, out, _ = self.simulate("--trace", path, "--capacity", "50%")
        self.assertEqual((rows[0]["prefix_hit_ratio"], rows[0]["optimum_hit_ratio"]), (0, 0))
        self.assertRegex(out, r"optimum, page by page +0\.0000 +- +-\n")

    def test_interrupted(self):
        args = [program.PROGRAM, "--generate", "150000", "--capacity", "10%", "--capacity", "20%",
                "--json", self.json]
        with subprocess.Popen(args, env=self.env({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            self.assertRegex(process.stderr.readline(), r"^10%, \d+ % of all, (\?|\d+:\d\d) left\n$")
            process.send_signal(signal.SIGINT)
            out, told = process.communicate(timeout=60)
        self.check_sane(process.returncode, told)
        self.assertEqual((process.returncode, os.listdir(self.dir)), (130, []))
        self.assertIn("stopped before the end", out)

    @unittest.skipUnless(TRACE, "TRACE names no file")
    def test_named_trace(self):
        rows, _, _ = self.simulate("--trace", TRACE)
        self.assertEqual((rows[0]["pages_referenced"], rows[0]["pages_distinct"]), (288500, 182790))
        for row in rows:
            pages, fifo, lru, optimum = self.CONVERSATIONS[row["capacity"]]
            self.assertEqual(row["capacity_pages"], pages)
            for name, ratio in (("fifo", fifo), ("lru", lru), ("optimum", optimum), ("unbounded", 0.3664)):
                self.assertEqual(f"{row[name + '_hit_ratio']:.4f}", f"{ratio:.4f}")


class Plot(program.Case):
    """kvctx-simulate-plot draws what kvctx-simulate tells, or says why not and draws nothing."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "PATH", os.environ["PATH"])

    def plot(self, *args, status=0):
        return self.run_program(*args, status=status, program=PLOT)

    def fake_gnuplot(self, script):
        os.chmod(self.write("gnuplot", script), 0o755)
        os.environ["PATH"] = f"{self.dir}:{os.environ['PATH']}"

    def figures(self, *capacities):
        args = [word for text in capacities for word in ("--capacity", text)]
        self.run_program("--generate", "200", *args, "--json", self.json)
        return self.json

    def test_plot(self):
        self.assertIsNotNone(shutil.which("gnuplot"))
        text, told = self.plot(self.figures("20%", "7%"))
        self.assertEqual(told, "")
        self.assertTrue(text.startswith("<?xml") and text.rstrip().endswith("</svg>"))
        for name in ("prefix", "LRU, page by page", "optimum, page by page", "20%", "7%"):
            self.assertIn(f">{name}<", text)
        # One capacity is a picture, too; and what comes through a pipe
        pipe = f"{program.PROGRAM} --generate 50 --capacity 50% --json - | {PLOT}"
        text, _ = self.run_program("-c", pipe, program="sh")
        self.assertTrue(text.startswith("<?xml") and text.rstrip().endswith("</svg>"))

    def test_curves(self):
        """What gnuplot is told, which its fake gives back: the points are the figures, in the order of capacity."""
        self.fake_gnuplot("#!/bin/sh\ncat\n")
        told, _ = self.plot(self.figures("900", "7%"))
        with open(self.json, encoding="utf-8") as report:
            few, many = sorted(json.load(report), key=lambda row: row["capacity_pages"])
        lines = told.splitlines()
        curves = [line.split()[1] for line in lines if re.match(r"[\d.]+ 0\.\d+$", line)]
        self.assertEqual([float(ratio) for ratio in curves], [row[policy + "_hit_ratio"]
                         for policy in ("optimum", "lru", "prefix") for row in (few, many)])
        self.assertIn(f"set xtics ('7%%' {few['capacity_pages'] / few['pages_distinct'] * 100:.9g}, '900' "
                      f"{many['capacity_pages'] / many['pages_distinct'] * 100:.9g})", lines)

    def test_without_gnuplot(self):
        figures = self.figures("50%")
        interpreter = os.path.join(self.dir, "python3")
        os.symlink(sys.executable, interpreter)
        os.environ["PATH"] = self.dir
        out, told = self.run_program(PLOT, figures, status=1, program=interpreter)
        self.assertEqual((out, told), ("", "kvctx-simulate-plot: gnuplot cannot be run; is it installed?\n"))

    def test_gnuplot_fails(self):
        figures = self.figures("50%")
        self.fake_gnuplot("#!/bin/sh\necho half\nexit 4\n")
        out, told = self.plot(figures, status=1)
        self.assertEqual((out, told), ("", "kvctx-simulate-plot: gnuplot: status 4\n"))

    def test_no_figures(self):
        self.fake_gnuplot("#!/bin/sh\necho run\n")
        with open(self.figures("50%"), encoding="utf-8") as report:
            rows = json.load(report)
        label = json.dumps([dict(rows[0], capacity="5'; system 'x")])
        for text in ("", "{", "[]", "{}", '[{"capacity": "5%"}]', "[5]", label):
            out, told = self.plot(self.write("wrong", text), status=1)
            self.assertEqual(out, "")
            self.assertIn("kvctx-simulate-plot: no figures of kvctx-simulate: ", told)
        self.assertIn("none.json", self.plot(self.path("none.json"), status=2)[1])


if __name__ == "__main__":
    unittest.main()
