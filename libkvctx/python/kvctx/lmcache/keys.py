# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages from LMCache's ObjectKey.

    digest    = chunk_hash filled up with zeros, XOR SHA-256(model_name "@" cache_salt "@" len(chunk_hash))
    qualifier = kv_rank + object_group_id * 2**48

LMCache allows no "@" in model_name and cache_salt. Hashes of more than 32 bytes go through SHA-256 first. Two
ObjectKeys have one name only if SHA-256, or LMCache's own hash, has a collision.

A lookup of thousands of keys is mostly pack(). So nothing is made for each key that the garbage collector would have to
look at, columns are put in place at once, and all hashes are XORed as one long number.
"""
from __future__ import annotations

from array import array
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any, Dict, List, Sequence, Tuple

from .._lib import KEY_BYTES
from ..keys import DIGEST_BYTES, Key, Keys

_RANK_BITS, _GROUP_BITS = 48, 16
_WORDS = KEY_BYTES // 8  # the last one is the qualifier
_QUALIFIER = Struct("=Q")


@lru_cache(maxsize=4096)
def _mask(model_name: str, cache_salt: str, hash_bytes: int) -> bytes:
    return sha256(f"{model_name}@{cache_salt}@{hash_bytes}".encode()).digest()


def _filled(chunk_hash: bytes) -> bytes:
    return chunk_hash.ljust(DIGEST_BYTES, b"\0") if len(chunk_hash) <= DIGEST_BYTES else sha256(chunk_hash).digest()


def pack(keys: Sequence[Any]) -> Keys:
    """Names of ObjectKeys, in order.

    Raises ValueError for a kv_rank of more than 48 bits or an object_group_id of more than 16.
    """
    if not keys:
        return Keys()
    model, salt, group = keys[0].model_name, keys[0].cache_salt, keys[0].object_group_id
    # the same objects, as those of one request have: to compare them is dearer than all else
    hashes = [k.chunk_hash for k in keys
              if k.model_name is model and k.cache_salt is salt and k.object_group_id is group]
    if len(hashes) == len(keys) and len(set(map(len, hashes))) == 1:
        return _pack_alike(hashes, [k.kv_rank for k in keys], _mask(model, salt, len(hashes[0])), group)
    return _pack_mixed(keys)


def _pack_alike(hashes: Sequence[bytes], ranks: Sequence[int], mask: bytes, group: int) -> Keys:
    """Names of keys that differ in hash, of one length, and in rank only."""
    if max(ranks) >> _RANK_BITS or group >> _GROUP_BITS:
        raise ValueError(f"kv_rank {max(ranks)} or object_group_id {group} is too large")
    if len(hashes[0]) not in (8, 16, DIGEST_BYTES):
        hashes = list(map(_filled, hashes))
    nr, width = len(hashes), len(hashes[0])
    columns = array("Q", _xor(b"".join(hashes), mask[:width] * nr))
    words = array("Q", mask + bytes(8)) * nr
    for n in range(width // 8):
        words[n::_WORDS] = columns[n::width // 8]
    words[_WORDS - 1::_WORDS] = array("Q", [rank | group << _RANK_BITS for rank in ranks] if group else ranks)
    return Keys.of_words(words)


def _pack_mixed(keys: Sequence[Any]) -> Keys:
    alike: Dict[Tuple[str, str, int, int], List[int]] = {}
    for n, k in enumerate(keys):
        alike.setdefault((k.model_name, k.cache_salt, k.object_group_id, len(k.chunk_hash)), []).append(n)
    packed = [b""] * len(keys)
    for (model, salt, group, size), places in alike.items():
        some = [keys[n] for n in places]
        pages = _pack_alike([k.chunk_hash for k in some], [k.kv_rank for k in some], _mask(model, salt, size), group)
        for n, found in zip(places, names(pages)):
            packed[n] = found
    return Keys.from_buffer(b"".join(packed))


def _xor(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def name(key: Key) -> bytes:
    """One key as names() has it."""
    return key.digest + _QUALIFIER.pack(key.qualifier)


def names(pages: Keys) -> List[bytes]:
    """Each key of pages as bytes that can be looked up in a dict or put together again for Keys.from_buffer()."""
    packed = bytes(pages.data)
    return [packed[n:n + KEY_BYTES] for n in range(0, len(packed), KEY_BYTES)]
