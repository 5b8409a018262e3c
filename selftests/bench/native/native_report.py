# SPDX-License-Identifier: GPL-2.0
"""From the runs of the native bench to rows, table and bars.

A row's ratio is the median of the ratios of its pairs, kvctx over raw: the machine's speed changes between pairs more
than inside one. Its spread is half the width of the interval that holds that median with 95 %. Units are those of
figures.py.
"""

import re

from measure import is_latency

# by the path that cells.py sets
from bars import Bar
from figures import PERCENTILES, compare, quotient, show, show_size

KIB = 1 << 10
CPU = 1.15          # times raw, and the checksum's own: of each target, with verification and without
CPU_BARS = (("process", 0, "CPU a GiB, process"), ("process", 1, "CPU a GiB less the checksum's, process"),
            ("daemon", 1, "CPU a GiB less the checksum's, daemon"))
TAIL = 2.0          # p99.9 of loads beside stores
FLOOD = 1.5         # p99 of loads beside another tenant's stores
CALL = 50           # ns of the processor that a batch costs for each of its operations: in the library, in Python above it
# least ratio at depth 16 with verification, less the spread of the control
THROUGHPUT = (
    ("process, 64K and more", "process", lambda size: size >= 64 * KIB, 0.97),
    ("process, 16K", "process", lambda size: size < 64 * KIB, 0.9),
    ("daemon, 64K and more", "daemon", lambda size: size >= 64 * KIB, 0.9),
)


def tail_rank(n):
    """How many of @n values may be left out below, and above, of the interval that holds the median with 95 %"""
    ways, total, rank = 1, 1, 0
    while rank < n // 2:
        # of all 2**n ways to be above or below, those with at most @rank below
        if 2 * total > 0.05 * 2**n:
            break
        rank += 1
        ways = ways * (n - rank + 1) // rank
        total += ways
    return max(rank - 1, 0)


def spread(values):
    values = sorted(values)
    k = tail_rank(len(values))
    return (values[-1 - k] - values[k]) / 2


def pairs_of(runs):
    """[(kvctx, raw)], of the pairs that have both"""
    sides = {side: {r.pair: r for r in runs if r.side == side} for side in ("kvctx", "raw")}
    return [(run, sides["raw"][pair]) for pair, run in sorted(sides["kvctx"].items()) if pair in sides["raw"]]


def row_of(cell, op, pairs, value):
    return {"target": cell.target, "disk": cell.disk, "op": op, "size": cell.size, "depth": cell.depth,
            "segments": cell.segments, "verify": cell.verify,
            "spread": spread(quotient(value(k), value(r)) for k, r in pairs), **compare(pairs, value)}


def rows_of(cell, runs):
    pairs = pairs_of(runs)
    if not is_latency(cell):
        return [row_of(cell, cell.op, pairs, lambda run: run.rate)]
    return [row_of(cell, f"{cell.op}-{p}", pairs, lambda run, p=p: run.latency[p]) for p in PERCENTILES]


def control_spread(rows, row):
    """Of the control of the same operation on the same disk, of the nearest size"""
    found = [r for r in rows if r["target"] == "control" and r["disk"] == row["disk"] and r["op"] == row["op"]]
    if not found:
        return 0.0
    return min(found, key=lambda r: (abs(r["size"].bit_length() - row["size"].bit_length()), r["size"]))["spread"]


def over(text, figures, limit, at_least):
    """Bar that all of [(figure, allowance, row)] must clear; the worst is shown."""
    if not figures:
        return Bar(text, None, limit, False, "not measured")
    excess = (lambda f: f[0] + f[1] - limit) if at_least else (lambda f: limit - f[0])
    worst = min(figures, key=excess)
    good = sum(1 for f in figures if excess(f) >= 0)
    row = worst[2]
    where = f"{good} of {len(figures)} cells; worst {row['disk']} {row['op']} {row['size'] // KIB}K" + \
        (f" of {row['segments']}" if row["segments"] > 1 else "") + ("" if row["verify"] else " unverified") + \
        (f", spread {worst[1]:.3f}" if at_least else "")
    return Bar(text, worst[0], ("at least " if at_least else "at most ") + str(limit), good == len(figures), where)


def throughput(rows):
    for text, target, fits, limit in THROUGHPUT:
        for op in ("load", "store"):
            found = [(r["ratio"], control_spread(rows, r), r) for r in rows
                     if r["target"] == target and r["disk"] == "disk" and r["op"] == op and r["verify"]
                     and r["depth"] == 16 and r["segments"] == 1 and fits(r["size"])]
            yield over(f"throughput, {op}, {text}", found, limit, True)


def processors(rows, crc):
    """@crc: CPU seconds that CRC32C of a GiB takes"""
    found = []
    for r in rows:
        if r["disk"] == "memory" and r["raw_cpu"]:
            own = r["kvctx_cpu"] - (crc if r["verify"] else 0)
            # pairs where they are alike, medians where the checksum is taken off
            found.append((own / r["raw_cpu"] if r["verify"] else r["cpu_ratio"], 0, r))
    for target, verify, text in CPU_BARS:
        yield over(text, [f for f in found if (f[2]["target"], f[2]["verify"]) == (target, verify)], CPU, False)


def tails(rows):
    for target in ("process", "daemon"):
        for text, op, limit in (("p99.9 of loads beside stores", "mixed-p99.9", TAIL),
                                ("p99 of loads beside another tenant's", "flood-p99", FLOOD)):
            yield over(f"{text}, {target}",
                       [(r["ratio"], 0, r) for r in rows if r["op"] == op and r["target"] == target], limit, False)


def costs_of(text):
    """{what: ns a page} of what libkvctx/tests/cost.c and libkvctx/python/tests/cost.py print"""
    return {what: float(ns) for what, ns in re.findall(r"^(.+?) +([\d.]+) ns a page$", text, re.M)}


def calls(costs):
    """@costs: {language: costs_of()}"""
    for language in ("C", "Python"):
        text, found = f"ns an operation of a batch, {language}", costs.get(language)
        if not found:
            yield Bar(text, None, CALL, False, "not measured")
            continue
        worst = max(found, key=found.get)
        good = sum(1 for ns in found.values() if ns < CALL)
        yield Bar(text, found[worst], f"below {CALL}", good == len(found), f"{good} of {len(found)} calls; worst {worst}")


def judge(rows, crc, costs):
    return [*throughput(rows), *processors(rows, crc), *tails(rows), *calls(costs)]


def table(rows):
    lines = [f"{'target':8} {'disk':6} {'op':13} {'size':>5} {'depth':>5} {'segs':>4} {'crc':>3} {'pairs':>5} {'kvctx':>8} "
             f"{'raw':>8} {'ratio':>6} {'spread':>6} {'cpu/GiB':>8} {'raw':>6} {'ratio':>6}"]
    for r in rows:
        lines.append(f"{r['target']:8} {r['disk']:6} {r['op']:13} {show_size(r['size']):>5} {r['depth']:>5} "
                     f"{r['segments']:>4} {r['verify']:>3} {r['pairs']:>5} {r['kvctx']:>8.1f} {r['raw']:>8.1f} "
                     f"{r['ratio']:>6.3f} {r['spread']:>6.3f} {show(r['kvctx_cpu'], 3):>8} {show(r['raw_cpu'], 3):>6} "
                     f"{show(r['cpu_ratio'], 2):>6}")
    lines.append("load, store: MB/s; latency (alone), mixed (beside stores) and flood (of another tenant): us. crc 1: kvctx verifies, raw never does.")
    return lines
