#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Pools found on block devices, attached by name, destroyed: plain ones, one below a mapped device, one that ext4 was made
# over, one namespace by two paths.
. "$(dirname "$0")/lib.sh"

a=$(nvmet_null_blk scana 64)
b=$(nvmet_null_blk scanb 64)
c=$(nvmet_null_blk scanc 64)
format() { kvctxctl pool format "$1" "${@:2}" --force --segment-size 1M -o json | grep -m 1 '"uuid"' | cut -d '"' -f 4; }
scan() { kvctxctl pool scan "$@"; }
detach() { kvctxctl pool detach "$1"; }
# field NAME: of the only pool that a scan finds
field() { scan -o json | tr -d ' \n' | grep -oE "\"$1\":\"?[^\",}]+" | head -n 1 | sed 's/.*:"\?//'; }
is() { [ "$(field "$1")" = "$2" ]; }

check "nothing is there" prints 'No pool found' scan
format t "$b" "$a" > /dev/null
other=$(format u "$c")
check "two pools" bash -c "kvctxctl pool scan | grep -cx 'state  complete' | grep -qx 2"
check "members and their devices" prints " 0  there  -      $b.* 1  there  -      $a.*pool   u" scan
check "they are found without the module" test ! -e /sys/module/kvctx
check "who may not open devices is told" refuses 3 'may not be opened' setpriv --reuid 65534 --clear-groups kvctxctl pool scan
check "only the devices that are named" bash -c "! kvctxctl pool scan $c | grep -q 'pool   t'"

modprobe kvctx
check "attach by name" prints "0 .*$b.*1 .*$a" kvctxctl pool attach t
check "it is attached" prints 'pool   t.uuid   [^ ]*.state  attached' scan
check "attached once" refuses 1 't: is attached' kvctxctl pool attach t
check "not destroyed while it is attached" refuses 1 't: is attached' kvctxctl pool destroy t --force
check "nor its devices" refuses 1 "$a: in use" kvctxctl pool destroy "$a" "$b" --force
check "attach by UUID" prints "$c" kvctxctl pool attach "$other"
check "detach" detach u
check "pages survive the way" bash -c "pages store 0 20 100000 > /dev/null && kvctxctl pool detach t &&
	kvctxctl pool attach t > /dev/null && pages load 0 20 100000 | grep -q right=20"
check "detach" detach t
check "a name that is not there" refuses 3 'nobody: no such pool' kvctxctl pool attach nobody

# One name twice
format u "$b" > /dev/null
check "one of its members is another pool's now" is missing 1
check "two pools of one name" refuses 1 "u: several pools have this name: .*$other" kvctxctl pool attach u
check "the UUID says which" bash -c "kvctxctl pool attach $other | grep $c && kvctxctl pool detach u"
check "destroy by UUID" prints "$c: 4 superblocks erased" kvctxctl pool destroy "$other" --force
check "destroy by name" prints "$b: 4 superblocks erased" kvctxctl pool destroy u --force
check "what is left of the first" bash -c "kvctxctl pool scan | grep -x 'state  degraded'"
check "destroy asks, where there is somebody" refuses 2 'there is none: --force' bash -c "
	kvctxctl pool destroy $a < /dev/null"
check "destroy the rest" kvctxctl pool destroy t --force
check "nothing is found" prints 'No pool found' scan
check "nothing is attached" refuses 3 'no kvctx superblock|no such' kvctxctl pool destroy "$a" --force
check "the module finds nothing either" refuses 1 'no kvctx superblock' kvctxctl pool attach "$a"

# Put to another use
format t "$a" > /dev/null
mkfs.ext4 -q -F -E nodiscard "$a"
check "ext4 is over it" prints "0  overwritten  ext4   $a" scan
check "attach by name refuses" refuses 1 "$a: holds ext4 now" kvctxctl pool attach t
mount -t ext4 "$a" /mnt && seq 100000 > /mnt/file
check "not destroyed while it is mounted" refuses 1 "$a: in use" kvctxctl pool destroy t --force
umount /mnt
check "destroy what is left of the pool" kvctxctl pool destroy t --force
check "it is not found" prints 'No pool found' scan
check "the file system is whole" bash -c "
	mount -t ext4 $a /mnt && seq 100000 | cmp - /mnt/file && umount /mnt && blkid -p $a | grep ext4"

# Below a mapped device
format t "$b" > /dev/null
dmsetup create scan_over --table "0 $(blockdev --getsz "$b") linear $b 0"
over=/dev/dm-$(dmsetup info -c --noheadings -o minor scan_over)
check "the mapped device is the member" bash -c "kvctxctl pool scan | grep -x ' *0  in_use  -      $b' &&
	kvctxctl pool scan | grep -x ' *0  there   -      $over'"
check "and is what is attached" prints "$over" kvctxctl pool attach t
check "detach" detach t
dmsetup remove scan_over
check "destroy" kvctxctl pool destroy t --force

# One namespace, two paths, and nothing that makes one of them
modprobe -r nvme nvme_tcp nvme_loop nvme_rdma nvme_fabrics nvme_core 2> /dev/null
modprobe nvme_core multipath=N
nvmet_target tcp scan "$c"
nqn=$(nvmet_nqn scan)
port=$(nvmet_port loop)
ln -s "$nvmet_cfg/subsystems/$nqn" "$port/subsystems/$nqn"
nvmet_connect tcp scan > /dev/null
nvmet_connect loop scan > /dev/null
until_true 60 bash -c '[ "$(grep -cE " nvme[0-9]+n[0-9]+$" /proc/partitions)" = 2 ]'
read -rd '' first second < <(grep -oE 'nvme[0-9]+n[0-9]+$' /proc/partitions)
format t "/dev/$first" > /dev/null
check "the disk below the target shows the same: refused" refuses 1 "t: member 0 is there twice, $c and /dev/$first" \
	kvctxctl pool attach t
# a mapped device too small to be looked at takes it away
dmsetup create scan_hold --table "0 8 linear $c 0"
check "one is the member, the other its path" bash -c "kvctxctl pool scan | grep -x ' *0  there       -      /dev/$first' &&
	kvctxctl pool scan | grep -x ' *0  other_path  -      /dev/$second'"
check "what is below the target is in use" prints "0  in_use      -      $c" scan
check "attached by one of them" prints "/dev/$second: left out: another path to /dev/$first.*online" kvctxctl pool attach t
check "not destroyed by the other" refuses 1 "/dev/$second: of a pool that is attached" \
	kvctxctl pool destroy "/dev/$second" --force
check "detach" detach t
check "destroyed once" prints "^/dev/$first: 4 superblocks erased.Pool t destroyed.$" kvctxctl pool destroy t --force
check "nothing is left" prints 'No pool found' scan

dmsetup remove scan_hold
rmmod kvctx
nvmet_unload
modprobe -r nvme_core
finish
