# SPDX-License-Identifier: GPL-2.0
"""One L2 adapter of LMCache, measured by LMCache's own `lmcache bench l2`, which runs here once a request.

Options: adapter, the object for --l2-adapter, in which every "@DIR@" is replaced by a new directory for each run below
dir, and @KEYS@ by how many keys the run has; pids, servers of the adapter.
Requests: {size, keys, in_flight, rounds}: store, look up and load; of what is looked up half is there. The bench's own
time is taken: its clock is replaced by one that notes processor time as well. {lookup: N}: a lookup of N keys at once,
half of which are there, with an adapter that stays open; the bench's function for it is called.
"""

import argparse
import functools
import json
import os
import shutil
import types

import lmcache.cli.commands.bench.l2_adapter_bench as l2_bench
from lmcache.cli.commands.bench.l2_adapter_bench import data, runner
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config

from worker import Clock, figures, serve, transfer

LOOKUP_SIZE = 4096      # of the pages that lookups find
LOOKUP_BATCH = 250      # pages a store of them
PHASES = {"Store": "bench_store", "Lookup": "bench_lookup", "Load": "bench_load"}
WARMUP = 1              # rounds


class Rounds:
    """Stands in for the module time of the bench's runner: each round asks it twice."""

    def __init__(self, clock):
        self.clock, self.taken = clock, []

    def perf_counter(self):
        self.taken.append(self.clock.now())
        return self.taken[-1][0]

    def take(self, skip):
        """(wall, processor) seconds of all rounds but the first @skip, and begin anew"""
        pairs = list(zip(self.taken[::2], self.taken[1::2]))[skip:]
        self.taken = []
        return sum(b[0] - a[0] for a, b in pairs), sum(b[1] - a[1] for a, b in pairs)


class Side:
    def __init__(self, options):
        self.adapter, self.dir = json.dumps(options["adapter"]), options["dir"]
        self.rounds = runner.time = Rounds(Clock(options.get("pids", ())))
        self.command, self.runs = l2_bench.L2AdapterBenchCommand(), 0
        self.results = {}
        self.bench_store, self.bench_lookup = runner.bench_store, runner.bench_lookup
        for operation, name in PHASES.items():
            setattr(runner, name, self.kept(operation, getattr(runner, name)))
        self.make_keys = data.make_object_keys
        self.lookups = None

    def kept(self, operation, bench):
        """@bench, whose result, with the times of its rounds, is kept"""
        def run(*args, **more):
            result = bench(*args, **more)
            self.results[operation] = (result, *self.rounds.take(WARMUP))
            return result
        return run

    def adapter_json(self, keys):
        """The adapter's options in a directory of its own, which nothing else wrote to"""
        self.runs += 1
        place = os.path.join(self.dir, f"run{self.runs}")
        os.makedirs(place)
        # kvctx keeps the pages of earlier runs: keys are to be new
        data.make_object_keys = functools.partial(self.make_keys, model_name=f"bench-{os.getpid()}-{self.runs}")
        return self.adapter.replace("@DIR@", place).replace('"@KEYS@"', str(keys)), place

    def __call__(self, request):
        return self.look_up(request["lookup"]) if "lookup" in request else self.run(request)

    def run(self, request):
        size, keys, in_flight, rounds = (request[k] for k in ("size", "keys", "in_flight", "rounds"))
        adapter, place = self.adapter_json(keys * in_flight * (rounds + WARMUP))
        parser = argparse.ArgumentParser()
        self.command.register(parser.add_subparsers())
        args = parser.parse_args([
            "l2", "--l2-adapter", adapter, "--num-keys", str(keys), "--in-flight", str(in_flight), "--data-size-kb",
            str(size >> 10), "--l1-align-bytes", str(size), "--rounds", str(rounds), "--warmup-rounds", str(WARMUP),
            "--lookup-max-hit-rate", "0.5", "--no-skip-verify", "--quiet"])
        self.results = {}
        try:
            args.func(args)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return {"store": self.told("Store"), "lookup": self.told_lookup(), "load": self.told("Load")}

    def told_lookup(self):
        result, wall, cpu = self.results["Lookup"]
        found = sum(result.success_counts[WARMUP:])
        if found != result.expected_hit_count or result.timed_out_rounds:
            raise RuntimeError(f"Lookup: found {found} keys of {result.expected_hit_count}")
        return figures(len(result.round_durations[WARMUP:]) * result.keys_per_round, wall, cpu)

    def told(self, operation):
        result, wall, cpu = self.results[operation]
        if result.total_success != result.total_keys or result.timed_out_rounds:
            raise RuntimeError(f"{operation}: {result.total_success} of {result.total_keys} keys")
        return transfer(len(result.round_durations[WARMUP:]) * result.total_data_bytes_per_round, wall, cpu)

    def open_lookups(self, keys):
        """An adapter that has the first half of @keys pages"""
        config, _ = self.adapter_json(keys // 2)
        memory = data.make_aligned_tensor(LOOKUP_BATCH * LOOKUP_SIZE, LOOKUP_SIZE)
        parsed = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[config]))
        adapter = create_l2_adapter(parsed.adapters[0], l1_memory_desc=data.create_l1_memory_desc(memory, LOOKUP_SIZE))
        objects = data.make_memory_objects(memory, LOOKUP_BATCH, LOOKUP_SIZE, 0)
        for first in range(0, keys // 2, LOOKUP_BATCH):
            result = self.bench_store(
                adapter, 1, LOOKUP_BATCH, LOOKUP_SIZE, 1,
                lambda _: [data.make_object_keys(LOOKUP_BATCH, key_offset=first)], lambda _: [objects], print)
            if result.total_success != LOOKUP_BATCH:
                raise RuntimeError("the pages to look up could not be stored")
        return types.SimpleNamespace(adapter=adapter, memory=memory, keys=data.make_object_keys(keys))

    def look_up(self, keys):
        if not self.lookups:
            self.lookups = self.open_lookups(keys)
        self.rounds.taken = []
        found = self.lookups
        result = self.bench_lookup(found.adapter, 1, keys, 1, lambda _: [found.keys], print)
        wall, cpu = self.rounds.take(0)
        found.adapter.submit_unlock(found.keys[:keys // 2])
        if result.total_success != keys // 2:
            raise RuntimeError(f"Lookup: found {result.total_success} keys of {keys // 2}")
        return {"lookup": figures(keys, wall, cpu)}


serve(Side)
