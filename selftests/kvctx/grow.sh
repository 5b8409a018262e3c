# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Members that come and go, by kvctxctl: the same for the module and for kvctxd, whoever KVCTX_SOCKET and KVCTX_NODE say.
#
# Sourced behind lib.sh. members_come_and_go takes the paths of three devices of 64 MiB and of one of 4 MiB; no pool t is
# attached before and behind it. members.sh does that in the guest, the tests of kvctxd do it with files.

format() { kvctxctl pool format t "$@" --force --segment-size 1M; }
attach() { kvctxctl pool attach "$@"; }
detach() { kvctxctl pool detach t; }

bytes_on() { kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE "\"index\":$1,.*" | grep -oE '"bytes":[0-9]+' | head -n 1 | cut -d: -f2; }
state_of() { kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE "\"index\":$1,.*" | grep -oE '"state":"[a-z]+"' | head -n 1; }
state_is() { [ "$(state_of "$1")" = "\"state\":\"$2\"" ]; }

# Members are added and removed while a session works
grow_while_a_session_works() {
	format "$a" "$b" > /dev/null
	attach "$a" "$b" > /dev/null
	check "store 200 pages" prints 'stored=200' pages store 0 200 100000
	pages hold 300 > /dev/null &
	session=$!
	check "add a member" prints "$c added to pool t" kvctxctl pool add t "$c" --force
	check "it is shown" prints "2 .*online +$c" kvctxctl pool show t
	check "it is in use" fails 'in use' kvctxctl pool format x "$c"
	check "store 200 more pages" prints 'stored=200' pages store 200 200 100000
	check "some are on it" test "$(bytes_on 2)" -gt 1000000
	check "remove the first, its pages move" prints "removed from pool t" kvctxctl pool remove t "$a" --move
	check "it is shown no more" bash -c "! kvctxctl pool show t | grep -q $a"
	check "all pages are there" prints 'right=400 wrong=0 bad=0 missing=0 gone=0' pages load 0 400 100000
	check "its device is free, and no member" fails 'no kvctx superblock|no member of a pool' attach "$a"
	check "flush" prints flushed pages flush
	on_b=$(($(bytes_on 1) / 100000))
	check "remove another, its pages are dropped" prints "removed from pool t" kvctxctl pool remove t 1 --drop
	check "the others are there" prints "right=$((400 - on_b)) wrong=0 bad=0 missing=$on_b gone=0" pages load 0 400 100000
	check "the last one stays" fails 'no member but [0-9]+ is online' kvctxctl pool remove t "$c"
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
}

# What is no member
grow_refused() {
	format "$a" "$b" > /dev/null
	attach "$a" "$b" > /dev/null
	check "too small for a member" fails 'too small' kvctxctl pool add t "$s" --force
	check "a member of the pool" fails 'in use' kvctxctl pool add t "$b" --force
	check "no device" fails 'No such file|no such device' kvctxctl pool add t /dev/nonesuch
	check "no member" fails 'no member' kvctxctl pool remove t "$c"
	check "no member of this number" fails 'no member' kvctxctl pool remove t 7
	check "nothing came of it" prints '^2$' bash -c "kvctxctl pool show t -o json | grep -c '\"index\"'"
}

# A member leaves, which leases delay; it is not taken at its word before it is over
grow_leases_delay() {
	local before lease leases=/tmp/grow-leases.$$

	check "store 40 pages" prints 'stored=40' pages store 0 40 100000
	check "flush" prints flushed pages flush
	pages lease 0 40 100 > "$leases" &
	lease=$!
	until_true 60 grep -q holding "$leases"
	before=$(bytes_on 0)
	check "both have some of them" test "$before" -gt 0 -a "$before" -lt 4000000
	check "a removal that is not waited for" prints 'leaves pool t' kvctxctl pool remove t "$a" --no-wait
	check "it is leaving" state_is 0 leaving
	check "twice is refused" fails 'leaving already' kvctxctl pool remove t "$a" --no-wait
	check "so is the other one, which is the last" fails 'no member but [0-9]+ is online' kvctxctl pool remove t "$b"
	check "pages are served" prints 'right=40 wrong=0 bad=0 missing=0 gone=0' pages load 0 40 100000
	check "stores go to the other" prints 'stored=10' pages store 100 10 100000
	check "nothing has left" test "$(bytes_on 0)" -ge "$before"
	kill $lease
	wait $lease 2> /dev/null
	rm -f "$leases"
	check "without the leases it goes" until_true 60 bash -c "! kvctxctl pool show t | grep -q $a"
	check "all pages are there" prints 'right=40 wrong=0 bad=0 missing=0 gone=0' pages load 0 40 100000
}

# One that is missing is removed
grow_without_one_that_is_missing() {
	check "detach" until_true 60 detach
	format "$a" "$b" "$c" > /dev/null
	attach "$a" "$b" "$c" > /dev/null
	check "store 60 pages" prints 'stored=60' pages store 0 60 100000
	check "detach" until_true 60 detach
	check "attach without one" prints degraded attach "$a" "$c" --degraded
	there=$(pages load 0 60 100000 | grep -oE 'right=[0-9]+' | cut -d= -f2)
	check "the missing one is removed" prints removed kvctxctl pool remove t 1
	check "its pages are not there" \
		prints "right=$there wrong=0 bad=0 missing=$((60 - there)) gone=0" pages load 0 60 100000
	check "the pool is whole" prints 'state +online' kvctxctl pool show t
	check "detach" until_true 60 detach
	check "attach of the two" attach "$a" "$c"
	check "detach" detach
}

members_come_and_go() {
	local a=$1 b=$2 c=$3 s=$4 session lease on_b there

	grow_while_a_session_works
	grow_refused
	grow_leases_delay
	grow_without_one_that_is_missing
}
