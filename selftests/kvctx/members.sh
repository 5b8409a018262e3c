#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Members: both copies of their superblocks, pools with a member missing, members that come back.
. "$(dirname "$0")/lib.sh"
# shellcheck source=selftests/kvctx/grow.sh
. "$here/grow.sh"

a=$(nvmet_null_blk mema 64)
b=$(nvmet_null_blk memb 64)
modprobe kvctx

tail_bytes=131072
blocks_of() { echo $(($(blockdev --getsize64 "$1") / tail_bytes)); }
clear_front() { dd if=/dev/zero of="$1" bs=1M count=1 oflag=direct status=none; }
clear_tail() { dd if=/dev/zero of="$1" bs=$tail_bytes seek=$(($(blocks_of "$1") - 1)) count=1 oflag=direct status=none; }
copy_tail() { dd if="$1" of="$2" bs=$tail_bytes "$3"=$(($(blocks_of "$4") - 1)) count=1 oflag=direct conv=notrunc status=none; }
unplug() { echo 0 > "/sys/kernel/config/nullb/$1/power" && rmdir "/sys/kernel/config/nullb/$1"; }
valid_slots() { ctl_super "$1" show | grep -c ': valid'; }

# Superblocks at both ends
format "$a" > /dev/null
check "a new pool has four slots" test "$(valid_slots "$a")" = 4
attach "$a" > /dev/null
check "store 20 pages" prints 'stored=20' pages store 0 20 100000
check "detach" detach
clear_front "$a"
check "the first MiB is lost: attach" attach "$a"
check "its pages are there" prints 'right=20 wrong=0' pages load 0 20 100000
check "the log says so" bash -c 'dmesg | grep -q "superblock at the front damaged or old, written again"'
check "detach" detach
check "all slots are written again" test "$(valid_slots "$a")" = 4
clear_tail "$a"
check "the end is lost: attach" attach "$a"
check "the log says so" bash -c 'dmesg | grep -q "superblock at the end damaged or old, written again"'
check "detach" detach
check "all slots are written again" test "$(valid_slots "$a")" = 4
attach "$a" > /dev/null
detach
attach "$a" > /dev/null
kvctxctl tenant add t second
detach
# what a partitioning tool writes: a table at the front, its copy in the last 33 sectors
dd if=/dev/urandom of="$a" bs=512 count=34 oflag=direct status=none
dd if=/dev/urandom of="$a" bs=512 seek=$(($(blockdev --getsz "$a") - 33)) count=33 oflag=direct status=none
check "a partition table over it: two slots are left" test "$(valid_slots "$a")" = 2
check "attach" attach "$a"
check "with its pages" prints 'right=20 wrong=0' pages load 0 20 100000
check "and its tenants" test -c /dev/kvctx/t/second
check "detach" detach

# An old copy at the end, of the pool that was there before
format "$b" > /dev/null
copy_tail "$b" /tmp/tail skip "$b"
kvctxctl pool format u "$b" --force --segment-size 2M > /dev/null
dd if=/tmp/tail of="$b" bs=$tail_bytes seek=$(($(blocks_of "$b") - 1)) oflag=direct status=none
check "the front counts" prints 'pool +u' attach "$b"
kvctxctl pool detach u
format "$b" > /dev/null
clear_front "$b"
check "format sees a pool at the end" fails 'member of the pool t' kvctxctl pool format v "$b" --segment-size 1M

# One copy that cannot be written
format "$a" > /dev/null
sectors=$(blockdev --getsz "$a")
dmsetup create mem_tail << TABLE
0 $((sectors - 256)) linear $a 0
$((sectors - 256)) 256 error
TABLE
dm=/dev/dm-$(dmsetup info -c --noheadings -o minor mem_tail)
check "the end cannot be written: attach" attach "$dm"
kvctxctl tenant add t third
check "the member is online" prints ' 0 .*online' kvctxctl pool show t
check "the log says it once" test "$(dmesg | grep -c 'superblock at the end not written')" = 1
check "detach" detach
dmsetup remove mem_tail
check "the front is what was written" attach "$a"
check "with the tenant" test -c /dev/kvctx/t/third
check "detach" detach
clear_front "$a"
check "and the end has got it since" attach "$a"
check "with the tenant" test -c /dev/kvctx/t/third
check "detach" detach

# A member is missing
format "$a" "$b" > /dev/null
attach "$a" "$b" > /dev/null
check "store 200 pages on two members" prints 'stored=200' pages store 0 200 100000
check "flush" prints flushed pages flush
detach
check "one is missing: refused" fails 'member 1 of 2 is missing: uuid' attach "$a"
check "unless degraded is allowed" prints 'state +degraded' attach "$a" --degraded
check "the missing member is shown" prints '1 .*missing' kvctxctl pool show t
there=$(pages load 0 200 100000 | grep -oE 'right=[0-9]+' | cut -d= -f2)
check "some of the pages are there" test "$there" -gt 50 -a "$there" -lt 150
check "the others are told to be on a member that is gone" \
	prints "right=$there wrong=0 bad=0 missing=0 gone=$((200 - there)) errors=0" pages load 0 200 100000
deleted=$(pages delete 0 50 | grep -oE 'deleted=[0-9]+' | cut -d= -f2)
check "those that are there can be deleted" test "$deleted" -gt 0
check "store all but these again" prints 'stored=[0-9]+ .*errors=0' pages store 50 150 100000
check "flush" prints flushed pages flush
check "a tenant comes" kvctxctl tenant add t fourth
check "detach" detach
check "attach with the member that was missing" prints 'state +online' attach "$b" "$a"
check "the tenant is there" test -c /dev/kvctx/t/fourth
check "every page that was stored is right" prints 'right=150 wrong=0 bad=0 missing=0' pages load 50 150 100000
check "those deleted are not, the others of the member are" \
	prints "right=$((50 - deleted)) wrong=0 bad=0 missing=$deleted gone=0" pages load 0 50 100000
check "detach" detach

# The power goes in the attach with a member that was missing, which has the next superblock already
attach "$a" --degraded > /dev/null && detach
dd if="$a" of=/tmp/front bs=$tail_bytes count=1 status=none
dd if="$a" of=/tmp/end bs=$tail_bytes skip=$(($(blocks_of "$a") - 1)) count=1 status=none
attach "$a" "$b" > /dev/null && detach
dd if=/tmp/front of="$a" bs=$tail_bytes oflag=direct status=none
copy_tail /tmp/end "$a" seek "$a"
check "both are attached after that" prints 'state +online' attach "$a" "$b"
check "detach" detach

# Each without the other
attach "$a" --degraded > /dev/null && detach
attach "$b" --degraded > /dev/null && detach
check "two histories are not mixed" fails 'attached without each other' attach "$a" "$b"
check "not with --degraded either" fails 'attached without each other' attach "$a" "$b" --degraded
check "each of them alone is served" prints 'degraded' attach "$b" --degraded
check "detach" detach

# Members that come and go
c=$(nvmet_null_blk memc 64)
s=$(nvmet_null_blk mems 4)
members_come_and_go "$a" "$b" "$c" "$s"
format "$a" "$b" > /dev/null
attach "$a" "$b" > /dev/null
head -c 20M /dev/urandom > /tmp/file
sum=$(md5sum < /tmp/file)
check "a file" fails 'not a block device' kvctxctl pool add t /tmp/file --force
check "which keeps what it holds" test "$(md5sum < /tmp/file)" = "$sum"
rm /tmp/file

# Another member is lost while one leaves
check "detach" until_true 60 detach
format "$a" "$b" "$c" > /dev/null
attach "$a" "$b" "$c" > /dev/null
check "store 60 pages" prints 'stored=60' pages store 0 60 100000
check "flush" prints flushed pages flush
pages lease 0 60 100 > /tmp/lease.out &
lease=$!
check "lease them" until_true 60 grep -q holding /tmp/lease.out
kvctxctl pool remove t "$a" --no-wait > /dev/null
unplug memb
check "the other one is lost" until_true 60 state_is 1 failed
check "the superblocks of the others note it" until_true 60 bash -c "
	kvctxctl dump --force $a -o json | tr -d ' \t\n' | grep -q '\"absent\":true'"
check "the one that was leaving is stuck" until_true 60 state_is 0 stuck
kill $lease
wait $lease 2> /dev/null
check "it stays" bash -c "sleep 1; kvctxctl pool show t | grep -q $a"
check "and so do its pages" prints 'right=40 wrong=0 bad=0 missing=0 gone=20' pages load 0 60 100000
check "detach" until_true 60 detach
check "attach without the lost one" prints degraded attach "$a" "$c" --degraded
check "its pages are there" prints 'right=40 wrong=0 bad=0 missing=0 gone=20' pages load 0 60 100000
check "the missing one is removed" prints removed kvctxctl pool remove t 1
check "what is not there is missing again" prints 'right=40 wrong=0 bad=0 missing=20 gone=0' pages load 0 60 100000
check "the pool is whole" prints 'state +online' kvctxctl pool show t
check "detach" detach
check "attach of the two" attach "$a" "$c"
check "detach" detach

rmmod kvctx
nvmet_teardown
finish
