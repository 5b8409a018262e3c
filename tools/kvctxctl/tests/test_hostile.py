# SPDX-License-Identifier: GPL-2.0
"""check and dump on hostile pools: the fuzzers' corpus, and mutations of it."""
import concurrent.futures
import json
import os
import subprocess

import pools
import tool

MUTATIONS = 200


def grow(path, seed):
    done = subprocess.run([os.path.join(tool.OUT, "test/core-fuzz"), "--grow", path, "--seed", str(seed)],
                          stdout=subprocess.PIPE, check=True)
    return done.stdout


def survives(*args):
    """Any answer will do; a sanitizer's report will not"""
    done = subprocess.run([os.path.join(tool.OUT, "bin/kvctxctl"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60, check=False)
    assert 0 <= done.returncode <= 4 and b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr, (
        args, done)
    assert done.stdout or done.stderr, (args, done)
    if "json" in args and done.stdout:
        json.loads(done.stdout)
    return done.returncode


def try_pool(program, name, turn):
    devices = pools.write(program, name)
    status = survives("check", "--data", *devices, "-o", "json")
    what = (["super"], ["segment", str(turn % 4)], ["page", "a0"])[turn % 3]
    survives("dump", devices[turn % len(devices)], *what)
    for path in devices:
        os.remove(path)
    return status


def test_corpus_and_mutations():
    files = sorted(os.path.join(pools.CORPUS, n) for n in os.listdir(pools.CORPUS))
    assert len(files) > 30
    jobs = [(path, f"c{i}", i) for i, path in enumerate(files)]
    jobs += [(grow(files[i * 7 % len(files)], i), f"m{i}", i) for i in range(MUTATIONS)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        statuses = list(pool.map(lambda job: try_pool(*job), jobs))
    # Neither all refused nor all fine: the pools are worth looking at
    assert statuses.count(0) > 10 and statuses.count(1) > 10, {s: statuses.count(s) for s in set(statuses)}
