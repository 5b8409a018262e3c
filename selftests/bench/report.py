#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Make the report of the bench from what the guests measured.

    report.py [--strict] TIMED COUNTED OUT

TIMED is the directory that guest/bench.sh filled, COUNTED that of guest/insn.sh, or "-" where instructions cannot be
counted. Prints the table and the bars, and writes OUT/report.txt, report.json and report.gnuplot, from which
gnuplot makes report.svg. With --strict the exit status is 3 when a bar is missed.

Words: a run is one job of one engine; a case is what was measured with both engines, in pairs of runs. A case's ratio
is the median of the ratios of its pairs: the machine's speed changes between pairs more than inside one. Throughput
is in MB/s, CPU time in seconds of the guest's processors a GiB, instructions are those of the whole guest a page.
"""

import collections
import glob
import json
import sys

import bars
import insn
from figures import MISSED, PERCENTILES, compare, latency_of, middle, quotient, rate_of, show, show_size, write

TICKS = 100     # of /proc/stat a second

# What a run measured; name is a Name
Run = collections.namedtuple("Run", "name rate cpu latency cpus")
Name = collections.namedtuple("Name", "engine target op size batch segments verify pair")


def parse_size(text):
    return int(text[:-1]) << {"k": 10, "m": 20}[text[-1]]


def parse_name(text):
    """Name of a job, or None for one that is not measured."""
    fields = text.split(".")
    if len(fields) != len(Name._fields):
        return None
    return Name(*fields[:3], parse_size(fields[3]), *(int(f) for f in fields[4:]))


def busy(fields):
    """Ticks of a cpu line that were neither idle nor waiting for I/O"""
    ticks = [int(f) for f in fields[:8]]
    return sum(ticks) - ticks[3] - ticks[4]


def read_stat(path):
    """{job: {cpu: seconds busy between its start and its end}}"""
    at = collections.defaultdict(dict)
    with open(path, encoding="ascii") as f:
        for line in f:
            job, when, cpu, *fields = line.split()
            at[job][when, cpu] = busy(fields)
    return {job: {cpu: (t["postrun", cpu] - ticks) / TICKS for (when, cpu), ticks in t.items() if when == "prerun"}
            for job, t in at.items()}


def read_fio(path, stat):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for job in json.loads(text[text.index("{"):])["jobs"]:
        name = parse_name(job["jobname"])
        if not name:
            continue
        side = job["write" if name.op == "store" else "read"]
        if job["error"] or not side["io_bytes"]:
            raise SystemExit(f"report: {job['jobname']} failed")
        cpus = stat.get(job["jobname"], {})
        cpu = cpus["cpu"] / side["io_bytes"] * 2**30 if cpus else None
        yield Run(name, rate_of(side), cpu, latency_of(side), cpus)


def read_results(path):
    """Runs of readv, and the other lines as {what: [values]}"""
    runs, others = [], collections.defaultdict(list)
    with open(path, encoding="utf-8") as f:
        for line in f:
            what, *values = line.strip().lstrip("@").split()
            if what == "readv":
                name, size, ns = parse_name(values[0]), int(values[1]), int(values[2])
                runs.append(Run(name, size / ns * 1000, None, {}, {}))
            else:
                others[what].append(values)
    return runs, others


def read_timed(directory):
    stat = read_stat(f"{directory}/stat")
    runs, others = read_results(f"{directory}/results")
    for path in sorted(glob.glob(f"{directory}/*.json")):
        runs += read_fio(path, stat)
    return runs, others


def read_insn(directory):
    """{(engine, target, op, size, batch, segments): instructions a page}, the least of its rounds"""
    counted = collections.defaultdict(list)
    for case in insn.read_cases(directory):
        engine, target, op, size, batch, segments = case.name.split(".")
        counted[engine, target, op, parse_size(size), int(batch), int(segments)].append(insn.sums(case)[0])
    return {key: min(rounds) for key, rounds in counted.items()}


def pair_up(runs):
    """{(target, op, size, batch, segments): [(kvctx run, raw run)...]}"""
    engines = collections.defaultdict(dict)
    for run in runs:
        n = run.name
        engines[n.target, n.op, n.size, n.batch, n.segments, n.pair][n.engine] = run
    cases = collections.defaultdict(list)
    for key in sorted(engines):
        both = engines[key]
        if len(both) == 2:
            cases[key[:-1]].append((both["kvctx"], both["raw"]))
    return cases


def row_of(key, pairs, counted, case, value):
    """A row of the report; @value takes the figure from a run."""
    target, op, size, batch, segments = key
    row = {"case": case, "target": target, "size": size, "batch": batch, "segments": segments,
           "verify": pairs[0][0].name.verify, **compare(pairs, value)}
    for engine in ("kvctx", "raw"):
        row[f"{engine}_insn"] = counted.get((engine, target, op, size, batch, segments))
    row["insn_ratio"] = quotient(row["kvctx_insn"], row["raw_insn"])
    return row


def matrix_rows(runs, counted):
    """Rows of loads and stores, and of latencies in microseconds"""
    rows = []
    for key, pairs in pair_up(runs).items():
        op = key[1]
        if op in ("load", "store"):
            rows.append(row_of(key, pairs, counted, op, lambda run: run.rate))
        else:
            for p in PERCENTILES:
                rows.append(row_of(key, pairs, {}, f"{op}-{p}", lambda run, p=p: run.latency.get(p)))
    return rows


def verification_row(runs, others, cpus):
    """Nanoseconds a MiB that verification adds, as kvctx, beside those of crc32c() alone, as raw"""
    seconds, rate, shares = collections.defaultdict(dict), [], []
    for run in runs:
        if run.name.op == f"verify{cpus}":
            seconds[run.name.pair][run.name.verify] = 1 / run.rate
            if run.name.verify:
                rate.append(run.rate)
                each = [s for cpu, s in run.cpus.items() if cpu != "cpu"]
                shares.append(quotient(min(each), max(each)) if len(each) > 1 else None)
    if not seconds:
        return None
    # seconds a MB, to nanoseconds a MiB
    added = {pair: (s[1] - s[0]) * 1e9 * 1.048576 for pair, s in seconds.items()}
    alone = {int(pair): float(ns) for n, pair, ns in others["crc"] if int(n) == cpus}
    return {"case": f"verify-{cpus}cpu", "target": "null", "size": 256 << 10, "batch": 16, "segments": 1, "verify": 1,
            "pairs": len(seconds), "kvctx": middle(added.values()), "raw": middle(alone.values()),
            "ratio": middle(quotient(ns, alone[pair]) for pair, ns in added.items()),
            "rate": middle(rate), "cpu_share": middle(shares)}


def single_rows(others):
    """Rows of what has no counterpart: MATCH in nanoseconds, system calls"""
    rows = [{"case": f"match-{keys}", "target": "null", "size": 4096, "batch": int(keys), "kvctx": float(ns)}
            for keys, ns in others["match"]]
    for values in others["syscalls"]:
        for what, n in zip(values[::2], values[1::2]):
            rows.append({"case": f"syscalls-{what}", "target": "null", "size": 4096, "batch": 1000, "kvctx": int(n)})
    return rows


def make_rows(runs, others, counted):
    rows = matrix_rows([run for run in runs if not run.name.op.startswith("verify")], counted)
    rows += [row for row in (verification_row(runs, others, n) for n in (1, 2)) if row]
    return rows + single_rows(others)


def table(rows):
    lines = [f"{'case':14} {'target':6} {'size':>5} {'batch':>5} {'segs':>4} {'crc':>3} {'kvctx':>9} {'raw':>9} {'ratio':>6}"
             f" {'cpu/GiB':>8} {'raw':>8} {'ratio':>6} {'insn/page':>10} {'raw':>10} {'ratio':>6}"]
    for row in rows:
        get = row.get
        lines.append(
            f"{row['case']:14} {row['target']:6} {show_size(row['size']):>5} {row['batch']:>5} {get('segments', 1):>4}"
            f" {get('verify', 0):>3} {show(row['kvctx'], 1):>9} {show(get('raw'), 1):>9} {show(get('ratio'), 3):>6}"
            f" {show(get('kvctx_cpu'), 2):>8} {show(get('raw_cpu'), 2):>8} {show(get('cpu_ratio'), 2):>6}"
            f" {show(get('kvctx_insn'), 0):>10} {show(get('raw_insn'), 0):>10} {show(get('insn_ratio'), 3):>6}")
    lines.append("load, store: MB/s; latency (alone), mixed (beside stores) and flood (of another tenant): us; verify: ns a MiB added, beside "
                 "crc32c() alone;\nmatch: ns. crc 1: kvctx computes checksums, raw never does.")
    return lines


def gnuplot(rows, out):
    """A curve for each target and batch of the ratio over the size, one picture for loads and one for stores"""
    lines = ["set terminal svg noenhanced size 1000,420 font 'sans,11' background 'white'", f"set output '{out}/report.svg'",
             "set multiplot layout 1,2", "set logscale x 2", "set xlabel 'page'", "set ylabel 'throughput, raw io_uring = 1'",
             "set xtics ('16K' 16384, '64K' 65536, '256K' 262144, '2M' 2097152)", "set yrange [0:*]", "set grid",
             "set key bottom right"]
    for op in ("load", "store"):
        curves = collections.defaultdict(list)
        for row in rows:
            if row["case"] == op and row["segments"] == 1 and row["ratio"] is not None:
                curves[row["target"], row["batch"]].append((row["size"], row["ratio"]))
        if not curves:
            continue
        lines.append(f"set title '{op.upper()}, verification off'")
        lines.append("plot 1 lc rgb 'gray' notitle, " + ", ".join(
            f"'-' with linespoints title '{target}, batch {batch}'" for target, batch in sorted(curves)))
        for key in sorted(curves):
            lines += [f"{size} {ratio:.4f}" for size, ratio in sorted(curves[key])] + ["e"]
    return lines + ["unset multiplot"]


def main():
    args = [a for a in sys.argv[1:] if a != "--strict"]
    if len(args) != 3:
        raise SystemExit(__doc__)
    timed, counted, out = args
    runs, others = read_timed(timed)
    rows = make_rows(runs, others, {} if counted == "-" else read_insn(counted))
    judged = bars.judge(rows)
    text = table(rows) + [""] + bars.show(judged)
    print("\n".join(text))
    write(f"{out}/report.txt", text)
    write(f"{out}/report.json", [json.dumps(rows, indent=1)])
    write(f"{out}/report.gnuplot", gnuplot(rows, out))
    missed = [bar for bar in judged if not bar.met]
    return MISSED if missed and "--strict" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
