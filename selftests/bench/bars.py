# SPDX-License-Identifier: GPL-2.0
"""The bars that kvctx has to clear beside raw io_uring, judged from the rows of the report.

A bar over several cases shows the worst of them, and how many of them meet it. A bar of which nothing was measured is
not met.
"""

import collections

KIB = 1 << 10
TARGETS = {"ssd": "SSD", "tcp": "NVMe/TCP", "null": "null_blk"}
THROUGHPUT = {"ssd": 0.98, "tcp": 0.98, "null": 0.95}
BOTH_CPUS = 0.6     # verified loads: the less busy of two CPUs beside the busier one, when both compute checksums
LINEAR = 1.5        # MATCH of 10,000 keys: so many times 100 MATCHes of 100 keys at most

Bar = collections.namedtuple("Bar", "text figure limit met where")


def over_cases(text, rows, field, limit, at_least):
    """Bar that every row's @field must clear."""
    found = [row for row in rows if row.get(field) is not None]
    if not found:
        return Bar(text, None, limit, False, "not measured")
    clears = (lambda v: v >= limit) if at_least else (lambda v: v <= limit)
    worst = (min if at_least else max)(found, key=lambda row: row[field])
    good = sum(1 for row in found if clears(row[field]))
    size = f"{worst['size'] // KIB}K"
    return Bar(text, worst[field], ("at least " if at_least else "at most ") + str(limit), good == len(found),
               f"{good} of {len(found)} cases; worst {worst['target']} {worst['case']} {size} batch {worst['batch']}")


def matrix(rows, op, segments=1):
    return [row for row in rows if row["case"] == op and row.get("segments") == segments]


def throughput(rows):
    for op in ("load", "store"):
        for target, limit in THROUGHPUT.items():
            yield over_cases(f"throughput, {op}, 64K and more, {TARGETS[target]}",
                             [r for r in matrix(rows, op) if r["target"] == target and r["size"] >= 64 * KIB],
                             "ratio", limit, True)
        yield over_cases(f"throughput, {op}, 16K, batch 16 and up",
                         [r for r in matrix(rows, op) if r["size"] == 16 * KIB and r["batch"] >= 16], "ratio", 0.9, True)
        yield over_cases(f"64 scattered segments, {op}, null_blk",
                         [r for r in matrix(rows, op, 64) if r["target"] == "null"], "ratio", 1.5, True)
        yield over_cases(f"instructions, {op}, 64K and more",
                         [r for r in matrix(rows, op) if r["size"] >= 64 * KIB], "insn_ratio", 1.0, False)


def one(rows, case):
    return next((row for row in rows if row["case"] == case), {})


def single(text, figure, limit, at_least=False):
    if figure is None:
        return Bar(text, None, limit, False, "not measured")
    return Bar(text, figure, ("at least " if at_least else "at most ") + str(limit),
               figure >= limit if at_least else figure <= limit, "")


def ratio(a, b):
    return a / b if a is not None and b else None


def verification(rows):
    by_cpus = [one(rows, f"verify-{n}cpu") for n in (1, 2)]
    yield single("verification beside crc32c() alone", by_cpus[0].get("ratio"), 1.1)
    yield single("verified loads, less busy CPU beside the other", by_cpus[1].get("cpu_share"), BOTH_CPUS, True)


def calls(rows):
    for what in ("match", "submit", "wait"):
        yield single(f"system calls for 1,000 pages: {what.upper()}", one(rows, f"syscalls-{what}").get("kvctx"), 1)
    yield single("system calls for 1,000 pages: all", one(rows, "syscalls-all").get("kvctx"), 3)
    hundred = one(rows, "match-100").get("kvctx")
    yield single("MATCH of 10,000 keys beside 100 of 100", ratio(one(rows, "match-10000").get("kvctx"),
                                                                 hundred and 100 * hundred), LINEAR)


def tails(rows):
    yield over_cases("p99.9 of loads beside a stream of stores", matrix(rows, "mixed-p99.9"), "ratio", 2.0, False)
    yield over_cases("p99 of loads beside another tenant's stores", matrix(rows, "flood-p99"), "ratio", 1.5, False)


def judge(rows):
    return [*throughput(rows), *verification(rows), *calls(rows), *tails(rows)]


def show(bars):
    lines = ["Bars"]
    for bar in bars:
        figure = "-" if bar.figure is None else f"{bar.figure:.3f}"
        lines.append(f"  {'met   ' if bar.met else 'MISSED'} {bar.text:48} {figure:>8}  {bar.limit}"
                     + (f"  ({bar.where})" if bar.where else ""))
    met = sum(1 for bar in bars if bar.met)
    lines.append(f"{met} of {len(bars)} bars met")
    return lines
