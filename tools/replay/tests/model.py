# SPDX-License-Identifier: GPL-2.0
"""What a prefix cache does with a trace: the few lines that a replay's hits are compared with.

A request's ids are looked up in order until one is missing: those before it are hits. Then all of
them are put into the cache, in order. Written from that rule alone, sharing nothing with the program.
"""
import collections
import json


def read_trace(path, limit=None):
    """The id lists of a trace's requests."""
    requests = []
    with open(path, encoding="utf-8") as trace:
        for line in trace:
            if limit is not None and len(requests) == limit:
                break
            requests.append(json.loads(line)["hash_ids"])
    return requests


def leading(ids, cache):
    """How many leading ids are in the cache."""
    count = 0
    for page in ids:
        if page not in cache:
            break
        count += 1
    return count


def unbounded_hits(requests):
    """Hits of a cache that forgets nothing."""
    cache = set()
    hits = 0
    for ids in requests:
        hits += leading(ids, cache)
        cache.update(ids)
    return hits


def fifo_hits(requests, capacity):
    """Hits of a cache that forgets what came first. Returns (hits, lookups that found the page later)."""
    cache = collections.OrderedDict()
    hits = dedup = 0
    for ids in requests:
        found = leading(ids, cache)
        hits += found
        for page in ids[found:]:
            if page in cache:
                dedup += 1
                continue
            if len(cache) == capacity:
                cache.popitem(last=False)
            cache[page] = True
    return hits, dedup
