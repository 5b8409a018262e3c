# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keys: packed names."""
import struct

import pytest

from kvctx import Key, Keys

DIGESTS = [bytes([n]) * 32 for n in range(5)]


def test_digests_are_taken_as_they_are():
    keys = Keys.of_digests(DIGESTS, 3)
    assert len(keys) == 5
    assert list(keys) == [Key(d, 3) for d in DIGESTS]
    assert bytes(keys.data) == b"".join(d + struct.pack("=Q", 3) for d in DIGESTS)
    assert keys == Keys([Key(d, 3) for d in DIGESTS]) == Keys.from_buffer(keys.data)
    assert keys != Keys.of_digests(DIGESTS, 4)
    assert hash(keys) == hash(Keys.of_digests(DIGESTS, 3))


def test_slices_are_keys():
    keys = Keys.of_digests(DIGESTS)
    assert list(keys[1:3]) == list(keys)[1:3]
    assert list(keys[::-2]) == list(keys)[::-2]
    assert list(keys[3:1]) == [] and len(keys[9:]) == 0
    assert keys[-1] == keys[4]
    assert list(keys[:2] + keys[4:]) == list(keys)[:2] + list(keys)[4:]
    for n in (5, -6):
        with pytest.raises(IndexError):
            keys[n]


def test_nothing_is_taken_for_a_key_that_is_none():
    with pytest.raises(TypeError):
        Keys("one name")
    with pytest.raises(ValueError):
        Keys([Key(b"short")])
    with pytest.raises(ValueError):
        Keys.of_digests([b"x" * 32, b"x" * 31])
    with pytest.raises(ValueError):
        Keys.from_buffer(b"x" * 41)
    for qualifier in (-1, 1 << 64):
        with pytest.raises((OverflowError, struct.error)):
            Keys([Key(b"x" * 32, qualifier)])
    assert len(Keys()) == len(Keys.of_digests([])) == 0
