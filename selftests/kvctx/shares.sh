#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tenants that have a member busy: what each gets of a device that moves 64 MiB a second, and what their own limits are.
# The pool has room for all that they store: where stores wait for space, tenants take turns alike (session/park.c).
. "$(dirname "$0")/lib.sh"

engine="--ioengine=external:/usr/lib/kvctx-fio.so --thread --disk_util=0 --verify_load=0 --bs=128k --size=48m --iodepth=64"
seconds=6

# flood TENANT FIO-OPTION...: operations of it, as fast as they go, for a while; leaves the report in /tmp/TENANT
flood() {
	# shellcheck disable=SC2086 # options
	timeout -k 5 120 fio $engine --name=job --path="/dev/kvctx/t/$1" --filename=pages --time_based --runtime=$seconds \
		--output-format=terse --terse-version=3 --output="/tmp/$1" "${@:2}"
}

# moved TENANT read|write: bytes a second, as fio counts
moved() { awk -F';' -v field="$([ "$2" = read ] && echo 7 || echo 48)" '$1 == 3 { print $field * 1024 }' "/tmp/$1"; }

# counter TENANT NAME
counter() { kvctxctl tenant stat t "$1" | awk -v name="$2" '$1 == name { print $2 }'; }

# both RW RW: alice and bob at the same time
both() {
	flood alice --rw="$1" & local first=$!

	flood bob --rw="$2"
	wait $first
}

# share PERCENT READ|WRITE: alice got that of what both did, or a tenth more or less
share() {
	local a b

	a=$(moved alice "$2") b=$(moved bob "$2")
	echo "alice $a, bob $b"
	awk -v a="$a" -v b="$b" -v want="$1" 'BEGIN { s = 100 * a / (a + b); exit !(s >= want * 0.9 && s <= want * 1.1) }'
}

dir=/sys/kernel/config/nullb/shares
modprobe null_blk nr_devices=0
mkdir $dir
for setting in size=1536 memory_backed=1 mbps=64 power=1; do
	echo "${setting#*=}" > "$dir/${setting%=*}"
done
modprobe kvctx
check "format and attach" make_pool /dev/shares --segment-size 8M
check "two tenants" bash -c 'kvctxctl tenant add t alice && kvctxctl tenant add t bob'
check "store what is loaded" bash -c "$(declare -f flood); engine='$engine' seconds=2
	flood alice --rw=write && flood bob --rw=write"

both randread randread
check "loads: each gets half" share 50 read
both write write
check "stores: each gets half" share 50 write
check "alice is to get three times as much" kvctxctl tenant set t alice --weight 300
both randread randread
check "loads: she does" share 75 read
both write write
check "stores: she does" share 75 write
waits=$(stat_of turn_waits)
check "there was no other way than to wait" test "$waits" -gt 0

flood bob --rw=randread
check "alone he gets what the device has ($(moved bob read))" test "$(moved bob read)" -ge 50000000
check "4 MiB a second are enough for bob" kvctxctl tenant set t bob --bandwidth 4M
seconds=10 flood bob --rw=randread
check "loads are no more, and no less ($(moved bob read))" \
	bash -c "[ $(moved bob read) -le $((4404019 + 13107)) ] && [ $(moved bob read) -ge $((3984588 - 13107)) ]"
seconds=10 flood bob --rw=write
check "neither are stores ($(moved bob write))" \
	bash -c "[ $(moved bob write) -le $((4404019 + 13107)) ] && [ $(moved bob write) -ge $((3984588 - 13107)) ]"
check "nothing waits any more" test "$(counter bob waiting)" = 0
check "two at a time are enough for him" kvctxctl tenant set t bob --bandwidth off --max-inflight 2
flood bob --rw=randread & client=$!
sleep 3
inflight=$(counter bob inflight) waits=$(counter bob waiting)
mount -t debugfs none /sys/kernel/debug 2> /dev/null
waiting=/sys/kernel/debug/kvctx/t/waiting
check "and stand in a list for who looks for what does not end" \
	bash -c "[ \$(grep -cE '^paced +-1 +[0-9]+ LOAD +urgent +131072 +[0-9]+ +-$' $waiting) -gt 30 ]"
check "two are in flight, and the others wait ($inflight, $waits)" test "$inflight" -le 2 -a "$waits" -gt 30
wait $client
check "and all are right" test "$(moved bob read)" -gt 0
check "detach" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
echo 0 > $dir/power
rmdir $dir
finish
