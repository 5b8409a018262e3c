# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages: Key, and Keys, many of them packed as C wants them.

A key is a digest of 32 bytes and a qualifier of 64 bits. Engines have digests already, or names of any length, of which
the SHA-256 is taken, the same that kvctx_key_from_bytes() takes. Both kinds are immutable and may be shared by threads.
"""
from __future__ import annotations

import struct
from array import array
from hashlib import sha256
from typing import Iterable, Iterator, NamedTuple, Sequence, Union, overload

DIGEST_BYTES = 32
_WORDS = 5  # of 64 bits: struct kvctx_key
_QUALIFIER = struct.Struct("=Q")


def _as_bytes(data: Union[bytes, str]) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def keyspace(data: Union[bytes, str]) -> bytes:
    """16 bytes that tell one model, dtype, layout and parallel shape from others, from whatever describes them.

    As kvctx_keyspace_from_bytes(); a str counts as its UTF-8.
    """
    return sha256(_as_bytes(data)).digest()[:16]


class Key(NamedTuple):
    """Name of one page.

    digest: 32 bytes. qualifier: group, rank, layer or part, 0 to 2**64 - 1.
    """
    digest: bytes
    qualifier: int = 0

    @classmethod
    def of(cls, name: Union[bytes, str], qualifier: int = 0) -> Key:
        """The key of a page that has a name of any length, as kvctx_key_from_bytes()."""
        return cls(sha256(_as_bytes(name)).digest(), qualifier)


KeyLike = Union[Key, bytes, str]


class Keys(Sequence[Key]):
    """Many names, packed: struct kvctx_key[len].

    Keys(names): each a Key, or bytes or str, of which the key is derived (Key.of). Keys.of_digests() takes digests as
    they are and is the fastest. Slices are Keys, items are Key.

    Raises ValueError for a digest that has not 32 bytes, OverflowError or struct.error for a qualifier out of range.
    """
    __slots__ = ("_words",)

    def __init__(self, names: Iterable[KeyLike] = ()) -> None:
        if isinstance(names, (bytes, str, Key)):
            raise TypeError("Keys wants several names: [name]")
        parts = []
        for name in names:
            digest, qualifier = name if isinstance(name, Key) else (sha256(_as_bytes(name)).digest(), 0)
            if len(digest) != DIGEST_BYTES:
                raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
            parts.append(digest)
            parts.append(_QUALIFIER.pack(qualifier))
        self._words = array("Q", b"".join(parts))

    @classmethod
    def of_words(cls, words: array) -> Keys:
        """Keys of an array('Q') laid out as struct kvctx_key[], which becomes theirs."""
        self = cls.__new__(cls)
        self._words = words
        return self

    @classmethod
    def of_digests(cls, digests: Sequence[bytes], qualifier: int = 0) -> Keys:
        """Keys of digests that are there already, all with one qualifier."""
        if not digests:
            return cls()
        if set(map(len, digests)) != {DIGEST_BYTES}:
            raise ValueError(f"each digest has {DIGEST_BYTES} bytes")
        tail = _QUALIFIER.pack(qualifier)
        return cls.of_words(array("Q", tail.join(digests) + tail))

    @classmethod
    def from_buffer(cls, packed: object) -> Keys:
        """Keys of what .data of others was, or of anything with the buffer protocol laid out as struct kvctx_key[]."""
        words = array("Q")
        words.frombytes(memoryview(packed).cast("B"))  # type: ignore[arg-type]
        if len(words) % _WORDS:
            raise ValueError("not a whole number of keys")
        return cls.of_words(words)

    @property
    def data(self) -> memoryview:
        """The packed bytes, 40 a key, to read only."""
        return memoryview(self._words).toreadonly().cast("B")

    def __buffer__(self, flags: int) -> memoryview:
        return self.data

    @property
    def address(self) -> int:
        """Where they are, valid as long as this object is."""
        return self._words.buffer_info()[0]

    def __len__(self) -> int:
        return len(self._words) // _WORDS

    @overload
    def __getitem__(self, i: int) -> Key: ...

    @overload
    def __getitem__(self, i: slice) -> Keys: ...

    def __getitem__(self, i: Union[int, slice]) -> Union[Key, Keys]:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            if step == 1:
                return Keys.of_words(self._words[start * _WORDS:max(start, stop) * _WORDS])
            return Keys([self[n] for n in range(start, stop, step)])
        n = i + len(self) if i < 0 else i
        if not 0 <= n < len(self):
            raise IndexError("no such key")
        words = self._words[n * _WORDS:(n + 1) * _WORDS]
        return Key(words[:4].tobytes(), words[4])

    def __iter__(self) -> Iterator[Key]:
        return (self[n] for n in range(len(self)))

    def __add__(self, other: Keys) -> Keys:
        return Keys.of_words(self._words + other._words) if isinstance(other, Keys) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self._words == other._words

    def __hash__(self) -> int:
        return hash(self._words.tobytes())

    def __repr__(self) -> str:
        return f"<Keys: {len(self)}>"


def as_keys(keys: Union[Keys, Key, bytes, str, Iterable[KeyLike]]) -> Keys:
    """Keys of whatever a caller gave; one name is one key."""
    if isinstance(keys, Keys):
        return keys
    return Keys([keys] if isinstance(keys, (Key, bytes, str)) else keys)
