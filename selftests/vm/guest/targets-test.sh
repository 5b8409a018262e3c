#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In the guest: set up one target on each kind of backing device over each
# transport, move data through it, take all of it down and see that nothing
# is left. Prints one "ok" or "not ok" line a case. Wants an SSD kvctx0.
set -uo pipefail
. "$(dirname "$0")/nvmet.sh"

failed=0

# check NAME COMMAND...
check() {
	local name=$1

	shift
	if "$@"; then
		echo "ok $name"
	else
		echo "not ok $name"
		failed=1
	fi
}

backing() {
	case $1 in
		null_blk) nvmet_null_blk nb0 64 ;;
		file) nvmet_file f0 64 ;;
		ssd) nvmet_ssd kvctx0 ;;
	esac
}

# What is written through the fabric must be on the backing device, and what is
# read back must be what was written.
same_data() {
	local backing=$1 dev=$2

	head -c 4M /dev/urandom > /tmp/pattern
	dd if=/tmp/pattern of="$dev" bs=64k oflag=direct conv=fsync status=none &&
		dd if="$dev" bs=256k count=16 iflag=direct status=none |
			cmp - /tmp/pattern &&
		dd if="$backing" bs=1M count=4 iflag=direct status=none |
			cmp - /tmp/pattern
}

round_trip() {
	local transport=$1 kind=$2 backing dev

	backing=$(backing "$kind") &&
		nvmet_target "$transport" t0 "$backing" &&
		dev=$(nvmet_connect "$transport" t0) &&
		[ "$(cat "/sys/block/${dev#/dev/}/uuid")" = "$(nvmet_uuid t0)" ] &&
		same_data "$backing" "$dev" &&
		nvmet_disconnect t0 &&
		! nvmet_find t0 &&
		dev=$(nvmet_connect "$transport" t0) &&
		same_data "$backing" "$dev"
}

nothing_left() {
	nvmet_teardown && nvmet_teardown &&
		! grep -qs -e tcp -e loop -e rdma /sys/class/nvme/*/transport &&
		[ -z "$(find "$nvmet_cfg"/subsystems "$nvmet_cfg"/ports -mindepth 1)" ] &&
		[ -z "$(losetup --list --noheadings)" ] &&
		[ ! -b /dev/nb0 ] && [ ! -e "/sys/class/net/$nvmet_netdev" ]
}

two_at_once() {
	local a b

	a=$(nvmet_null_blk nb0 16) && b=$(nvmet_file f0 16) &&
		nvmet_target tcp t0 "$a" && nvmet_target tcp t1 "$b" &&
		a=$(nvmet_connect tcp t0) && b=$(nvmet_connect tcp t1) &&
		[ "$a" != "$b" ] && nvmet_remove t0 && ! nvmet_find t0 &&
		[ "$(nvmet_find t1)" = "$b" ] &&
		dd if="$b" of=/dev/null bs=1M count=1 iflag=direct status=none
}

missing_device() {
	! nvmet_target tcp t0 /dev/none 2> /dev/null &&
		[ ! -d "$nvmet_cfg/subsystems/$(nvmet_nqn t0)" ]
}

for case in tcp/null_blk tcp/ssd loop/file loop/null_blk rdma/null_blk; do
	check "$case: data passes" round_trip "${case%/*}" "${case#*/}"
	check "$case: nothing is left" nothing_left
done
check "two targets on one port" two_at_once
check "teardown while connected" nothing_left
check "a missing device is refused, nothing is left" missing_device
check "modules unload" nvmet_unload
exit $failed
