# SPDX-License-Identifier: GPL-2.0
"""Plugin of pytest: TAP, as the scripts here print and lib.sh's program() reads it.

A line a test, what a failed one has to say before it, and the totals when pytest came to its end.
"""
import os

LINES = 30  # of a failure's text

counts = {"passed": 0, "failed": 0, "skipped": 0}


def test_name(report):
    path, _, rest = report.nodeid.partition("::")
    return f"{os.path.basename(path)[:-3]}.{rest}"


def say(report, outcome):
    counts[outcome] += 1
    number = sum(counts.values())
    if outcome == "failed":
        for line in report.longreprtext.splitlines()[-LINES:]:
            print(f"# {line}")
        print(f"not ok {number} {test_name(report)} ({report.when})")
    else:
        reason = f" # SKIP {report.longrepr[2]}" if outcome == "skipped" else ""
        print(f"ok {number} {test_name(report)}{reason}", flush=True)


def pytest_runtest_logreport(report):
    """A test passes by its body; what goes before and after it can fail or skip it."""
    if report.failed or report.skipped or report.when == "call":
        say(report, report.outcome)


def pytest_collectreport(report):
    if report.failed:
        say(report, "failed")


def pytest_sessionfinish(exitstatus):
    if exitstatus in (0, 1):  # passed, or failed
        print("# Totals: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
