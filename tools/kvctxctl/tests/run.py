#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of kvctxctl: run it with faked system libraries, look at what it prints, returns and asks for.

usage: run.py O [WORD]...

O is the build folder; with WORDs only tests whose name has one of them are run. A test is a function whose name
begins with test_, in one of the test_*.py files here; one line tells of each that fails. Ends with a line
"ctl: N passed, N failed, N skipped".
"""
import glob
import importlib
import os
import sys
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tool  # noqa: E402


def find_tests():
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_*.py"))):
        name = os.path.basename(path)[:-3]
        module = importlib.import_module(name)
        for key, value in list(vars(module).items()):
            if key.startswith("test_") and callable(value):
                yield name + "." + key, value


def main():
    passed, failed, skipped = 0, 0, 0
    tool.setup(sys.argv[1])
    for name, test in find_tests():
        if sys.argv[2:] and not any(word in name for word in sys.argv[2:]):
            continue
        try:
            with tool.workspace():
                test()
            passed += 1
        except tool.Skip as why:
            skipped += 1
            print(f"skipped: {name}: {why}")
        except Exception:
            failed += 1
            print(f"FAILED: {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"ctl: {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
