# SPDX-License-Identifier: GPL-2.0
"""What the tests of whole programs share.

The environment names the program in PROGRAM, and in REPLAY a kvctx-replay that writes traces, unless it is one.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["PROGRAM"]
REPLAY = os.environ.get("REPLAY", PROGRAM)
NAME = os.path.basename(PROGRAM)
MAN_PAGE = os.path.join(os.path.dirname(__file__), "../..", NAME.removeprefix("kvctx-"), NAME + ".1")
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

    def run_program(self, *args, fake=None, status=0, program=PROGRAM):
        """Run it and return what it wrote to (stdout, stderr)."""
        done = subprocess.run([program, *args], env=self.env(fake or {}), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.check_sane(done.returncode, done.stderr)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def generated(self, number=300, seed=1):
        """A trace that kvctx-replay has written."""
        path = self.path("trace.jsonl")
        self.run_program("--generate", str(number), "--seed", str(seed), "--dump-trace", path, program=REPLAY)
        return path


class Both:
    """Of a Case, for both programs: what is wrong to give is refused, and the program and its manual page say the same.

    PLAYED is what has to be given beside the requests; WRONG is what this one may not be given, and what it tells then.
    """
    PLAYED = ""
    WRONG_REQUESTS = (
        ("", "nothing to play: give --trace or --generate"),
        ("--trace t --generate 5", "--trace, --generate: only one of them"),
        ("--generate 0", "--generate: '0' is not within 1..10000000"),
        ("--generate 10000001", "--generate: '10000001' is not within 1..10000000"),
        ("--generate five", "--generate: 'five' is not a number"),
        ("--generate -5", "--generate: '-5' is not a number"),
        ("--generate 5 --load nothing", "--load: 'nothing' is no load; there are conversations, "),
        ("--trace t --load documents", "--load: needs --generate"),
        ("--trace t --requests 0", "--requests: '0' is not within 1.."),
        ("--trace t --requests 9223372036854775808", "--requests: '9223372036854775808' is not within 1.."),
        ("--trace t --seed -1", "--seed: '-1' is not a number"),
        ("--trace t --seed 18446744073709551616", "--seed: '18446744073709551616' is not within 0.."),
        ("--trace t --page-size 0", "--page-size: '0' is not within 1..1073741824"),
        ("--trace t --page-size 2G", "--page-size: '2G' is not within 1..1073741824"),
        ("--trace t --page-size 12Q", "--page-size: '12Q' is not a number"),
        ("--trace t --unknown", "unrecognized option '--unknown'"),
        ("--trace t extra", "extra: unexpected argument"),
        ("--trace t --no-progress=1", "option '--no-progress' doesn't allow an argument"),
        ("--trace t --json", "option '--json' requires an argument"),
    )

    def test_usage(self):
        for options, why in [(f"{self.PLAYED} {options}", why) for options, why in self.WRONG_REQUESTS] + self.WRONG:
            with self.subTest(options=options):
                out, told = self.run_program(*options.split(), status=2)
                self.assertEqual(out, "")
                self.assertIn(why, told)
                self.assertIn(f"Try `{NAME} --help'", told)

    def test_help_at_once(self):
        out, _ = self.run_program("--seed", "5", "--help", "--unknown")
        self.assertTrue(out.startswith(f"Usage: {NAME} "))

    def manual(self):
        with open(MAN_PAGE, encoding="utf-8") as page:
            return page.read()

    def check_figures(self, figures):
        for key in figures:
            self.assertIn(key, self.manual())

    def test_help_version_and_manual_agree(self):
        out, _ = self.run_program("--help")
        options = set(re.findall(r"--([a-z-]+)", out))
        self.assertGreater(len(options), 14)
        for option in options:
            self.assertIn("--" + option, self.manual().replace("\\-", "-"))
        out, _ = self.run_program("--version")
        self.assertRegex(out, rf"^{NAME} \d+\.\d+\.\d+\n$")

    def test_manual_is_clean(self):
        self.assertIsNotNone(shutil.which("groff"))
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", MAN_PAGE], stderr=subprocess.PIPE, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = re.findall(r"^\.TP\n(\.B\w* .*)", self.manual(), re.M)
        self.assertEqual([row for row in rows if rows.count(row) > 1], [])
