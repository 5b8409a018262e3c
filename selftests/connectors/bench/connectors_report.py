# SPDX-License-Identifier: GPL-2.0
"""From the runs of the bench of connectors to rows, bars, table and picture.

A record is what one run measured of one operation: {case, size, side, pair, op, rate, cpu}. rate is in MB/s, of lookups
in keys a second, of first tokens in milliseconds; cpu in seconds a GiB, of lookups None. Runs of one pair number follow
each other. A row compares one side of ours with one of theirs, at one operation of one case: its ratio is the median
of the pairs' ratios, and above 1 kvctx is better, also where less is better.
"""

import collections
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
# pylint: disable=wrong-import-position
from bars import Bar                            # noqa: E402
import sides                                    # noqa: E402
from sides import KIB, MIB                      # noqa: E402

UNITS = {"store": "MB/s", "load": "MB/s", "lookup": "keys/s", "first token": "ms"}
LESS_IS_BETTER = {"first token"}
LOAD_MEDIAN, LOAD_EACH, LOAD_RAW = 1.0, 0.95, 0.9
STORE = {64 * KIB: 5.0, MIB: 1.5, 8 * MIB: 1.0}
STORE_RAW = 0.8
LOOKUP = 5.0
CPU = 1.0               # of theirs, our checksum's own taken off
ENOUGH = 9              # pairs


def middle(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio(op, ours, theirs):
    return theirs / ours if op in LESS_IS_BETTER else ours / theirs


def kinds(parts):
    """{(part, side): Side}"""
    return {(part.name, side.name): side for part in parts for side in part.sides}


def rows_of(records, parts=tuple(sides.PARTS)):
    """A row for each of ours and each competitor, raw io_uring among them, at each operation of each case"""
    found, sizes = collections.defaultdict(dict), {}
    for r in records:
        found[r["case"], r["op"], r["side"]][r["pair"]] = r
        sizes[r["case"]] = r["size"]
    rows = []
    for part in parts:
        for case in (c.name for c in part.cases):
            for op in UNITS:
                for ours in (s for s in part.sides if s.kind == sides.OURS):
                    for theirs in (s for s in part.sides if s.kind != sides.OURS):
                        mine, other = found.get((case, op, ours.name)), found.get((case, op, theirs.name))
                        row = mine and other and row_of(case, op, sizes[case], ours, theirs, mine, other)
                        if row:
                            rows.append(row)
    return rows


def row_of(case, op, size, ours, theirs, mine, other):
    pairs = [(mine[n], other[n]) for n in sorted(mine) if n in other]
    if not pairs:
        return None
    return {"case": case, "op": op, "size": size, "ours": middle(m["rate"] for m, _ in pairs),
            "theirs": middle(o["rate"] for _, o in pairs), "their_name": theirs.name,
            "ratio": statistics.median(ratio(op, m["rate"], o["rate"]) for m, o in pairs),
            "our_cpu": middle(m["cpu"] for m, _ in pairs), "their_cpu": middle(o["cpu"] for _, o in pairs),
            "our_name": ours.name, "unit": UNITS[op], "pairs": len(pairs), "direct": theirs.direct}


# Bars

def best(rows):
    """Of each case and operation of one of ours, the competitor that is best, without raw and the page cache"""
    worst = {}
    for row in rows:
        if row["their_name"] != sides.RAW_SIDE.name and row["direct"]:
            key = row["case"], row["op"]
            worst[key] = min(worst.get(key, row), row, key=lambda r: r["ratio"])
    return list(worst.values())


def each(text, rows, figure, limit, at_least=True):
    """Bar that every row has to clear; the worst is shown."""
    if not rows:
        return Bar(text, None, limit, False, "not measured")
    worst = (min if at_least else max)(rows, key=figure)
    good = sum(1 for row in rows if (figure(row) >= limit if at_least else figure(row) <= limit))
    few = min(row["pairs"] for row in rows)
    where = f"{good} of {len(rows)} cases; worst {worst['case']} {worst['op']} beside {worst['their_name']}"
    return Bar(text, figure(worst), ("at least " if at_least else "at most ") + str(limit), good == len(rows),
               where + (f"; {few} pairs only" if few < ENOUGH else ""))


def of_ratio(row):
    return row["ratio"]


def of_median(text, rows, limit):
    if not rows:
        return Bar(text, None, limit, False, "not measured")
    figure = statistics.median(map(of_ratio, rows))
    return Bar(text, figure, f"at least {limit}", figure >= limit, f"median of {len(rows)} cases")


def processors(text, rows, crc):
    """CPU a GiB less @crc, the seconds that the checksum of a GiB takes, beside the same competitor's"""
    known = [row for row in rows if row["our_cpu"] is not None and row["their_cpu"]]
    return each(text, known, lambda row: (row["our_cpu"] - crc) / row["their_cpu"], CPU, at_least=False)


def judge(rows, crc, parts=("lmcache", "lookup", "sglang")):
    """The bars of @parts"""
    judged = []
    for part in (p for p in ("lmcache", "sglang") if p in parts):
        for name in (sides.PROCESS, sides.DAEMON):
            mine = [r for r in rows if r["our_name"] == name and r["case"].startswith(part + ".")]
            beside = best(mine)
            loads, stores = ([r for r in beside if r["op"] == op] for op in ("load", "store"))
            raw = [r for r in mine if r["their_name"] == sides.RAW_SIDE.name]
            head = f"{part}, {name}"
            judged.append(of_median(f"{head}: load, best of theirs, median", loads, LOAD_MEDIAN))
            judged.append(each(f"{head}: load, best of theirs", loads, of_ratio, LOAD_EACH))
            judged.append(each(f"{head}: load, raw io_uring", [r for r in raw if r["op"] == "load"], of_ratio,
                               LOAD_RAW))
            for size, limit in STORE.items():
                judged.append(each(f"{head}: store {show_size(size)}, best of theirs",
                                   [r for r in stores if r["size"] == size], of_ratio, limit))
            judged.append(each(f"{head}: store, raw io_uring", [r for r in raw if r["op"] == "store"], of_ratio,
                               STORE_RAW))
            judged.append(processors(f"{head}: CPU a GiB less the checksum's", loads + stores, crc))
    for name in (sides.PROCESS, sides.DAEMON) if "lookup" in parts else ():
        judged.append(each(f"lookup of {sides.LOOKUPS} keys, {name}",
                           best([r for r in rows if r["our_name"] == name and r["case"].startswith("lookup.")]),
                           of_ratio, LOOKUP))
    return judged


# What people read

def show_size(n):
    return "-" if not n else f"{n >> 20}M" if n >= MIB else f"{n >> 10}K"


def show(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def table(rows):
    lines = [f"{'case':18} {'op':11} {'size':>5} {'ours':24} {'':>10} {'theirs':24} {'':>10} {'unit':6} {'ratio':>7} "
             f"{'cpu/GiB':>8} {'theirs':>7} {'pairs':>5}"]
    for r in rows:
        digits = 0 if r["op"] == "lookup" else 1
        lines.append(f"{r['case']:18} {r['op']:11} {show_size(r['size']):>5} {r['our_name']:24} "
                     f"{show(r['ours'], digits):>10} {r['their_name']:24} {show(r['theirs'], digits):>10} "
                     f"{r['unit']:6} {r['ratio']:>7.2f} "
                     f"{show(r['our_cpu'], 3):>8} {show(r['their_cpu'], 3):>7} {r['pairs']:>5}")
    lines.append("ratio: median over the pairs, above 1 kvctx is better. kvctx verifies what it loads and "
                 "checksums what it stores, within a\nbounded pool, and what is found after a crash is whole; the others "
                 "do none of it. fs, fs_native and file grow until\nthe disk is full, nixl has a fixed number of files and "
                 "its index in memory. None of them flushes.")
    return lines


def bar_lines(judged):
    lines = ["Bars"]
    for bar in judged:
        figure = "-" if bar.figure is None else f"{bar.figure:.2f}"
        lines.append(f"  {'met   ' if bar.met else 'MISSED'} {bar.text:58} {figure:>7}  {bar.limit}"
                     + (f"  ({bar.where})" if bar.where else ""))
    return lines + [f"{sum(1 for bar in judged if bar.met)} of {len(judged)} bars met"]


def picture(rows, out):
    """Lines for gnuplot: of loads and of stores, kvctx in process over each competitor, by case"""
    lines = ["set terminal svg noenhanced size 1100,460 font 'sans,11' background 'white'", f"set output '{out}'",
             "set multiplot layout 1,2", "set style data histogram", "set style fill solid 0.8", "set boxwidth 0.9",
             "set logscale y", "set grid ytics", "set ylabel 'kvctx in process, theirs = 1'", "set xtics rotate by -30",
             "set key top right"]
    for op in ("load", "store"):
        mine = [r for r in rows if r["op"] == op and r["our_name"] == sides.PROCESS]
        if not mine:
            continue
        names, cases = sorted({r["their_name"] for r in mine}), list(dict.fromkeys(r["case"] for r in mine))
        at = {(r["case"], r["their_name"]): r["ratio"] for r in mine}
        lines.append(f"set title '{op}'")
        lines.append("plot 1 lc rgb 'gray' with lines notitle, " + ", ".join(
            f"'-' using 2:xtic(1) title '{name}'" for name in names))
        for name in names:
            lines += [f"{case} {at[case, name]:.4f}" if (case, name) in at else f"{case} NaN" for case in cases] + ["e"]
    return lines + ["unset multiplot"]
