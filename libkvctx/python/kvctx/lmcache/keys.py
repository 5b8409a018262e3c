# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages from LMCache's ObjectKey.

    digest    = SHA-256(SHA-256(model_name "@" cache_salt) chunk_hash), "@" being what LMCache allows in neither
    qualifier = kv_rank * 65536 + object_group_id

so two different ObjectKeys have two different names, and nobody finds a chunk of another salt, nor guesses its name.
"""
from __future__ import annotations

from array import array
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from struct import Struct
from typing import Any, List, Sequence

from .._lib import KEY_BYTES
from ..keys import Key, Keys

_FIELDS = attrgetter("chunk_hash", "model_name", "kv_rank", "object_group_id", "cache_salt")
_GROUP_BITS = 16
_QUALIFIER = Struct("=Q")


@lru_cache(maxsize=4096)
def _owner(model_name: str, cache_salt: str) -> bytes:
    return sha256(f"{model_name}@{cache_salt}".encode()).digest()


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
    parts[::2] = [sha256(_owner(m, s) + h).digest() for h, m, s in zip(hashes, models, salts)]
    parts[1::2] = [qualifiers[n:n + 8] for n in range(0, len(qualifiers), 8)]
    return Keys.from_buffer(b"".join(parts))


def name(key: Key) -> bytes:
    """One key as names() has it."""
    return key.digest + _QUALIFIER.pack(key.qualifier)


def names(pages: Keys) -> List[bytes]:
    """Each key of pages as bytes that can be looked up in a dict or put together again for Keys.from_buffer()."""
    packed = bytes(pages.data)
    return [packed[n:n + KEY_BYTES] for n in range(0, len(packed), KEY_BYTES)]
