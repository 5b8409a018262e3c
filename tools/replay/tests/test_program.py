# SPDX-License-Identifier: GPL-2.0
"""kvctx-replay as a whole, over a tenant in memory (fake_store.h) that fails on demand.

If the environment names a file in TRACE, its requests are played, too.
"""
import errno
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
import unittest

import model
import program

TRACE = os.environ.get("TRACE")
NODE = "/dev/kvctx/pool0/tenant0"


class Case(program.Case):
    """Ways to play on the tenant."""

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
                         [("store", one, 1), ("store", two, 2), ("store", three, 3),
                          ("load", one, 0), ("load", two, 0)])
        self.assertEqual([(row[0], row[2]) for row in rows[5:]], [("store", 3), ("store", 4)])

    @unittest.skipUnless(TRACE, "TRACE names no file")
    def test_named_trace(self):
        for limit in (1000, None):
            requests = model.read_trace(TRACE, limit)
            args = ["--requests", str(limit)] if limit else []
            figures = self.replay("--trace", TRACE, "--verify", *args, page_size="65")
            self.assertEqual(figures["pages_hit"], model.unbounded_hits(requests))
            self.assertEqual(figures["pages_referenced"], sum(len(ids) for ids in requests))


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


class Interface(program.Both, Case):
    """Exit statuses, messages, files and signals."""

    PLAYED = "--device /dev/x"
    WRONG = [
        ("--trace t", "nothing to play against: give --device (or only --dump-trace)"),
        ("--generate 5", "nothing to play against: give --device (or only --dump-trace)"),
        ("--trace t --device", "option '--device' requires an argument"),
        ("--trace t --dump-trace o --json j", "--json: needs --device"),
        ("--trace t --device d --dump-trace - --json -", "--json, --dump-trace: only one of them can be "),
        ("--trace t --device d --depth none", "--depth: 'none' is not a number"),
        ("--trace t --device d --depth 0", "--depth: '0' is not within 1..65536"),
        ("--trace t --device d --depth 65537", "--depth: '65537' is not within 1..65536"),
        ("--trace t --device d --arena 0", "--arena: '0' is not within 1..1099511627776"),
        ("--trace t --device d --stall 0", "--stall: '0' is not within 1..86400"),
        ("--trace t --device d --lease-ms 0", "--lease-ms: '0' is not within 1..4294967295"),
        # These are kvctx-simulate's
        ("--simulate", "unrecognized option '--simulate'"),
        ("--trace t --device d --simulate", "unrecognized option '--simulate'"),
        ("--trace t --device d --capacity 5%", "unrecognized option '--capacity'"),
        ("--trace t --device d --segment-size 1M", "unrecognized option '--segment-size'"),
        ("--trace t --device d --members 1", "unrecognized option '--members'"),
        ("--trace t --device d --no-match", "unrecognized option '--no-match'"),
    ]

    def test_no_device(self):
        for code, status in ((errno.ENOENT, 3), (errno.ENXIO, 3), (errno.ENODEV, 3), (errno.EACCES, 3),
                             (errno.EPERM, 3), (errno.ENOTTY, 3), (errno.ENOMEM, 1), (errno.EBADFD, 1)):
            with self.subTest(code=code):
                _, told = self.run_program("--generate", "5", "--device", NODE, fake={"open": code}, status=status)
                self.assertIn(f"kvctx-replay: {NODE}: {os.strerror(code)}", told)

    def test_sizes_that_the_device_refuses(self):
        for args in (["--page-size", "129M"], ["--depth", "5000"], ["--page-size", "4097"]):
            _, told = self.run_program("--generate", "5", "--device", NODE, *args, status=2,
                                       fake={"arena_max": 4096})
            self.assertIn(args[0], told)

    def test_manual_names_every_figure(self):
        self.check_figures(set(self.replay("--generate", "5")) - {"told"})

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

    def interrupt(self, number):
        args = [program.PROGRAM, "--generate", "20000", "--device", NODE, "--page-size", "64", "--json", self.json]
        fake = {"slow": 2000, "state": self.path("state")}
        master, slave = pty.openpty()   # it tells oftener there
        with subprocess.Popen(args, env=self.env(fake), stdout=subprocess.PIPE, stderr=slave, text=True) as process:
            os.close(slave)
            limit = threading.Timer(120, process.kill)
            limit.start()
            told = b""
            while not re.search(rb"[1-9]\d*/20000 requests", told):
                told += os.read(master, 4096)
            process.send_signal(number)
            told += self.read_terminal(master)
            out = process.stdout.read()
            limit.cancel()
        self.check_sane(process.returncode, told.decode())
        self.assertEqual(process.returncode, 130)
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
        command = [program.PROGRAM, "--generate", "40", "--device", NODE, "--page-size", "64", *args]
        with subprocess.Popen(command, env=self.env({"slow": 2000}), stdout=subprocess.DEVNULL,
                              stderr=slave) as process:
            os.close(slave)
            told = self.read_terminal(master)
        self.check_sane(process.returncode, told.decode())
        self.assertEqual(process.returncode, 0)
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
