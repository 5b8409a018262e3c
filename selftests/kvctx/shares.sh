#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tenants that have a member busy: what each gets of a device that moves 16 MiB a second, and what their own limits are.
# That is little: what they ask for is more even where a processor is emulated by a machine that has other work.
# The pool has room for all that they store; then they store into another one, small and full, where they wait for space.
. "$(dirname "$0")/lib.sh"

engine="--ioengine=external:/usr/lib/kvctx-fio.so --thread --disk_util=0 --verify_load=0 --bs=128k --size=48m --iodepth=64"
seconds=6

# job TENANT FIO-OPTION...: operations of it, by default on each page once; leaves the report in /tmp/TENANT.
# by=exec: in place of the shell, so that whoever knows its process can end it
by=
job() {
	# shellcheck disable=SC2086 # options
	$by timeout -k 5 120 fio $engine --name=job --path="/dev/kvctx/t/$1" --filename=pages --output-format=terse --terse-version=3 \
		--output="/tmp/$1" "${@:2}"
}

# flood TENANT FIO-OPTION...: the same as fast as they go, for a while
flood() { job "$1" --time_based --runtime="$seconds" "${@:2}"; }

# moved TENANT read|write: bytes a second, as fio counts
moved() { awk -F';' -v field="$([ "$2" = read ] && echo 7 || echo 48)" '$1 == 3 { print $field * 1024 }' "/tmp/$1"; }

# counter TENANT NAME
counter() { kvctxctl tenant stat t "$1" | awk -v name="$2" '$1 == name { print $2 }'; }

# both RW RW: alice and bob at the same time; leaves their counters, a dozen times a second or more apart, in /tmp/samples
both() {
	local seconds=110 by=exec samples=0 first second

	flood alice --rw="$1" & first=$!
	flood bob --rw="$2" & second=$!
	: > /tmp/samples
	while [ $((samples++)) -lt 12 ] && kill -0 $first && kill -0 $second; do
		echo sample
		kvctxctl tenant stat t
		sleep 1
	done >> /tmp/samples 2> /dev/null
	kill "$first" "$second"
	wait $first $second
}

# windows load|store: alice's percentage of what both did from each sample to the next, where both were at work also
# before and behind: neither begins or ends in it
windows() {
	awk -v name="$1_bytes" '
		function window(i) {
			if (i > 1 && a[i] > a[i - 1] && b[i] > b[i - 1])
				s[i] = 100 * (a[i] - a[i - 1]) / (a[i] - a[i - 1] + b[i] - b[i - 1])
		}
		$1 == "sample" { n++ }
		$1 == "tenant" { who = $2 }
		$1 == name && who == "t/alice" { a[n] = $2 }
		$1 == name && who == "t/bob" { b[n] = $2 }
		END {
			for (i = 1; i <= n; i++)
				window(i)
			for (i = 1; i <= n; i++)
				if ((i - 1) in s && i in s && (i + 1) in s)
					print s[i]
		}' /tmp/samples | sort -n
}

# share PERCENT load|store: alice got that of what both did, or a tenth more or less. The median tells: the machine may
# stand still now and then
share() {
	local all

	mapfile -t all < <(windows "$2")
	echo "alice's percentages: ${all[*]}"
	[ ${#all[@]} -ge 3 ] &&
		awk -v s="${all[${#all[@]} / 2]}" -v want="$1" 'BEGIN { exit !(s >= want * 0.9 && s <= want * 1.1) }'
}

# paced RW READ|WRITE LEAST MOST: what bob moves alone, bytes a second. Never more; and no less in the best of a few
# runs: the machine may stand still in one
paced() {
	local try

	for try in 1 2 3 4; do
		flood bob --rw="$1"
		echo "bob, run $try: $(moved bob "$2")"
		[ "$(moved bob "$2")" -le "$4" ] || return
		[ "$(moved bob "$2")" -lt "$3" ] || return 0
	done
	return 1
}

dir=/sys/kernel/config/nullb
# device NAME MB
device() {
	local setting

	mkdir "$dir/$1"
	for setting in size="$2" memory_backed=1 mbps=16 power=1; do
		echo "${setting#*=}" > "$dir/$1/${setting%=*}"
	done
}
modprobe null_blk nr_devices=0
device shares 1536
device small 128
modprobe kvctx
check "format and attach" make_pool /dev/shares --segment-size 8M
check "two tenants" bash -c 'kvctxctl tenant add t alice && kvctxctl tenant add t bob'
check "store what alice loads" job alice --rw=write
check "and bob" job bob --rw=write

both randread randread
check "loads: each gets half" share 50 load
both write write
check "stores: each gets half" share 50 store
check "alice is to get three times as much" kvctxctl tenant set t alice --weight 300
both randread randread
check "loads: she does" share 75 load
both write write
check "stores: she does" share 75 store
waits=$(stat_of turn_waits)
check "there was no other way than to wait" test "$waits" -gt 0

check "alone he gets what the device has" paced randread read 12500000 250000000
check "4 MiB a second are enough for bob" kvctxctl tenant set t bob --bandwidth 4M
seconds=10 check "loads are no more, and no less" paced randread read $((3984588 - 13107)) $((4404019 + 13107))
seconds=10 check "neither are stores" paced write write $((3984588 - 13107)) $((4404019 + 13107))
check "nothing waits any more" test "$(counter bob waiting)" = 0
check "two at a time are enough for him" kvctxctl tenant set t bob --bandwidth off --max-inflight 2
seconds=30 flood bob --rw=randread & client=$!
standing() { [ "$(counter bob waiting)" -gt 30 ]; }
until_true 60 standing
inflight=$(counter bob inflight) waits=$(counter bob waiting)
mount -t debugfs none /sys/kernel/debug 2> /dev/null
waiting=/sys/kernel/debug/kvctx/t/waiting
check "and stand in a list for who looks for what does not end" \
	bash -c "[ \$(grep -cE '^paced +-1 +[0-9]+ LOAD +urgent +131072 +[0-9]+ +-$' $waiting) -gt 30 ]"
check "two are in flight, and the others wait ($inflight, $waits)" test "$inflight" -le 2 -a "$waits" -gt 30
wait $client
check "and all are right" test "$(moved bob read)" -gt 0
check "detach" until_true 20 kvctxctl pool detach t

check "a small pool: format and attach" make_pool /dev/small --segment-size 8M
check "two tenants, of whom alice is to get three times as much" \
	bash -c 'kvctxctl tenant add t alice && kvctxctl tenant set t alice --weight 300 && kvctxctl tenant add t bob'
# enough of them that what one segment gives does not leave one of the two with none that waits
engine=${engine/iodepth=64/iodepth=256} engine=${engine/size=48m/size=96m}
both write write
check "stores that wait for space: she does" share 75 store
waits=$(stat_of store_waits)
check "there was no other way than to wait ($waits)" test "$waits" -gt 100
check "detach" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
for device in shares small; do
	echo 0 > $dir/$device/power
	rmdir $dir/$device
done
finish
