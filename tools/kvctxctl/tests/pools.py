# SPDX-License-Identifier: GPL-2.0
"""Pools on files, for the tests of check and dump: made by the programs of operations that selftests/core/fuzz.h tells
of, so that what is sound and what is hostile comes from the same place."""
import os
import struct
import subprocess

import tool

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../selftests/core/corpus/image")
SEGMENT = 256 << 10
BLOCK = 4096
DATA = 1 << 20


def op(code, a=0, b=0, c=0, x=0, y=0):
    return struct.pack("<BBBBIQ", code, a, b, c, x & 0xffffffff, y & 0xffffffffffffffff)


def size(members=2, segments=4):
    """Chunks of 4 KiB, segments of 256 KiB. First in each program"""
    return op(0, members - 1, segments - 4)


def log(member, segment, generation):
    return op(0, member, segment, 7, 0, generation)


def page(key, block_from_end, length, seq, tenant=0, epoch=0):
    return op(1, key, tenant | epoch << 3, block_from_end, length, seq)


def tombstone(key, member, segment, generation, seq):
    return op(2, key, 0, member, segment, (generation - 1) << 32 | seq)


def end():
    return op(4)


def change_super(member, slot, offset, value):
    """Four bytes, checksum right"""
    return op(5, member, slot, 2 << 1, offset, value)


def write(program, name="pool"):
    """The paths of the devices"""
    folder = os.path.join(tool.DIR, name)
    os.makedirs(folder)
    if isinstance(program, (bytes, list)):
        path = folder + ".program"
        with open(path, "wb") as f:
            f.write(b"".join(program) if isinstance(program, list) else program)
    else:
        path = program
    subprocess.run([os.path.join(tool.OUT, "test/core-fuzz"), "--write", path, folder], check=True)
    return [os.path.join(folder, n) for n in sorted(os.listdir(folder))]


def sound():
    """
    Two members. Pages 1, 2, 3 of tenant 0 and 4 of tenant 1 on member 0, segment 1, in two extents; page 2 is deleted by a
    tombstone on member 1, segment 2, where page 5 is; 6 is of an epoch of tenant 1 that never was. 9,000 bytes each
    """
    return [
        size(),
        log(0, 1, 5), page(1, 2, 9000, 1), page(2, 5, 9000, 2), end(), page(3, 8, 9000, 3), page(4, 11, 9000, 4, 1), end(),
        log(1, 2, 6), page(5, 2, 9000, 5), tombstone(2, 0, 1, 6, 7), page(6, 5, 9000, 6, 1, 1), end(),
    ]


def block(segment, number):
    """Where a block of a segment is on its device"""
    return DATA + segment * SEGMENT + number * BLOCK


def flip(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0] ^ 4
        f.seek(offset)
        f.write(bytes([byte]))
