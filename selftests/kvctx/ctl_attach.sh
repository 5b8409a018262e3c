#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Attach and what it refuses, with the message that it gives: each case makes the device that deserves it.
. "$(dirname "$0")/lib.sh"

a=$(nvmet_null_blk ctla 64)
b=$(nvmet_null_blk ctlb 64)
small=$(nvmet_null_blk ctls 32)
tiny=$(nvmet_null_blk ctlt 1)
super_bytes=131072			# both slots of a copy
modprobe kvctx

format() { kvctxctl pool format "$1" "${@:2}" --force --segment-size 1M; }
attach() { kvctxctl pool attach "$@"; }
detach() { kvctxctl pool detach "${1:-t}"; }
copy_super() { dd if="$1" of="$2" bs=$super_bytes count=1 oflag=direct iflag=direct status=none; }

# refused REGEX DEVICE...: attach fails with that sentence, and nothing is left attached
refused() {
	fails "$1" attach "${@:2}" && [ -z "$(ls /dev/kvctx 2> /dev/null)" ]
}

check "a blank device" refused "$a: no kvctx superblock" "$a"
check "a device too small for any" refused "$tiny: no kvctx superblock" "$tiny"
check "a path without a node" refused '/dev/nothing: no such device node' /dev/nothing
check "a character device" refused '/dev/null: not a block device' /dev/null
check "a directory" refused '/tmp: not a block device' /tmp
check "a long path keeps its end, and the reason" bash -c '
	kvctxctl pool attach /dev/disk/by-id/nvme-uuid.0123456789abcdef0123456789abcdef0123456789abcdef 2>&1 |
		grep -E "\.\.\..*89abcdef: no such device node"'

format t "$a" > /dev/null
check "attach a pool" attach "$a"
check "its device is in use" fails "$a: in use" attach "$a"
check "nobody else may take the device" fails 'busy|Busy|in use' mkswap "$a"
copy_super "$a" "$b"
check "a pool of the same name" fails 'a pool named t is attached already' attach "$b"
check "detach" detach
check "two copies of one member" refused "member 0, and so is another device" "$a" "$b"

check "the same device twice" refused "$a: given twice" "$a" "$a"
ln -sf "$a" /tmp/link-to-a
check "the same device by another path" refused '/tmp/link-to-a: given twice' "$a" /tmp/link-to-a

mkswap "$b" > /dev/null && swapon "$b"
check "a device used for swap" refused "$b: in use" "$b"
swapoff "$b"
dmsetup create ctl_over --table "0 1024 linear $a 0"
check "a device below a mapped one" refused "$a: in use" "$a"
dmsetup remove ctl_over
blockdev --setro "$a"
check "a read-only device" refused "$a: may not be written" "$a"
blockdev --setrw "$a"

copy_super "$a" "$small"
check "a device too small for its pool" refused "$small: too small, the pool needs 6[0-9]* bytes" "$small"

# Damage
ctl_super "$a" damage 0
check "one damaged slot does not matter" attach "$a"
check "detach" detach
format t "$a" > /dev/null
ctl_super "$a" wipe 1
check "one missing slot does not matter" attach "$a"
check "detach" detach
ctl_super "$a" damage 0
ctl_super "$a" damage 1
ctl_super "$a" damage 2
ctl_super "$a" damage 3
check "all slots damaged" refused "$a: superblock damaged: checksum" "$a"

for change in version=2 incompat=2 ro_compat=4; do
	format t "$a" > /dev/null
	ctl_super "$a" $change
	check "a newer format: $change" refused "$a: superblock: .*(version|feature)" "$a"
done
for change in nr_members=0 nr_members=65 nr_members=4000000000 member_index=1 member_index=4294967295 \
		segment_size=0 segment_size=1048577 segment_size=0xffffffffffffffff chunk_size=0 chunk_size=3 \
		chunk_size=0x80000000 tenant_flags=1 tenant_flags=2 seq_add=0xffffffffffffff00; do
	format t "$a" > /dev/null
	ctl_super "$a" $change
	check "a hostile superblock: $change" refused "$a: superblock damaged: " "$a"
done
format t "$a" > /dev/null
ctl_super "$a" uid=4294967295
check "a tenant of no user is root's" bash -c "
	kvctxctl pool attach $a && [ \$(stat -c %u /dev/kvctx/t/default) = 0 ] && kvctxctl pool detach t"
dmsetup create ctl_bad --table "0 $(blockdev --getsz "$a") error"
bad=/dev/dm-$(dmsetup info -c --noheadings -o minor ctl_bad)
check "a superblock that cannot be read" refused "$bad: superblock cannot be read" "$bad"
dmsetup remove ctl_bad

# Put to another use: what is left of the pool at the end is not taken for a member, and nothing is written
foreign() {
	local what=$1 dev=$2 before

	shift 2
	format t "$dev" > /dev/null && "$@" > /dev/null 2>&1 || return
	sync "$dev"
	before=$(sha256sum < "$dev")
	ctl_super "$dev" show | grep valid && refused "$dev: holds $what now" "$dev" && [ "$(sha256sum < "$dev")" = "$before" ]
}
check "ext4 made over a member" foreign ext4 "$a" mkfs.ext4 -q -F -E nodiscard "$a"
check "it is whole" bash -c "mount -t ext4 $a /mnt && umount /mnt"
check "swap made over a member" foreign swap "$a" mkswap "$a"
check "it is attached once the other is wiped" bash -c "wipefs -qa $a && kvctxctl pool attach $a && kvctxctl pool detach t"
mkfs.ext4 -q -F -E nodiscard "$b"
check "pool add refuses it too" bash -c "
	kvctxctl pool attach $a && ! kvctxctl pool add t $b && blkid -p $b | grep ext4 && kvctxctl pool detach t"
check "pool add takes it by force" bash -c "
	kvctxctl pool attach $a && kvctxctl pool add t $b --force && kvctxctl pool detach t && kvctxctl pool attach $a $b &&
	kvctxctl pool detach t"

# Members
format t "$a" "$b" > /dev/null
check "one member of two" refused 'member 1 of 2 is missing: uuid [0-9a-f-]{36}' "$a"
check "the other" refused 'member 0 of 2 is missing: uuid' "$b"
format u "$small" > /dev/null
check "a member of another pool" refused "$small: of another pool, u" "$a" "$small"
check "a pool of another member" refused "$a: of another pool, t" "$small" "$a"
check "one too many" refused 'of another pool' "$a" "$b" "$small"
# shellcheck disable=SC2046 # one argument a device
check "65 devices" refused 'at most 64 devices' $(yes "$a" | head -n 65)
check "both, in any order" attach "$b" "$a"
check "members keep their place" prints " 1 .*$b" kvctxctl pool show t
check "detach" detach

# A member that missed a change: the newest configuration counts, and reaches it
tail_at=$(($(blockdev --getsize64 "$b") / super_bytes - 1))
dd if="$b" of=/tmp/old-super bs=$super_bytes count=1 status=none
dd if="$b" of=/tmp/old-tail bs=$super_bytes skip=$tail_at status=none
check "attach, add a tenant, detach" bash -c "
	kvctxctl pool attach $a $b && kvctxctl tenant add t late --uid 7 && kvctxctl pool detach t"
dd if=/tmp/old-super of="$b" oflag=direct bs=$super_bytes status=none
dd if=/tmp/old-tail of="$b" oflag=direct bs=$super_bytes seek=$tail_at status=none
check "one member is older" bash -c "! cmp -s <(ctl_super $a show | sed 's/member=.*tenant/tenant/') \
	<(ctl_super $b show | sed 's/member=.*tenant/tenant/')"
check "attach" attach "$b" "$a"
check "the tenant is there" test -c /dev/kvctx/t/late
check "detach" detach
newest() { ctl_super "$1" show | grep -o 'seq=.*' | sort -t= -k2n | tail -n 1 | sed 's/member=[01]//'; }
check "both have the newest configuration" test "$(newest "$a")" = "$(newest "$b")"

check "no refusal left anything in the kernel log but info" bash -c '
	! dmesg | grep kvctx | grep -vE "attached|detached|added|taints|superblock|I/O error"'
rmmod kvctx
nvmet_teardown
finish
