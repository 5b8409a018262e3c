# SPDX-License-Identifier: GPL-2.0
"""kvctx-replay as a whole, over a tenant in memory (fake_store.h) that fails on demand.

PROGRAM names the program. If the environment names a file in TRACE, its requests are played, too.
"""
import errno
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import model

PROGRAM = os.environ.get("PROGRAM", "build/asan/test/fake/kvctx-replay")
TRACE = os.environ.get("TRACE")
MAN_PAGE = os.path.join(os.path.dirname(__file__), "..", "kvctx-replay.1")
NODE = "/dev/kvctx/pool0/tenant0"
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "exitcode=99"}


class Case(unittest.TestCase):
    """A directory of its own, and ways to run the program in it."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name
        self.json = self.path("out.json")

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def env(self, fake):
        settings = ",".join(f"{key}={value}" for key, value in fake.items())
        return dict(os.environ, KVCTX_FAKE=settings, **SANITIZERS)

    def check_sane(self, status, text):
        self.assertNotRegex(text, "Sanitizer|runtime error|^fake: ")
        self.assertIn(status, (0, 1, 2, 3, 130), text)

    def run_program(self, *args, fake=None, status=0):
        """Run it and return what it wrote to (stdout, stderr)."""
        done = subprocess.run([PROGRAM, *args], env=self.env(fake or {}), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.check_sane(done.returncode, done.stderr)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def replay(self, *args, fake=None, status=0, page_size="1001"):
        """Play something on the node; returns its figures, with what it told on stderr under 'told'."""
        _, told = self.run_program("--device", NODE, "--page-size", page_size, "--json", self.json, *args,
                                   fake=fake, status=status)
        with open(self.json, encoding="utf-8") as report:
            figures = json.load(report)
        self.assertEqual(figures["good"], status == 0)
        self.check_sums(figures)
        return dict(figures, told=told)

    def check_sums(self, figures):
        """Every hit is loaded, lost, bad or failed; what is counted twice agrees."""
        ratio = figures["pages_hit"] / max(1, figures["pages_referenced"])
        self.assertAlmostEqual(figures["prefix_hit_ratio"], ratio, places=5)
        self.assertEqual(figures["load_us"]["count"], figures["pages_loaded"])
        self.assertEqual(figures["store_us"]["count"], figures["pages_stored"] + figures["dedup_pages"])
        self.assertEqual(figures["bytes_stored"], figures["pages_stored"] * figures["page_size"])
        self.assertEqual(sum(figures["errors_by_reason"].values()), figures["errors"])
        if figures["completed"]:
            done = (figures["pages_loaded"] + figures["lost_pages"] + figures["bad_pages"])
            self.assertLessEqual(done, figures["pages_hit"])
            self.assertGreaterEqual(done + figures["errors"], figures["pages_hit"])

    def generated(self, number=300, seed=1):
        path = self.path("trace.jsonl")
        self.run_program("--generate", str(number), "--seed", str(seed), "--dump-trace", path)
        return path

    def operations(self):
        """The fake's log: (what, key, depth hint, result) of each operation."""
        with open(self.path("log"), encoding="utf-8") as log:
            rows = [line.split() for line in log]
        return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]


class Hits(Case):
    """Hits are those of the rule, whatever the sizes and depths."""

    def test_generated_against_model(self):
        path = self.generated(1000)
        requests = model.read_trace(path)
        figures = self.replay("--generate", "1000", "--verify")
        self.assertEqual(figures["requests"], 1000)
        self.assertEqual(figures["pages_referenced"], sum(len(ids) for ids in requests))
        self.assertEqual(figures["pages_hit"], model.unbounded_hits(requests))
        self.assertEqual(figures["pages_loaded"], figures["pages_hit"])
        self.assertEqual(figures["bytes_loaded"], figures["pages_loaded"] * 1001)
        self.assertEqual(figures["pages_stored"], len({page for ids in requests for page in ids}))
        self.assertEqual(figures["wrong_pages"], 0)
        self.assertEqual(figures["errors"], 0)
        self.assertEqual((figures["pool"], figures["tenant"]), ("pool0", "tenant0"))
        self.assertEqual((figures["format"], figures["page_size"], figures["seed"]), (1, 1001, 1))
        from_file = self.replay("--trace", path, "--verify")
        self.assertEqual(from_file["pages_hit"], figures["pages_hit"])

    def test_depths_and_sizes(self):
        path = self.generated(120, seed=5)
        hits = model.unbounded_hits(model.read_trace(path))
        for args, size in ((["--depth", "1"], "1"), (["--depth", "2", "--arena", "1"], "4096"),
                           (["--depth", "300"], "7"), (["--arena", "20K"], "4097"), (["--depth", "33"], "64K")):
            with self.subTest(args=args, size=size):
                figures = self.replay("--trace", path, "--verify", *args, page_size=size)
                self.assertEqual((figures["pages_hit"], figures["wrong_pages"]), (hits, 0))

    def test_many_matches_a_request(self):
        path = self.generated(120, seed=6)
        hits = model.unbounded_hits(model.read_trace(path))
        for match_max in (1, 3, 10):
            figures = self.replay("--trace", path, "--verify", fake={"match_max": match_max, "nolease": match_max // 3})
            self.assertEqual(figures["pages_hit"], hits)

    def test_submit_takes_a_part(self):
        path = self.generated(120, seed=6)
        hits = model.unbounded_hits(model.read_trace(path))
        for partial in (1, 5):
            figures = self.replay("--trace", path, "--verify", fake={"partial": partial})
            self.assertEqual((figures["pages_hit"], figures["wrong_pages"]), (hits, 0))

    def test_arena_is_small(self):
        path = self.generated(60)
        hits = model.unbounded_hits(model.read_trace(path))
        figures = self.replay("--trace", path, "--verify", fake={"arena_max": 3 * 4096 + 5})
        self.assertEqual((figures["pages_hit"], figures["wrong_pages"]), (hits, 0))

    def test_first_requests_only(self):
        path = self.generated(300)
        hits = model.unbounded_hits(model.read_trace(path, 77))
        for source in (["--trace", path], ["--generate", "300"]):
            figures = self.replay(*source, "--requests", "77")
            self.assertEqual((figures["requests"], figures["pages_hit"]), (77, hits))

    def test_bounded_room(self):
        path = self.generated(400)
        requests = model.read_trace(path)
        for capacity in (500, 1500):
            hits, dedup = model.fifo_hits(requests, capacity)
            figures = self.replay("--trace", path, "--verify", "--depth", "1", fake={"capacity": capacity})
            self.assertEqual((figures["pages_hit"], figures["dedup_pages"]), (hits, dedup))
            self.assertLess(hits, model.unbounded_hits(requests))
            # Deeper, pages arrive in another order, and other ones go
            figures = self.replay("--trace", path, "--verify", fake={"capacity": capacity})
            self.assertEqual((figures["wrong_pages"], figures["errors"]), (0, 0))

    def test_pages_survive(self):
        path = self.generated(200)
        fake = {"state": self.path("state")}
        first = self.replay("--trace", path, "--verify", fake=fake)
        second = self.replay("--trace", path, "--verify", fake=fake)
        self.assertLess(first["pages_hit"], first["pages_referenced"])
        self.assertEqual(second["pages_hit"], second["pages_referenced"])
        self.assertEqual((second["pages_stored"], second["wrong_pages"]), (0, 0))

    def test_other_seed_or_size_is_another_keyspace(self):
        path = self.generated(100)
        fake = {"state": self.path("state")}
        hits = self.replay("--trace", path, "--verify", fake=fake)["pages_hit"]
        for args, size in ((["--seed", "2"], "1001"), ([], "1002")):
            figures = self.replay("--trace", path, "--verify", *args, fake=fake, page_size=size)
            self.assertEqual((figures["pages_hit"], figures["wrong_pages"]), (hits, 0))

    def test_same_page_twice(self):
        path = self.write("twice", '{"hash_ids": [5, 5, 6]}\n{"hash_ids": [5, 5, 6, 6, 7]}\n')
        figures = self.replay("--trace", path, "--verify", "--depth", "1", fake={"log": self.path("log")})
        self.assertEqual((figures["pages_hit"], figures["pages_stored"], figures["dedup_pages"]), (4, 3, 1))
        figures = self.replay("--trace", path, "--verify")
        self.assertEqual((figures["pages_hit"], figures["pages_stored"], figures["dedup_pages"]), (4, 3, 1))

    def test_order_and_depth_hints(self):
        path = self.write("order", '{"hash_ids": [1, 2, 3]}\n{"hash_ids": [1, 2, 9, 8]}\n')
        self.replay("--trace", path, "--depth", "1", fake={"log": self.path("log")})
        rows = self.operations()
        one, two, three = (row[1] for row in rows[:3])
        self.assertEqual([row[:3] for row in rows[:5]],
                         [("store", one, 1), ("store", two, 2), ("store", three, 3), ("load", one, 0), ("load", two, 0)])
        self.assertEqual([(row[0], row[2]) for row in rows[5:]], [("store", 3), ("store", 4)])

    @unittest.skipUnless(TRACE, "TRACE names no file")
    def test_named_trace(self):
        for limit in (1000, None):
            requests = model.read_trace(TRACE, limit)
            args = ["--requests", str(limit)] if limit else []
            figures = self.replay("--trace", TRACE, "--verify", *args, page_size="65")
            self.assertEqual(figures["pages_hit"], model.unbounded_hits(requests))
            self.assertEqual(figures["pages_referenced"], sum(len(ids) for ids in requests))


class Simulation(Case):
    """--simulate: caches of single pages are the model's, pools are the engine's, and all of it is told."""

    # Leading-page hit ratios of TRACE, if that is the conversation trace of the Mooncake release
    CONVERSATIONS = {
        "2%": (3655, 0.0758, 0.0793, 0.3114),
        "5%": (9139, 0.1750, 0.1958, 0.3664),
        "10%": (18279, 0.2480, 0.2789, 0.3664),
        "25%": (45697, 0.3262, 0.3535, 0.3664),
        "50%": (91395, 0.3554, 0.3631, 0.3664),
    }

    def simulate(self, *args, status=0):
        """The rows of the JSON, and what was told on (stdout, stderr)."""
        out, told = self.run_program("--simulate", "--json", self.json, *args, status=status)
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
            _, told = self.run_program("--generate", "50", "--simulate", *args, status=2)
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

    def test_manual_names_every_figure(self):
        rows, _, _ = self.simulate("--generate", "50", "--capacity", "50%")
        with open(MAN_PAGE, encoding="utf-8") as page:
            manual = page.read()
        for key in rows[0]:
            self.assertIn(key, manual)

    def test_json_on_standard_output(self):
        out, told = self.run_program("--generate", "50", "--simulate", "--capacity", "50%", "--json", "-")
        self.assertEqual(len(json.loads(out)), 1)
        self.assertIn("optimum, page by page", told)

    def test_nothing_to_hit(self):
        path = self.write("once", "".join(f'{{"hash_ids": [{page}]}}\n' for page in range(100)))
        rows, out, _ = self.simulate("--trace", path, "--capacity", "50%")
        self.assertEqual((rows[0]["prefix_hit_ratio"], rows[0]["optimum_hit_ratio"]), (0, 0))
        self.assertRegex(out, r"optimum, page by page +0\.0000 +- +-\n")

    def test_plot(self):
        self.assertIsNotNone(shutil.which("gnuplot"))
        picture = self.path("p.svg")
        self.simulate("--generate", "200", "--capacity", "20%", "--capacity", "7%", "--plot", picture)
        with open(picture, encoding="utf-8") as svg:
            text = svg.read()
        self.assertIn("</svg>", text)
        for name in ("prefix", "LRU, page by page", "optimum, page by page", "20%", "7%"):
            self.assertIn(name, text)
        # One capacity is a picture, too; and one on standard output is nothing else
        out, told = self.run_program("--generate", "50", "--simulate", "--capacity", "50%", "--plot", "-")
        self.assertTrue(out.startswith("<?xml") and out.rstrip().endswith("</svg>"))
        self.assertIn("LRU, page by page", told)

    def test_plot_without_gnuplot(self):
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        for search, script in ((self.dir, None), (f"{self.dir}:{path}", "#!/bin/sh\nexit 1\n")):
            os.environ["PATH"] = search
            if script:
                os.chmod(self.write("gnuplot", script), 0o755)
            out, told = self.run_program("--generate", "50", "--simulate", "--json", self.json, "--plot",
                                         self.path("p.svg"), status=1)
            self.assertIn("--plot: gnuplot cannot be run", told)
            self.assertEqual(out, "")
            self.assertFalse(os.path.exists(self.path("p.svg")) or os.path.exists(self.json))

    def test_plot_fails(self):
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.dir}:{path}"
        os.chmod(self.write("gnuplot", '#!/bin/sh\n[ "$1" = --version ] || { echo half; exit 1; }\n'), 0o755)
        _, told = self.run_program("--generate", "50", "--simulate", "--plot", self.path("p.svg"), status=1)
        self.assertIn("p.svg: Input/output error", told)
        self.assertEqual(os.listdir(self.dir), ["gnuplot"])

    def test_interrupted(self):
        args = [PROGRAM, "--generate", "150000", "--simulate", "--capacity", "10%", "--capacity", "20%",
                "--json", self.json, "--plot", self.path("p.svg")]
        with subprocess.Popen(args, env=self.env({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as program:
            self.assertRegex(program.stderr.readline(), r"^10%, \d+ % of all, (\?|\d+:\d\d) left\n$")
            program.send_signal(signal.SIGINT)
            out, told = program.communicate(timeout=60)
        self.check_sane(program.returncode, told)
        self.assertEqual((program.returncode, os.listdir(self.dir)), (130, []))
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


class Faults(Case):
    """What goes wrong is seen, counted and told, and only what has to be makes the replay fail."""

    def test_lost_pages(self):
        figures = self.replay("--generate", "200", "--verify", fake={"enoent": 7})
        self.assertGreater(figures["lost_pages"], 50)
        self.assertEqual((figures["errors"], figures["wrong_pages"], figures["bad_pages"]), (0, 0, 0))
        # Stored again, so the next request finds them: as many hits as without any loss
        self.assertEqual(figures["pages_hit"], self.replay("--generate", "200")["pages_hit"])

    def test_bad_pages(self):
        figures = self.replay("--generate", "200", "--verify", fake={"ebadmsg": 100}, status=1)
        self.assertGreater(figures["bad_pages"], 5)
        self.assertEqual((figures["errors"], figures["wrong_pages"], figures["lost_pages"]), (0, 0, 0))
        self.assertEqual(figures["pages_hit"], self.replay("--generate", "200")["pages_hit"])
        self.assertIn("verification", figures["told"])

    def test_one_wrong_bit(self):
        figures = self.replay("--generate", "200", "--verify", fake={"flip": 300}, status=1)
        loads = figures["pages_loaded"]
        self.assertEqual(figures["wrong_pages"], loads // 300)
        told = re.findall(r"request \d+: page \d+ \(position \d+\): byte (\d+) is 0x(..) instead of 0x(..)",
                          figures["told"])
        self.assertEqual(len(told), figures["wrong_pages"])
        for number, (byte, found, wanted) in enumerate(told, 1):
            self.assertEqual(int(byte), (number * 300 * 7919 + 1000) % 1001)
            self.assertEqual(int(found, 16) ^ int(wanted, 16), 0x40)

    def test_memory_left_as_it_was(self):
        """A page that still lies in its slot from when it was stored is not taken for a loaded one."""
        path = self.write("again", '{"hash_ids": [1, 2, 3]}\n{"hash_ids": [1, 2, 3]}\n')
        figures = self.replay("--trace", path, "--verify", fake={"unread": 1}, status=1)
        self.assertEqual(figures["wrong_pages"], 3)

    def test_short_pages(self):
        figures = self.replay("--generate", "100", "--verify", fake={"short": 1}, status=1)
        self.assertEqual(figures["wrong_pages"], figures["pages_loaded"])
        self.assertIn("1000 bytes came instead of 1001", figures["told"])
        self.assertIn("further messages about pages are left out", figures["told"])
        self.assertLess(figures["told"].count("\n"), 30)

    def test_without_verify_bytes_are_not_looked_at(self):
        figures = self.replay("--generate", "100", fake={"flip": 1})
        self.assertEqual(figures["wrong_pages"], 0)

    def test_unverified(self):
        figures = self.replay("--generate", "100", fake={"unverified": 10})
        self.assertEqual(figures["unverified_pages"], figures["pages_loaded"] // 10)
        figures = self.replay("--generate", "100", "--verify", fake={"unverified": 10}, status=1)
        self.assertEqual(figures["unverified_pages"], figures["pages_loaded"] // 10)
        self.assertEqual(figures["wrong_pages"], 0)

    def test_io_errors(self):
        figures = self.replay("--generate", "200", "--verify", fake={"eio": 50, "store_eio": 500}, status=1)
        self.assertGreater(figures["errors"], 10)
        self.assertEqual(figures["errors_by_reason"], {"EIO": figures["errors"]})
        self.assertGreater(figures["dedup_pages"], 5)
        self.assertIn("(position", figures["told"])
        self.assertTrue(figures["completed"])

    def test_not_admitted(self):
        path = self.write("some", '{"hash_ids": [1, 2, 3, 4]}\n{"hash_ids": [1, 2, 3, 4]}\n')
        figures = self.replay("--trace", path, "--depth", "1", "--verify", fake={"unadmitted": 4})
        self.assertEqual((figures["pages_stored"], figures["unadmitted_pages"], figures["errors"]), (4, 1, 0))
        figures = self.replay("--generate", "100", "--verify", fake={"unadmitted": 10})
        done = figures["pages_stored"] + figures["dedup_pages"] + figures["unadmitted_pages"]
        self.assertEqual(done, figures["pages_referenced"] - figures["pages_loaded"])
        out, _ = self.run_program("--device", NODE, "--trace", path, "--depth", "1", fake={"unadmitted": 4})
        self.assertIn(", dedup 0, unadmitted 1, errors 0\n", out)

    def test_stores_are_tried_again(self):
        figures = self.replay("--generate", "100", "--verify", fake={"eagain": 5})
        self.assertGreater(figures["retries"], 100)
        self.assertEqual((figures["errors"], figures["wrong_pages"]), (0, 0))
        self.assertEqual(figures["pages_hit"], self.replay("--generate", "100")["pages_hit"])

    def test_stores_are_not_tried_for_ever(self):
        path = self.write("one", '{"hash_ids": [1, 2]}\n')
        figures = self.replay("--trace", path, "--stall", "1", fake={"eagain": 1}, status=1)
        self.assertEqual(figures["errors_by_reason"], {"EAGAIN": 2})

    def test_no_room(self):
        """Leases are over before stores begin, so a pool of a few pages serves even so."""
        figures = self.replay("--generate", "50", "--verify", fake={"capacity": 3})
        self.assertEqual(figures["errors"], 0)

    def test_read_only(self):
        figures = self.replay("--generate", "10", fake={"rdonly": 1}, status=1)
        self.assertEqual(figures["errors_by_reason"], {"EACCES": figures["pages_referenced"]})

    def test_flush_fails(self):
        figures = self.replay("--generate", "10", fake={"flush": errno.EIO}, status=1)
        self.assertEqual(figures["errors_by_reason"], {"EIO": 1})
        self.assertIn("flush", figures["told"])

    def test_hang(self):
        start = time.monotonic()
        figures = self.replay("--generate", "50", "--stall", "1", fake={"hang": 200}, status=1)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(figures["errors_by_reason"], {"ETIMEDOUT": 1})
        self.assertFalse(figures["completed"])

    def test_device_goes(self):
        figures = self.replay("--generate", "50", fake={"gone": 200}, status=1)
        self.assertEqual(figures["errors_by_reason"], {"ENODEV": 1})
        self.assertFalse(figures["completed"])
        self.assertGreater(figures["pages_stored"], 0)


class Interface(Case):
    """Exit statuses, messages, files and signals."""

    def test_no_device(self):
        for code, status in ((errno.ENOENT, 3), (errno.ENXIO, 3), (errno.ENODEV, 3), (errno.EACCES, 3),
                             (errno.EPERM, 3), (errno.ENOTTY, 3), (errno.ENOMEM, 1), (errno.EBADFD, 1)):
            with self.subTest(code=code):
                _, told = self.run_program("--generate", "5", "--device", NODE, fake={"open": code}, status=status)
                self.assertIn(f"kvctx-replay: {NODE}: {os.strerror(code)}", told)

    def test_usage(self):
        for args in ([], ["--trace", "x"], ["--generate", "5", "--device", NODE, "--depth", "none"]):
            _, told = self.run_program(*args, status=2)
            self.assertIn("--help", told)

    def test_sizes_that_the_device_refuses(self):
        for args in (["--page-size", "129M"], ["--depth", "5000"], ["--page-size", "4097"]):
            _, told = self.run_program("--generate", "5", "--device", NODE, *args, status=2,
                                       fake={"arena_max": 4096})
            self.assertIn(args[0], told)

    def test_help_version_and_manual_agree(self):
        out, _ = self.run_program("--help")
        options = set(re.findall(r"--([a-z-]+)", out))
        self.assertGreater(len(options), 14)
        with open(MAN_PAGE, encoding="utf-8") as page:
            manual = page.read().replace("\\-", "-")
        for option in options:
            self.assertIn("--" + option, manual)
        out, _ = self.run_program("--version")
        self.assertRegex(out, r"^kvctx-replay \d+\.\d+\.\d+\n$")

    def test_manual_names_every_figure(self):
        figures = self.replay("--generate", "5")
        with open(MAN_PAGE, encoding="utf-8") as page:
            manual = page.read()
        for key in set(figures) - {"told"}:
            self.assertIn(key, manual)

    def test_malformed_trace_does_nothing(self):
        path = self.write("bad", '{"hash_ids": [1]}\n{"hash_ids": [2]}\n{"hash_ids": [3, -4]}\n')
        self.write("out.json", "before")
        _, told = self.run_program("--trace", path, "--device", NODE, "--json", self.json,
                                   fake={"log": self.path("log")}, status=1)
        self.assertEqual(told, f"kvctx-replay: {path}:3: hash_ids[1] is negative\n")
        self.assertFalse(os.path.exists(self.path("log")))
        with open(self.json, encoding="utf-8") as old:
            self.assertEqual(old.read(), "before")
        self.assertEqual(self.replay("--trace", path, "--requests", "2")["requests"], 2)

    def test_no_trace(self):
        _, told = self.run_program("--trace", self.path("none"), "--device", NODE, status=1)
        self.assertIn(f"kvctx-replay: {self.path('none')}: No such file or directory", told)
        _, told = self.run_program("--trace", self.write("empty", ""), "--device", NODE, status=1)
        self.assertIn("empty:1: no request in the trace", told)

    def test_json_on_standard_output(self):
        out, told = self.run_program("--generate", "5", "--device", NODE, "--page-size", "9", "--json", "-")
        self.assertEqual(json.loads(out)["requests"], 5)
        self.assertIn("good: every page was right", told)

    def test_table(self):
        out, told = self.run_program("--generate", "5", "--device", NODE, "--page-size", "9")
        self.assertRegex(out, r"requests +5 of 5 ")
        self.assertRegex(out, r"p50 +p99 +p99\.9 +max")
        self.assertEqual(told, "")
        out, _ = self.run_program("--generate", "20", "--device", NODE, "--page-size", "9",
                                  fake={"store_eio": 2}, status=1)
        self.assertIn("x Input/output error", out)
        self.assertIn("FAILED", out)

    def test_json_appears_whole_or_not_at_all(self):
        _, told = self.run_program("--generate", "5", "--device", NODE, "--json", self.path("no/such/x.json"),
                                   fake={"log": self.path("log")}, status=1)
        self.assertIn("no/such/x.json", told)
        self.assertFalse(os.path.exists(self.path("log")))
        self.run_program("--generate", "5", "--device", NODE, "--json", self.json, fake={"open": 2}, status=3)
        self.assertEqual(os.listdir(self.dir), [])
        os.symlink(self.write("out.json", "before"), self.path("link"))
        self.run_program("--generate", "5", "--device", NODE, "--json", self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(sorted(os.listdir(self.dir)), ["link", "out.json"])
        with open(self.json, encoding="utf-8") as report:
            self.assertEqual(json.load(report)["requests"], 5)
        self.run_program("--generate", "5", "--device", NODE, "--json", "/dev/null")
        self.assertFalse(os.path.isfile("/dev/null"))

    def test_dump_trace(self):
        out, _ = self.run_program("--generate", "30", "--dump-trace", "-")
        again, _ = self.run_program("--generate", "30", "--dump-trace", "-")
        other, _ = self.run_program("--generate", "30", "--seed", "2", "--dump-trace", "-")
        self.assertEqual(out, again)
        self.assertNotEqual(out, other)
        self.assertEqual(len(out.splitlines()), 30)
        path = self.write("copy", out)
        copy, _ = self.run_program("--trace", path, "--requests", "10", "--dump-trace", "-")
        self.assertEqual(copy, "".join(out.splitlines(True)[:10]))

    def test_dump_trace_is_alone_on_standard_output(self):
        dump = ["--generate", "5", "--dump-trace", "-"]
        trace, _ = self.run_program(*dump)
        out, told = self.run_program(*dump, "--device", NODE, "--page-size", "9")
        self.assertEqual(out, trace)
        self.assertIn("good: every page was right", told)
        out, told = self.run_program(*dump, "--simulate", "--capacity", "50%")
        self.assertEqual(out, trace)
        self.assertIn("LRU, page by page", told)

    def interrupt(self, number):
        args = [PROGRAM, "--generate", "20000", "--device", NODE, "--page-size", "64", "--json", self.json]
        fake = {"slow": 2000, "state": self.path("state")}
        master, slave = pty.openpty()   # it tells oftener there
        with subprocess.Popen(args, env=self.env(fake), stdout=subprocess.PIPE, stderr=slave, text=True) as program:
            os.close(slave)
            limit = threading.Timer(120, program.kill)
            limit.start()
            told = b""
            while not re.search(rb"[1-9]\d*/20000 requests", told):
                told += os.read(master, 4096)
            program.send_signal(number)
            told += self.read_terminal(master)
            out = program.stdout.read()
            limit.cancel()
        self.check_sane(program.returncode, told.decode())
        self.assertEqual(program.returncode, 130)
        self.assertIn("stopped before the end", out)
        with open(self.json, encoding="utf-8") as report:
            return json.load(report)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            figures = self.interrupt(number)
            self.assertFalse(figures["completed"])
            self.assertLess(figures["requests"], 20000)
            self.assertGreater(figures["pages_stored"] + figures["pages_loaded"], 0)
            self.assertEqual(figures["errors"], 0)
            # What was stored was flushed, too
            self.assertGreater(os.path.getsize(self.path("state")), figures["pages_stored"] * 64)
            os.unlink(self.path("state"))

    def read_terminal(self, master):
        """What is written to its other side until that is closed."""
        told = b""
        try:
            while chunk := os.read(master, 4096):
                told += chunk
        except OSError:     # how a terminal says so
            pass
        os.close(master)
        return told

    def on_terminal(self, *args):
        """What the program writes to a terminal on stderr."""
        master, slave = pty.openpty()
        command = [PROGRAM, "--generate", "40", "--device", NODE, "--page-size", "64", *args]
        with subprocess.Popen(command, env=self.env({"slow": 2000}), stdout=subprocess.DEVNULL,
                              stderr=slave) as program:
            os.close(slave)
            told = self.read_terminal(master)
        self.check_sane(program.returncode, told.decode())
        self.assertEqual(program.returncode, 0)
        return told.decode()

    def test_progress_on_a_terminal(self):
        told = self.on_terminal()
        self.assertRegex(told, r"\r\x1b\[K\d+/40 requests, \d+\.\d % hit, \d+\.\d MB/s, \d+:\d\d left")
        self.assertTrue(told.endswith("\r\x1b[K"), repr(told[-80:]))
        self.assertNotIn("\n", told)
        self.assertEqual(self.on_terminal("--no-progress"), "")

    def test_progress_elsewhere(self):
        _, told = self.run_program("--generate", "200", "--device", NODE, "--page-size", "64", "--depth", "1",
                                   fake={"slow": 1500})
        self.assertRegex(told, r"^(\d+/200 requests, \d+\.\d % hit, \d+\.\d MB/s, (\?|\d+:\d\d) left\n)+$")


if __name__ == "__main__":
    unittest.main()
