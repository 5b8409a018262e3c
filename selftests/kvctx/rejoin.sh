#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Members that were lost and return while the pool is in service, by "kvctxctl pool rejoin": one whose namespace was taken
# away and is there again under another name, and one whose device was there all the time and failed.
#
# - what was durable on it is found again, what was deleted or stored anew meanwhile stays so, also after an attach;
# - a session that works all the time goes on, with nothing wrong;
# - what is not as it was left is refused, and says what to do.
. "$(dirname "$0")/lib.sh"
# shellcheck source=selftests/kvctx/grow.sh
. "$here/grow.sh"

mb=128 pages=200
near=$(nvmet_null_blk near $mb)
far_backing=$(nvmet_null_blk farback $mb)
strange=$(nvmet_null_blk strange 64)
modprobe kvctx member_patience=1
namespace=$nvmet_cfg/subsystems/$(nvmet_nqn far)/namespaces/1
totals=/tmp/rejoin.out

go_away() {
	echo 0 > "$namespace/enable"
	until_true 60 state_is 1 failed
}
# its number is another, as the pool has the old one open
come_back() {
	echo 1 > "$namespace/enable"
	far=$(nvmet_wait 60 nvmet_find far)
}
# has FIRST COUNT REGEX
has() { prints "$3 errors=0" pages load "$1" "$2" 100000; }
whole() { has 0 $pages "right=$pages wrong=0 bad=0 missing=0 gone=0"; }
field() { tail -n 1 $totals | grep -oE "$1=[0-9]+" | cut -d= -f2; }
above() { [ "0$(field "$1")" -gt "$2" ]; }
online() { state_is 1 online && prints 'state +online' kvctxctl pool show t; }
rejoin() { kvctxctl pool rejoin t "$@"; }

check "a target" nvmet_target tcp far "/dev/${far_backing##*/}"
far=$(nvmet_connect tcp far)
check "its namespace ($far)" test -b "$far"
kvctxctl pool format t "$near" "$far" --force --segment-size 2M > /dev/null
check "attach" attach "$near" "$far"
check "nothing is lost" prints 'has lost no member' rejoin
check "who is online is told" refuses 1 'member 1, which is online' rejoin "$far"
check "no such pool" refuses 3 'no pool of this name' kvctxctl pool rejoin u
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000
check "flush" prints flushed pages flush
outage loads $pages > $totals 2>&1 & client=$!
check "a client loads them" until_true 60 grep -q 'right=[1-9]' $totals

# It is taken away, and comes back as it was
check "the namespace goes" go_away
check "the client is told" until_true 60 above enodev 50
check "some pages are gone" has 0 $pages 'right=[1-9][0-9]* wrong=0 bad=0 missing=0 gone=[1-9][0-9]*'
check "delete 20 pages" pages delete 0 20
check "store 20 others, which some are anew" pages store 20 20 100000
check "a tenant comes" kvctxctl tenant add t x
check "flush tells once" bash -c "pages flush; pages flush | grep flushed"
come_back
check "it comes back ($far)" test -b "$far"
ctl_genl events 1 60 > /tmp/rejoin.events & listener=$!
sleep 1
check "rejoin" prints "$far is back in pool t" rejoin "$far"
wait $listener
check "an event tells" grep -q 'POOL_REJOIN pool=t member=1' /tmp/rejoin.events
check "the pool is whole" online
seen=$(field right)
check "the client goes on" until_true 60 above right "$((seen + 500))"
kept="right=$((pages - 20)) wrong=0 bad=0 missing=0 gone=0"
check "every page is there" has 20 $((pages - 20)) "$kept"
check "but those that were deleted" has 0 20 'right=0 wrong=0 bad=0 missing=20 gone=0'
check "new ones are stored" prints 'stored=40' pages store 1000 40 100000
check "flush" prints flushed pages flush
kill -TERM $client
check "the client ends" until_true 60 bash -c "! kill -0 $client"
check "with nothing wrong: $(tail -n 1 $totals)" grep -q 'wrong=0 .*bad=0 .*other=0 .*left=0' <(tail -n 1 $totals)
check "detach" detach
check "attach: both have one history" attach "$near" "$far"
check "the tenant is there" test -c /dev/kvctx/t/x
check "every page is there" has 20 $((pages - 20)) "$kept"
check "but those that were deleted" has 0 20 'right=0 wrong=0 bad=0 missing=20 gone=0'
check "and the new ones" has 1000 40 'right=40 wrong=0 bad=0 missing=0 gone=0'

# In the middle of stores, again and again
outage both $pages > $totals 2>&1 & client=$!
until_true 60 grep -q 'stored=[1-9]' $totals
for i in 1 2 3; do
	check "under stores, $i: it goes" go_away
	come_back
	check "under stores, $i: rejoin" prints "is back" rejoin "$far"
	check "under stores, $i: the pool is whole" online
	seen=$(field stored)
	check "under stores, $i: the client stores" until_true 60 above stored "$((seen + 100))"
done
kill -TERM $client
check "under stores: the client ends" until_true 60 bash -c "! kill -0 $client"
check "with nothing wrong: $(tail -n 1 $totals)" grep -q 'wrong=0 .*bad=0 .*left=0' <(tail -n 1 $totals)
check "flush" bash -c "pages flush; pages flush | grep flushed"
check "detach" detach
check "attach" attach "$near" "$far"
check "nothing is wrong" has 0 $pages 'wrong=0 bad=0 .*gone=0'
check "detach" detach

# Not as it was left
kvctxctl pool format t "$near" "$far" --force --segment-size 2M > /dev/null
check "attach" attach "$near" "$far"
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000
check "flush" prints flushed pages flush
header() { dd bs=4096 count=1 status=none "$@"; }
check "the namespace goes" go_away
header if="/dev/${far_backing##*/}" skip=256 iflag=direct of=/tmp/header
header if=/dev/zero of="/dev/${far_backing##*/}" seek=256 oflag=direct
come_back
check "a header is gone: refused" refuses 1 'segment 0 not as it was left: attach again' rejoin "$far"
check "it stays lost" state_is 1 failed
header if=/tmp/header of="$far" seek=256 oflag=direct
kvctxctl pool format u "$strange" --force --segment-size 2M > /dev/null
check "another pool's is refused" refuses 1 'of another pool, u' rejoin "$strange"
clear_super() { dd if=/dev/zero of="$1" bs=128K count=1 seek="$2" oflag=direct status=none; }
clear_super "$strange" 0
clear_super "$strange" $((64 * 8 - 1))
check "one without a superblock too" refuses 1 'no kvctx superblock' rejoin "$strange"
check "the header is there again: rejoin" prints 'is back' rejoin "$far"
check "every page is there" whole
check "detach" detach
echo 0 > "$namespace/enable"
check "attach without it" attach "$near" --degraded
come_back
check "it was missing from the beginning: refused" refuses 1 'missing at the attach: attach again' rejoin "$far"
check "detach" detach
check "attach" attach "$near" "$far"
check "every page is there" whole
check "detach" detach

# Devices that are there all the time, and fail
dm() { echo "/dev/dm-$(dmsetup info -c --noheadings -o minor "$1")"; }
table() { echo "0 $(blockdev --getsz "$2") $1"; }
works() { dmsetup suspend --noflush "$1"; table "linear $2 0" "$2" | dmsetup load "$1"; dmsetup resume "$1"; }
breaks() { dmsetup suspend --noflush "$1"; table error "$2" | dmsetup load "$1"; dmsetup resume "$1"; }
for n in near:$near far:$far; do
	table "linear ${n#*:} 0" "${n#*:}" | dmsetup create "rejoin_${n%%:*}"
done
one=$(dm rejoin_near) two=$(dm rejoin_far)
kvctxctl pool format t "$one" "$two" --force --segment-size 2M > /dev/null
check "attach" attach "$one" "$two"
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000
check "flush" prints flushed pages flush
fails_with() { pages store "$2" 50 100000 > /dev/null; pages flush > /dev/null; until_true 60 state_is "$1" failed; }
# that a member is lost stands on the device
noted() { until_true 60 bash -c "kvctxctl dump --force $1 -o json | tr -d ' \t\n' | grep -q '\"absent\":true'"; }
breaks rejoin_far "$far"
check "one cannot be written: it is lost" fails_with 1 2000
works rejoin_far "$far"
check "it can: rejoin" prints 'is back' rejoin
check "every page is there" whole
breaks rejoin_near "$near"
check "the other one is lost" fails_with 0 3000
check "which this one notes" noted "$two"
breaks rejoin_far "$far"
check "and then this one" fails_with 1 4000
check "nothing is there" has 0 $pages "right=0 wrong=0 bad=0 missing=0 gone=$pages"
works rejoin_near "$near"
works rejoin_far "$far"
check "the first that was lost is not the first that returns" refuses 1 'others were lost later' rejoin "$one"
check "the last one is" prints 'is back' rejoin "$two"
check "then the other" prints 'is back' rejoin "$one"
check "every page is there" whole
check "they are removed as ever" prints removed kvctxctl pool remove t 0
check "every page is there" whole
check "detach" detach
check "attach" attach "$two"
check "every page is there" whole
check "detach" detach
dmsetup remove rejoin_near
dmsetup remove rejoin_far

rmmod kvctx
nvmet_teardown
finish
