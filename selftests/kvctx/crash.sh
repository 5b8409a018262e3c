#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The guest of the crash test: attach the pool of this life, which is made first when there is none, and run
# `crash run` on it until the power is cut. The kernel's command line says what pool:
#
#   crash_test=LIFE,VERB,KIND,ROOM,MEMBERS,SEGMENT
#
# QEMU's SSD takes writes with FUA and forgets to force them. So each has two namespaces on one medium, the second of
# which forces every write, and the members are disks that use them both: see twin/kvctx_twin.c.
. "$(dirname "$0")/../vm/guest/nvmet.sh"
PATH=$(dirname "$0")/..:$PATH

IFS=, read -r life verb kind room members segment < <(
	grep -oE 'crash_test=[^ ]+' /proc/cmdline | cut -d= -f2)

give_up() {
	echo "FAILED $*"
	exit 1
}

modprobe kvctx || give_up "no module"
account=$(nvmet_ssd account) || give_up "no disk for the account"
# way CONTROLLER NSID: that namespace; the kernel looks at several at once and numbers them as it meets them
way() {
	local ns

	for ns in /sys/class/block/"$1"n*; do
		[ "$(cat "$ns/nsid")" != "$2" ] || echo "/dev/${ns##*/}"
	done
}

ways='' devices=()
for ((i = 0; i < members; i++)); do
	ssd=$(nvmet_ssd "member$i") || give_up "no SSD for member $i"
	ssd=${ssd##*/} ssd=${ssd%n*}
	if ! nvmet_wait 30 test -b "/dev/${ssd}n1" || ! nvmet_wait 30 test -b "/dev/${ssd}n2"; then
		give_up "not two ways to member $i"
	fi
	ways+=,$(way "$ssd" 1),$(way "$ssd" 2)
	devices+=("/dev/twin$i")
done
modprobe kvctx_twin devices="${ways#,}" || give_up "no disks of $ways"

echo "ways: ${ways#,}"
echo attaching
if crash begun "$account" "$life"; then
	kvctxctl pool attach "${devices[@]}" || give_up "attach"
else
	kvctxctl pool format t "${devices[@]}" --force --segment-size "$segment" && kvctxctl pool attach "${devices[@]}" &&
		kvctxctl tenant add t b || give_up "format"
fi
exec crash "$verb" "$account" "$life" "$kind" "$room"
