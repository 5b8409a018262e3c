#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What happens to NVMe/TCP members: the target goes, the link is cut, the controller is reset, the transport gives up, the
# namespace is removed and comes back as it was or as another, single blocks fail. A client works all the time; in each case
#
# - every operation ends, with its page or a tabled error, and no byte is wrong;
# - the other member serves meanwhile;
# - a member that comes back before the transport gives up was never lost, and serves again without an attach;
# - one that was given up is told (event, pool show), and found again by an attach where its content is as it was left.
. "$(dirname "$0")/lib.sh"
# shellcheck source=selftests/kvctx/grow.sh
. "$here/grow.sh"

mb=256
near=$(nvmet_null_blk near $mb)
far_backing=$(nvmet_null_blk farback $mb)
modprobe kvctx
pages=200
totals=/tmp/outage.out
# how soon the transport notices, tries again, ends what waits, and gives up; -1: never
noticed=2 again=1 never=-1
export_dir=$nvmet_cfg/ports/1/subsystems
nqn=$(nvmet_nqn far)
namespace=$nvmet_cfg/subsystems/$nqn/namespaces/1

# connect FAST_IO_FAIL CTRL_LOSS: prints the namespace
connect() {
	nvmet_connect tcp far --keep-alive-tmo=$noticed --reconnect-delay=$again --ctrl-loss-tmo="$2" --fast_io_fail_tmo="$1"
}
controller() {
	local c

	for c in /sys/class/nvme/*; do
		[ "$(cat "$c/subsysnqn" 2> /dev/null)" != "$nqn" ] || echo "$c"
	done
}
live() { [ "$(cat "$(controller)/state")" = live ]; }
broken() { ! live; }
fresh() { kvctxctl pool format t "$near" "$far" --force --segment-size 2M && attach "$near" "$far"; }

# work loads|both: the client begins, and has loaded something
work() {
	outage "$1" $pages > $totals 2>&1 & client=$!
	until_true 60 grep -q 'right=[1-9]' $totals
}
field() { tail -n 1 $totals | grep -oE "$1=[0-9]+" | cut -d= -f2; }
# above FIELD N
above() { [ "0$(field "$1")" -gt "$2" ]; }
# the client ends by itself, once nothing of it is in flight
rest() { kill -TERM $client && until_true 120 bash -c "! kill -0 $client"; }
# ended REGEX: what it has to tell at its end
ended() { tail -n 1 $totals; tail -n 1 $totals | grep -qE "$1"; }
# the other member serves: half of the pages have been stored there. A load has a deadline
serves() {
	local n

	n=$(timeout -s KILL 120 tags late 160 | grep -oE '^right=[0-9]+' | cut -d= -f2)
	echo "right: $n"
	[ "0$n" -ge 40 ]
}
stores() { prints 'right=[1-9]' timeout -s KILL 120 tags store "$1" 50; }
all_right() { prints "right=$pages wrong=0 bad=0 missing=0 gone=0 errors=0" pages load 0 $pages 100000; }

# outage WHAT REGEX: it went, served, came back; nothing had to be attached
outage_over() {
	check "$1: the member is there again" until_true 60 live
	seen=$(field right)
	check "$1: the client goes on" until_true 60 above right "$((seen + 500))"
	check "$1: it ends, and nothing is in flight" rest
	check "$1: $(tail -n 1 $totals)" ended "$2"
	check "$1: the member was never lost" state_is 1 online
	check "$1: every page is there" all_right
}
clean='wrong=0 missing=0 bad=0 eio=0 enodev=0 other=0 stored=0 refused=0 left=0'

check "a target" nvmet_target tcp far "/dev/${far_backing##*/}"
far=$(connect $never 3600)
check "its namespace ($far)" test -b "$far"
check "format and attach" fresh
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000

# What waits, waits, and is answered when the target is back
work loads
check "target gone" rm "$export_dir/$nqn"
check "target gone: noticed" until_true 30 broken
check "target gone: the other member serves" serves
check "target gone: and stores" stores 1000
ln -s "$nvmet_cfg/subsystems/$nqn" "$export_dir/$nqn"
outage_over "target gone" "$clean"

work loads
check "link cut" ip link set lo down
check "link cut: noticed" until_true 60 broken
check "link cut: the other member serves" serves
ip link set lo up
outage_over "link cut" "$clean"

work loads
for i in 1 2 3; do
	check "reset $i" bash -c "echo 1 > $(controller)/reset_controller"
	until_true 30 live
done
outage_over "reset" "$clean"

# Stores too: what is evicted for them is not told. Who sends into a connection that the target has closed is no
# worse off for it: the socket has a signal for that, and NVMe/TCP may send in the context of who submits
for i in 1 2 3 4 5 6 7 8; do
	work both
	rm "$export_dir/$nqn"
	until_true 30 broken
	ln -s "$nvmet_cfg/subsystems/$nqn" "$export_dir/$nqn"
	until_true 30 live
	check "gone under stores, $i: it ends, alive until then" rest
	check "gone under stores, $i: $(tail -n 1 $totals)" ended 'wrong=0 .*bad=0 eio=0 enodev=0 other=0 .*left=0'
done
check "gone under stores: the member was never lost" state_is 1 online
check "detach" until_true 60 detach

# What waits is ended soon, the member stays
nvmet_disconnect far
far=$(connect 3 3600)
check "connect, to wait three seconds at most" test -b "$far"
check "format and attach" fresh
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000
check "flush" prints flushed pages flush
work loads
check "given up for now" rm "$export_dir/$nqn"
check "given up for now: loads fail" until_true 60 above eio 100
check "given up for now: the other member serves" serves
ln -s "$nvmet_cfg/subsystems/$nqn" "$export_dir/$nqn"
outage_over "given up for now" 'wrong=0 missing=0 bad=0 eio=[1-9][0-9]* enodev=0 other=0 .*left=0'

# Stores too: a summary that cannot be written waits for the device
work both
check "given up for now, under stores" rm "$export_dir/$nqn"
check "given up for now, under stores: they fail" until_true 60 above refused 50
check "given up for now, under stores: the other member serves" serves
ln -s "$nvmet_cfg/subsystems/$nqn" "$export_dir/$nqn"
check "given up for now, under stores: a flush is done when it is back" prints flushed timeout 60 pages flush
check "given up for now, under stores: it ends" rest
check "given up for now, under stores: $(tail -n 1 $totals)" ended 'wrong=0 .*bad=0 .*enodev=0 other=0 .*left=0'
check "given up for now, under stores: the member was never lost" state_is 1 online
check "detach" until_true 60 detach
check "attach" attach "$near" "$far"
check "its pages are found again" prints 'wrong=0 bad=0 .*gone=0 errors=0' pages load 0 $pages 100000
check "detach" until_true 60 detach

# The transport gives up: the device is gone
nvmet_disconnect far
far=$(connect $never 5)
check "connect, for five seconds without the target" test -b "$far"
check "attach" attach "$near" "$far"
work both
ctl_genl events 1 120 > /tmp/outage.events & listener=$!
sleep 1
check "given up" rm "$export_dir/$nqn"
check "given up: loads tell" until_true 90 above enodev 100
check "given up: it is told" until_true 60 state_is 1 failed
wait $listener
check "given up: by an event ($(tail -n 1 /tmp/outage.events))" grep -q 'MEMBER_LOST pool=t member=1' /tmp/outage.events
check "given up: the other member serves" serves
check "given up: and stores" stores 2000
check "given up: it ends" rest
check "given up: $(tail -n 1 $totals)" ended 'wrong=0 .*bad=0 .*other=0 .*left=0'
ln -s "$nvmet_cfg/subsystems/$nqn" "$export_dir/$nqn"
far=$(connect $never 3600)
check "given up: the target is back" test -b "$far"
check "detach" until_true 60 detach
check "attach" attach "$near" "$far"
check "its pages are found again" prints 'wrong=0 bad=0 .*gone=0 errors=0' pages load 0 $pages 100000
check "the member is online" state_is 1 online
check "detach" until_true 60 detach

# The namespace is taken away, and comes back. What is looked for on the device below shall be there once
dd if=/dev/zero of="$far" bs=1M count=$mb oflag=direct status=none
check "format and attach" fresh
check "store $pages pages" prints "stored=$pages" pages store 0 $pages 100000
check "flush" prints flushed pages flush
work loads
echo 0 > "$namespace/enable"
check "namespace removed: it is told" until_true 60 state_is 1 failed
check "namespace removed: loads tell" until_true 60 above enodev 100
check "namespace removed: the other member serves" serves
check "namespace removed: it ends" rest
check "namespace removed: $(tail -n 1 $totals)" ended 'wrong=0 missing=0 bad=0 .*other=0 .*left=0'
# come_back: its number may be another, as long as somebody has the old one open
come_back() {
	echo 1 > "$namespace/enable"
	far=$(nvmet_wait 60 nvmet_find far)
}
come_back
check "it is back ($far)" test -b "$far"
check "detach" until_true 60 detach
check "attach" attach "$near" "$far"
check "as it was: every page is there" all_right
check "detach" until_true 60 detach

# Blocks that cannot be read: what is on them fails, and nothing else
bad_page=0
until bad_at=$(pages flip "/dev/${far_backing##*/}" $bad_page 5000 | grep -oE '[0-9]+$'); do
	bad_page=$((bad_page + 1))
done
pages flip "/dev/${far_backing##*/}" $bad_page 5000 > /dev/null
badblocks() { echo "$1$((bad_at / 512))-$((bad_at / 512 + 7))" > "$nvmet_null_cfg/farback/badblocks"; }
check "a block of page $bad_page is bad, at $bad_at" badblocks +
check "attach" attach "$near" "$far"
check "bad block: its page fails, and no other" \
	prints "right=$((pages - 1)) wrong=0 bad=0 missing=0 gone=1 errors=0" pages load 0 $pages 100000
work loads
check "bad block: loads tell, again and again" until_true 60 above eio 3
check "bad block: it ends" rest
check "bad block: $(tail -n 1 $totals)" ended 'wrong=0 missing=0 bad=0 eio=[1-9][0-9]* enodev=0 other=0 .*left=0'
check "bad block: the member is online" state_is 1 online
check "the block is good" badblocks -
check "every page is there" all_right
check "detach" until_true 60 detach

# swap_for MB: another namespace, with the same bytes as far as they go
swap_for() {
	local to

	echo 0 > "$namespace/enable"
	to=$(nvmet_null_blk "far$1" "$1")
	dd if="/dev/${far_backing##*/}" of="$to" bs=1M oflag=direct status=none 2> /dev/null
	printf %s "$to" > "$namespace/device_path"
	come_back
}
swap_for $((mb / 2))
check "it is back with half its size ($far)" test -b "$far"
check "which is refused" refuses 1 'too small' attach "$near" "$far"
swap_for $((mb * 3 / 2))
check "it is back and larger ($far)" test -b "$far"
check "attach" attach "$near" "$far"
check "larger: every page is there" all_right
check "detach" until_true 60 detach

echo 0 > "$namespace/enable"
dd if=/dev/zero of="/dev/${far_backing##*/}" bs=1M count=$mb oflag=direct status=none
printf %s "/dev/${far_backing##*/}" > "$namespace/device_path"
come_back
check "it is back with nothing on it ($far)" test -b "$far"
check "which is no member" refuses 1 'no kvctx superblock|no member of a pool' attach "$near" "$far"
check "and misses" refuses 1 'missing' kvctxctl pool attach "$near"
check "without it" prints degraded kvctxctl pool attach "$near" --degraded
check "its pages are told to be gone" prints 'wrong=0 bad=0 missing=0 gone=[1-9][0-9]* errors=0' pages load 0 $pages 100000
check "detach" until_true 60 detach

nvmet_teardown
check "unload" until_true 60 kvctxctl unload
finish
