# SPDX-License-Identifier: GPL-2.0
"""What others leave on devices, as far as libblkid looks at it."""
import struct
import zlib

from tool import put


def ext4(path):
    """Enough of an ext4 superblock for libblkid: magic, a revision, an incompatible feature (extents)"""
    sb = bytearray(1024)
    struct.pack_into("<I", sb, 0, 64)           # inodes
    struct.pack_into("<I", sb, 4, 9 * 256)      # blocks
    struct.pack_into("<I", sb, 24, 2)           # log of block size over 1024
    struct.pack_into("<H", sb, 56, 0xEF53)
    struct.pack_into("<I", sb, 76, 1)
    struct.pack_into("<I", sb, 92, 4)           # has_journal
    struct.pack_into("<I", sb, 96, 0x42)        # filetype, extents
    put(path, 1024, bytes(sb))


def xfs(path):
    """The fields of an XFS superblock that libblkid looks at"""
    sb = bytearray(512)
    sb[0:4] = b"XFSB"
    struct.pack_into(">I", sb, 4, 4096)         # block size
    struct.pack_into(">Q", sb, 8, 2304)         # blocks
    struct.pack_into(">I", sb, 80, 1)           # realtime extent
    struct.pack_into(">I", sb, 84, 576)         # blocks of a group
    struct.pack_into(">I", sb, 88, 4)           # groups
    struct.pack_into(">I", sb, 96, 855)         # log blocks
    struct.pack_into(">H", sb, 100, 4)          # version
    struct.pack_into(">H", sb, 102, 512)        # sector size
    struct.pack_into(">H", sb, 104, 256)        # inode size
    struct.pack_into(">H", sb, 106, 16)
    sb[120], sb[121], sb[122], sb[123], sb[124], sb[127] = 12, 9, 8, 4, 10, 25
    put(path, 0, bytes(sb))


def swap(path):
    put(path, 1024, struct.pack("<II", 1, 2000))    # version, last page
    put(path, 4086, b"SWAPSPACE2")


def dos(path):
    """A partition table"""
    entry = struct.pack("<BBBBBBBBII", 0, 0, 1, 0, 0x83, 0, 1, 0, 2048, 4096)
    put(path, 446, entry)
    put(path, 510, b"\x55\xaa")


def lvm(path):
    put(path, 512, b"LABELONE" + struct.pack("<QII", 1, 0, 32) + b"LVM2 001" + b"0" * 32)


def gpt(path, size):
    """The backup at the end and what protects it, as a table whose front was lost"""
    header = bytearray(512)
    header[0:8] = b"EFI PART"
    struct.pack_into("<IIII", header, 8, 0x10000, 92, 0, 0)
    struct.pack_into("<QQQQ", header, 24, size // 512 - 1, 1, 34, size // 512 - 34)
    struct.pack_into("<QIII", header, 72, size // 512 - 33, 128, 128, zlib.crc32(bytes(128 * 128)))
    struct.pack_into("<I", header, 16, zlib.crc32(bytes(header[:92])))
    put(path, size - 512, bytes(header))
    put(path, 446, struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0xee, 255, 255, 255, 1, size // 512 - 1))
    put(path, 510, b"\x55\xaa")
