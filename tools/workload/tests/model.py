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


def _next_requests(requests):
    """For each request: the numbers of the next requests that name its pages, by page, where there is one."""
    later = {}
    following = []
    for number, ids in reversed(list(enumerate(requests))):
        following.append({page: later[page] for page in ids if page in later})
        later.update(dict.fromkeys(ids, number))
    return following[::-1]


def _put_fifo(cache, ids, capacity):
    for page in [page for page in ids if page not in cache]:
        cache[page] = True
        if len(cache) > capacity:
            cache.popitem(last=False)


def _put_lru(cache, ids, capacity):
    for page in reversed(ids):
        cache.pop(page, None)
        cache[page] = True
        if len(cache) > capacity:
            cache.popitem(last=False)


def _put_optimum(cache, ids, capacity, following):
    for page in ids:
        cache.pop(page, None)
        if page not in following:
            continue
        if len(cache) == capacity:
            # Of equals max() takes the first, which was put in before the others
            furthest = max(cache, key=cache.get)
            if cache[furthest] <= following[page]:
                continue
            del cache[furthest]
        cache[page] = following[page]


def page_hits(requests, capacity, policy):
    """Hits of a cache of single pages; policy: fifo, lru or optimum."""
    cache = collections.OrderedDict()
    hits = 0
    for ids, following in zip(requests, _next_requests(requests)):
        hits += leading(ids, cache)
        if policy == "optimum":
            _put_optimum(cache, ids, capacity, following)
        else:
            {"fifo": _put_fifo, "lru": _put_lru}[policy](cache, ids, capacity)
    return hits
