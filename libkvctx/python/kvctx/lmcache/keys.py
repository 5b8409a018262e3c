# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages from LMCache's ObjectKey.

    digest    = chunk_hash filled up with zeros, XOR SHA-256(model_name "@" cache_salt "@" len(chunk_hash))
    qualifier = kv_rank + object_group_id * 2**48

LMCache allows no "@" in model_name and cache_salt. Hashes of more than 32 bytes go through SHA-256 first. Two
ObjectKeys have one name only if SHA-256, or LMCache's own hash, has a collision.

A lookup of thousands of keys is mostly pack(). So columns are put in place at once, and XORed as one long number.
"""
from __future__ import annotations

from array import array
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from struct import Struct
from typing import Any, List, Sequence

from .._lib import KEY_BYTES
from ..keys import DIGEST_BYTES, Key, Keys

_FIELDS = attrgetter("chunk_hash", "model_name", "kv_rank", "object_group_id", "cache_salt")
_RANK_BITS, _GROUP_BITS = 48, 16
_WORDS = KEY_BYTES // 8  # the last one is the qualifier
_QUALIFIER = Struct("=Q")


@lru_cache(maxsize=4096)
def _mask(model_name: str, cache_salt: str, hash_bytes: int) -> bytes:
    return sha256(f"{model_name}@{cache_salt}@{hash_bytes}".encode()).digest() + bytes(8)


def _filled(chunk_hash: bytes) -> bytes:
    return chunk_hash.ljust(DIGEST_BYTES, b"\0") if len(chunk_hash) <= DIGEST_BYTES else sha256(chunk_hash).digest()


def _same(column: Sequence[Any]) -> bool:
    return column.count(column[0]) == len(column)


def pack(keys: Sequence[Any]) -> Keys:
    """Names of ObjectKeys, in order.

    Raises ValueError for a kv_rank of more than 48 bits or an object_group_id of more than 16.
    """
    if not keys:
        return Keys()
    hashes, models, ranks, groups, salts = zip(*map(_FIELDS, keys))
    if max(ranks) >> _RANK_BITS or max(groups) >> _GROUP_BITS:
        raise ValueError(f"kv_rank {max(ranks)} or object_group_id {max(groups)} is too large")
    sizes = list(map(len, hashes))
    width = sizes[0]
    if not (width in (8, 16, DIGEST_BYTES) and _same(sizes)):
        hashes, width = tuple(map(_filled, hashes)), DIGEST_BYTES
    words, columns = array("Q", bytes(KEY_BYTES * len(keys))), array("Q", b"".join(hashes))
    for n in range(width // 8):
        words[n::_WORDS] = columns[n::width // 8]
    qualifiers = [r | g << _RANK_BITS for r, g in zip(ranks, groups)] if any(groups) else ranks
    words[_WORDS - 1::_WORDS] = array("Q", qualifiers)
    if _same(models) and _same(salts) and _same(sizes):
        mask = _mask(models[0], salts[0], sizes[0]) * len(keys)
    else:
        mask = b"".join(map(_mask, models, salts, sizes))
    packed = int.from_bytes(words.tobytes(), "little") ^ int.from_bytes(mask, "little")
    return Keys.from_buffer(packed.to_bytes(len(mask), "little"))


def name(key: Key) -> bytes:
    """One key as names() has it."""
    return key.digest + _QUALIFIER.pack(key.qualifier)


def names(pages: Keys) -> List[bytes]:
    """Each key of pages as bytes that can be looked up in a dict or put together again for Keys.from_buffer()."""
    packed = bytes(pages.data)
    return [packed[n:n + KEY_BYTES] for n in range(0, len(packed), KEY_BYTES)]
