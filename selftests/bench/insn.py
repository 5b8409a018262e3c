#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Add up what the plugin counted (plugin/count.c): by module, by symbol, a page.

    insn.py profile DIR [CASE]...   text: the symbols with most instructions of each case
    insn.py check DIR EXPECTED      compare with the file in the tree
    insn.py write DIR EXPECTED      write that file
    insn.py untouched DIR           transfers between SSD and peer: does the CPU touch the bytes?

DIR holds what guest/insn.sh, or for the last one guest/p2p.sh, left: "counts" (of the plugin), "kallsyms" (of the guest) and "cases" (its output).
A case is engine.target.op.size.batch.segments; figures are instructions a page, that is an operation.
"""

import bisect
import collections
import re
import sys

TOLERANCE = 0.03    # a case may rise by this much before the check fails
TOP = 40            # symbols of a profile
BYTES_AN_INSTRUCTION = 16   # of a larger page, at least, unless it is copied: that takes eight bytes each

Case = collections.namedtuple("Case", "name pages symbols")


class Symbols:
    """Text symbols of the guest's kernel; names of modules' end in [module]."""

    def __init__(self, path):
        rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                fields = line.split()
                if fields[1] in "tTwW":
                    rows.append((int(fields[0], 16), "".join(fields[2:])))
        rows.sort()
        self.addresses = [row[0] for row in rows]
        self.names = [row[1] for row in rows]

    def name(self, address):
        """A granule of 16 bytes belongs to the last symbol that begins in it or before it; 0 is user code."""
        if not address:
            return "user"
        i = bisect.bisect_right(self.addresses, address + 15) - 1
        return self.names[i] if i >= 0 else hex(address)


def read_counts(path, symbols):
    """{measurement: Counter of symbols}"""
    result = collections.defaultdict(collections.Counter)
    with open(path, encoding="ascii") as f:
        for line in f:
            number, address, count = line.split()
            result[int(number)][symbols.name(int(address, 16))] += int(count)
    return result


def read_cases(directory):
    """Cases in the order they were measured, without what a run costs before and after its pages."""
    counts = read_counts(f"{directory}/counts", Symbols(f"{directory}/kallsyms"))
    cases, base = [], {}
    with open(f"{directory}/cases", encoding="utf-8") as f:
        rows = [m.groups() for m in (re.match(r"@insn (\d+) (\S+) (\d+)$", line.strip()) for line in f) if m]
    rows = [(int(r[0]), r[1], int(r[2]), tuple(r[1].split(".")[:2])) for r in rows]
    for number, name, _, run in rows:
        if not counts[number]:
            raise SystemExit(f"insn: nothing was counted for {name}")
        if ".base." in name and (run not in base or sum(counts[number].values()) < sum(base[run].values())):
            base[run] = counts[number]
    for number, name, pages, run in rows:
        if ".base." not in name:
            # the base has one page, too
            cases.append(Case(name, pages - 1, counts[number] - base[run]))
    if not cases:
        raise SystemExit(f"insn: no cases in {directory}/cases")
    return cases


def sums(case):
    """Instructions a page: in all, in user code, in modules, in kvctx.ko"""
    total = sum(case.symbols.values())
    modules = sum(n for name, n in case.symbols.items() if name.endswith("]"))
    kvctx = sum(n for name, n in case.symbols.items() if name.endswith("[kvctx]"))
    return [n / case.pages for n in (total, case.symbols["user"], modules, kvctx)]


def profile(cases, wanted):
    for case in cases:
        if wanted and case.name not in wanted:
            continue
        total, user, modules, kvctx = sums(case)
        print(f"{case.name}: instructions a page {total:.0f}, user {user:.0f}, modules {modules:.0f}, "
              f"kvctx.ko {kvctx:.0f}")
        for name, n in case.symbols.most_common(TOP):
            print(f"  {n / case.pages:10.1f} {100 * n / case.pages / total:5.1f} %  {name}")
        print()


def read_expected(path):
    expected = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, figure = line.split()
                expected[name] = float(figure)
    return expected


def write_expected(cases, path):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Instructions of kvctx.ko a page, on the newer of the guest's kernels: engine.target.op.size.batch.segments\n"
                "# Written by `make bench-insn`; `make check-insn` fails when one is exceeded by more than 3 %.\n")
        for case in cases:
            f.write(f"{case.name:32} {sums(case)[3]:8.0f}\n")


def compare(measured, expected):
    """Yield (passed, text) for each case of either."""
    for name in sorted(expected.keys() | measured.keys()):
        if name not in measured:
            yield False, f"{name}: expected, but not measured"
        elif name not in expected:
            yield False, f"{name}: {measured[name]:.0f}, but nothing is expected: make bench-insn"
        else:
            change = measured[name] / expected[name] - 1
            hint = " (make bench-insn to keep it)" if change < -TOLERANCE else ""
            yield change <= TOLERANCE, f"{name}: {measured[name]:.0f}, {expected[name]:.0f} expected, {change:+.1%}{hint}"


def check(cases, path):
    results = list(compare({case.name: sums(case)[3] for case in cases}, read_expected(path)))
    for ok, text in results:
        print(f"{'ok' if ok else 'not ok'} {text}")
    failed = sum(1 for ok, _ in results if not ok)
    print(f"insn: {len(results) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


def untouched(cases):
    """Does the CPU keep its hands off the bytes? Then a large page costs it little more than a small one."""
    rows = {tuple(case.name.split(".")[2:4]): sums(case)[0] for case in cases}
    failed = 0
    for op in ("load", "store"):
        small, large = rows[op, "64k"], rows[op, "1m"]
        ok = large - small < ((1 << 20) - (64 << 10)) / BYTES_AN_INSTRUCTION
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {op} between SSD and peer: {small:.0f} instructions of the guest for 64 KiB, "
              f"{large:.0f} for 1 MiB")
    print(f"p2p: {2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


def main():
    args = sys.argv[1:]
    if args[:1] == ["profile"] and len(args) >= 2:
        profile(read_cases(args[1]), args[2:])
    elif args[:1] == ["write"] and len(args) == 3:
        write_expected(read_cases(args[1]), args[2])
    elif args[:1] == ["check"] and len(args) == 3:
        return check(read_cases(args[1]), args[2])
    elif args[:1] == ["untouched"] and len(args) == 2:
        return untouched(read_cases(args[1]))
    else:
        raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
