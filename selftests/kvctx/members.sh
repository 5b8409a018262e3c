#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Members: both copies of their superblocks, pools with a member missing, members that come back.
. "$(dirname "$0")/lib.sh"

a=$(nvmet_null_blk mema 64)
b=$(nvmet_null_blk memb 64)
modprobe kvctx

tail_bytes=131072
blocks_of() { echo $(($(blockdev --getsize64 "$1") / tail_bytes)); }
format() { kvctxctl pool format t "$@" --force --segment-size 1M; }
attach() { kvctxctl pool attach "$@"; }
detach() { kvctxctl pool detach t; }
clear_front() { dd if=/dev/zero of="$1" bs=1M count=1 oflag=direct status=none; }
clear_tail() { dd if=/dev/zero of="$1" bs=$tail_bytes seek=$(($(blocks_of "$1") - 1)) count=1 oflag=direct status=none; }
copy_tail() { dd if="$1" of="$2" bs=$tail_bytes "$3"=$(($(blocks_of "$4") - 1)) count=1 oflag=direct conv=notrunc status=none; }
unplug() { echo 0 > "/sys/kernel/config/nullb/$1/power" && rmdir "/sys/kernel/config/nullb/$1"; }
valid_slots() { ctl_super "$1" show | grep -c ': valid'; }

# fails REGEX COMMAND...: whatever the status is, the sentence counts
fails() {
	local re=$1 out

	shift
	out=$("$@" 2>&1) && return 1
	printf '%s\n' "$out"
	[[ $out =~ $re ]]
}

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

# Members are added and removed while a session works
c=$(nvmet_null_blk memc 64)
format "$a" "$b" > /dev/null
attach "$a" "$b" > /dev/null
check "store 200 pages" prints 'stored=200' pages store 0 200 100000
(exec 3<> /dev/kvctx/t/default; sleep 300) &
session=$!
check "add a member" prints "$c added to pool t" kvctxctl pool add t "$c" --force
check "it is shown" prints "2 .*online +$c" kvctxctl pool show t
check "it is in use" fails 'in use' kvctxctl pool format x "$c"
check "store 200 more pages" prints 'stored=200' pages store 200 200 100000
bytes_on() { kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE "\"index\":$1,.*" | grep -oE '"bytes":[0-9]+' | head -n 1 | cut -d: -f2; }
check "some are on it" test "$(bytes_on 2)" -gt 1000000
check "remove the first, its pages move" prints "removed from pool t" kvctxctl pool remove t "$a" --move
check "it is shown no more" bash -c "! kvctxctl pool show t | grep -q $a"
check "all pages are there" prints 'right=400 wrong=0 bad=0 missing=0 gone=0' pages load 0 400 100000
check "its device is free, and no member" fails 'no kvctx superblock' attach "$a"
check "flush" prints flushed pages flush
on_b=$(($(bytes_on 1) / 100000))
check "remove another, its pages are dropped" prints "removed from pool t" kvctxctl pool remove t 1 --drop
check "the others are there" prints "right=$((400 - on_b)) wrong=0 bad=0 missing=$on_b gone=0" pages load 0 400 100000
check "the last one stays" fails 'is the last one' kvctxctl pool remove t "$c"
check "a device of a pool is not taken" fails 'member of the pool' bash -c "
	kvctxctl pool format u $b --force --segment-size 1M && kvctxctl pool add t $b"
check "a device comes again" prints 'added' kvctxctl pool add t "$a" --force
kill $session
wait $session 2> /dev/null
check "detach" until_true 60 detach
check "attach what is left" prints 'state +online' attach "$a" "$c"
check "with its pages" prints "right=$((400 - on_b)) wrong=0 bad=0 missing=$on_b" pages load 0 400 100000
check "detach" detach
check "a removed member is not taken" fails 'another pool|no kvctx' attach "$a" "$b" "$c"

# What is no member
format "$a" "$b" > /dev/null
attach "$a" "$b" > /dev/null
s=$(nvmet_null_blk mems 4)
check "too small for a member" fails 'too small' kvctxctl pool add t "$s" --force
check "a member of the pool" fails 'in use' kvctxctl pool add t "$b" --force
check "no device" fails 'No such file|no such device' kvctxctl pool add t /dev/nonesuch
head -c 20M /dev/urandom > /tmp/file
sum=$(md5sum < /tmp/file)
check "a file" fails 'not a block device' kvctxctl pool add t /tmp/file --force
check "which keeps what it holds" test "$(md5sum < /tmp/file)" = "$sum"
rm /tmp/file
check "no member" fails 'no member' kvctxctl pool remove t "$c"
check "no member of this number" fails 'no member' kvctxctl pool remove t 7
check "nothing came of it" prints '^2$' bash -c "kvctxctl pool show t -o json | grep -c '\"index\"'"

# A member leaves, which leases delay; it is not taken at its word before it is over
state_of() { kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE "\"index\":$1,.*" | grep -oE '"state":"[a-z]+"' | head -n 1; }
state_is() { [ "$(state_of "$1")" = "\"state\":\"$2\"" ]; }
check "store 40 pages" prints 'stored=40' pages store 0 40 100000
check "flush" prints flushed pages flush
pages lease 0 40 100 > /dev/null &
lease=$!
sleep 1
check "a removal that is not waited for" prints 'leaves pool t' kvctxctl pool remove t "$a" --no-wait
check "it is leaving" state_is 0 leaving
check "twice is refused" fails 'leaving already' kvctxctl pool remove t "$a" --no-wait
check "so is the other one, which is the last" fails 'is the last one' kvctxctl pool remove t "$b"
check "pages are served" prints 'right=40 wrong=0 bad=0 missing=0 gone=0' pages load 0 40 100000
check "stores go to the other" prints 'stored=10' pages store 100 10 100000
check "nothing has left" test "$(bytes_on 0)" -ge 2000000
kill $lease
wait $lease 2> /dev/null
check "without the leases it goes" until_true 20 bash -c "! kvctxctl pool show t | grep -q $a"
check "all pages are there" prints 'right=40 wrong=0 bad=0 missing=0 gone=0' pages load 0 40 100000

# Another member is lost while one leaves
check "detach" until_true 60 detach
format "$a" "$b" "$c" > /dev/null
attach "$a" "$b" "$c" > /dev/null
check "store 60 pages" prints 'stored=60' pages store 0 60 100000
check "flush" prints flushed pages flush
pages lease 0 60 100 > /dev/null &
lease=$!
sleep 1
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
