# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages from LMCache's ObjectKey.

    digest    = chunk_hash filled up with zeros, XOR SHA-256(model_name "@" cache_salt "@" len(chunk_hash))
    qualifier = kv_rank * 65536 + object_group_id

LMCache allows no "@" in model_name and cache_salt. Hashes of more than 32 bytes go through SHA-256 first. Two
ObjectKeys have one name only if SHA-256, or LMCache's own hash, has a collision. XOR is done for all keys at once, as one
long number: a lookup of thousands of keys costs less so than one hash for each of them.
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
_GROUP_BITS = 16
_QUALIFIER = Struct("=Q")


@lru_cache(maxsize=4096)
def _mask(model_name: str, cache_salt: str, hash_bytes: int) -> bytes:
    return sha256(f"{model_name}@{cache_salt}@{hash_bytes}".encode()).digest() + bytes(8)


def _filled(chunk_hash: bytes) -> bytes:
    return chunk_hash.ljust(DIGEST_BYTES, b"\0") if len(chunk_hash) <= DIGEST_BYTES else sha256(chunk_hash).digest()


def pack(keys: Sequence[Any]) -> Keys:
    """Names of ObjectKeys, in order.

    Raises OverflowError for a kv_rank of more than 48 bits, ValueError for an object_group_id of more than 16.
    """
    if not keys:
        return Keys()
    hashes, models, ranks, groups, salts = zip(*map(_FIELDS, keys))
    if max(groups) >> _GROUP_BITS:
        raise ValueError(f"object_group_id {max(groups)} has more than {_GROUP_BITS} bits")
    qualifiers = array("Q", [r << _GROUP_BITS | g for r, g in zip(ranks, groups)]).tobytes()
    parts: List[bytes] = [b""] * (2 * len(keys))
    parts[::2] = map(_filled, hashes)
    parts[1::2] = [qualifiers[n:n + 8] for n in range(0, len(qualifiers), 8)]
    owners = set(zip(models, salts, map(len, hashes)))
    if len(owners) == 1:
        mask = _mask(*owners.pop()) * len(keys)
    else:
        mask = b"".join(map(_mask, models, salts, map(len, hashes)))
    packed = int.from_bytes(b"".join(parts), "little") ^ int.from_bytes(mask, "little")
    return Keys.from_buffer(packed.to_bytes(len(mask), "little"))


def name(key: Key) -> bytes:
    """One key as names() has it."""
    return key.digest + _QUALIFIER.pack(key.qualifier)


def names(pages: Keys) -> List[bytes]:
    """Each key of pages as bytes that can be looked up in a dict or put together again for Keys.from_buffer()."""
    packed = bytes(pages.data)
    return [packed[n:n + KEY_BYTES] for n in range(0, len(packed), KEY_BYTES)]
