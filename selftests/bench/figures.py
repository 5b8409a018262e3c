# SPDX-License-Identifier: GPL-2.0
"""What the reports of both benches have in common: figures of a job of fio, of pairs of runs, and how they are shown.

Rates are in MB/s, latencies in microseconds, CPU time in seconds a GiB. A pair is (kvctx, raw): runs that followed each
other, each with a field cpu. None stands for what was not measured.
"""

import statistics

MISSED = 3      # exit status with --strict when a bar is missed
PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}    # as fio calls them


def quotient(a, b):
    return a / b if a is not None and b else None


def middle(values):
    """The median of what was measured"""
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def rate_of(side):
    """Of the part of fio's job that reads, or writes"""
    return side["io_bytes"] / side["runtime"] / 1000


def latency_of(side):
    """{percentile: us} of the same, of those that fio was asked for"""
    found = side["lat_ns"].get("percentile", {})
    return {p: found[key] / 1000 for p, key in PERCENTILES.items() if key in found}


def compare(pairs, value):
    """The fields of a row; @value takes the figure from a run. Ratios are medians of the pairs' ratios."""
    return {"pairs": len(pairs),
            "kvctx": middle(value(k) for k, _ in pairs), "raw": middle(value(r) for _, r in pairs),
            "ratio": middle(quotient(value(k), value(r)) for k, r in pairs),
            "kvctx_cpu": middle(k.cpu for k, _ in pairs), "raw_cpu": middle(r.cpu for _, r in pairs),
            "cpu_ratio": middle(quotient(k.cpu, r.cpu) for k, r in pairs)}


def show_size(n):
    return f"{n >> 20}M" if n >= 1 << 20 else f"{n >> 10}K"


def show(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def write(path, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
