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
ways='' devices=()
for ((i = 0; i < members; i++)); do
	way=$(nvmet_ssd "member$i") || give_up "no SSD for member $i"
	nvmet_wait 30 test -b "${way%1}2" || give_up "no second way to member $i"
	ways+=,$way,${way%1}2
	devices+=("/dev/twin$i")
done
modprobe kvctx_twin devices="${ways#,}" || give_up "no disks of $ways"

echo attaching
if crash begun "$account" "$life"; then
	kvctxctl pool attach "${devices[@]}" || give_up "attach"
else
	kvctxctl pool format t "${devices[@]}" --force --segment-size "$segment" && kvctxctl pool attach "${devices[@]}" &&
		kvctxctl tenant add t b || give_up "format"
fi
exec crash "$verb" "$account" "$life" "$kind" "$room"
