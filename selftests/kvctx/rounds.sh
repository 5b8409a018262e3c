#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# 50 rounds of load, attach, use, detach, unload: nothing may be left behind.
. "$(dirname "$0")/lib.sh"

rounds=${1:-50}
dev=$(nvmet_ssd kvctx0)	# its memory is outside of the guest

# used_kib: memory in use, without caches and without what each CPU keeps in its own lists of free pages
used_kib() {
	sync
	echo 3 > /proc/sys/vm/drop_caches
	sleep 1
	awk '/^(MemFree|Buffers|Cached):/ { n += $2 } /^ +count:/ { n += $2 * 4 } END { print -n }' \
		/proc/meminfo /proc/zoneinfo
}

round() {
	modprobe kvctx && kvctxctl pool attach "$dev" && pages store 0 20 100000 > /dev/null &&
		[[ $(pages load 0 20 100000) = right=20* ]] && kvctxctl pool detach t && rmmod kvctx
}

modprobe kvctx
check "format" kvctxctl pool format t "$dev" --force --segment-size 1M
rmmod kvctx

bad=0
for i in $(seq 1 "$rounds"); do
	round > /tmp/round.out 2>&1 || { bad=$((bad + 1)); sed 's/^/# /' /tmp/round.out; }
	# the first rounds fill caches that stay
	[ "$i" != 10 ] || before=$(used_kib)
done
after=$(used_kib)
check "$rounds rounds pass" test $bad = 0
echo "# memory in use grew by $((after - before)) KiB over $((rounds - 10)) rounds"
check_growth "and leave no memory behind (less than 64 KiB a round)" test $((after - before)) -lt $(((rounds - 10) * 64))
check "no vmalloc area is left" bash -c '! grep -q kvc /proc/vmallocinfo'
check "no slab cache is left" bash -c '! grep -q ^kvc /proc/slabinfo'
nvmet_teardown
finish
