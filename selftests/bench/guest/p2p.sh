#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In a guest with the counting plugin, and below one PCIe switch an SSD and the stand-in for a GPU (see
# selftests/kvctx/p2p-boot): loads and stores between the two, of two sizes, each between two marks.
#
# Prints lines "@insn NUMBER CASE PAGES" as insn.sh does; the target is p2p.
. "$(dirname "$0")/lib.sh"

number=0

# measure OP SIZE COUNT
measure() {
	number=$((number + 1))
	jobs_begin /tmp/p2p.fio
	job kvctx "p2p-$number" "${1/base/load}" "$2" 1 "$3" size=16M memory=peer "peer_file=$peer" \
		"exec_prerun=mark 0" "exec_postrun=mark $number"
	jobs_run /tmp/p2p.json
	echo "@insn $number kvctx.p2p.$1.$2.1.1 $3"
}

modprobe -a kvctx nvme kvctx_peer
function_of=$(grep -lx 0x1110 /sys/bus/pci/devices/*/device | head -n 1)
peer=${function_of%/*}/p2pmem/allocate
[ -e "$peer" ] || stop "no peer memory"
pool_on "$(nvmet_ssd p2p0)"
lay_out 64k 1m
measure base 64k 1
for op in load store; do
	measure $op 64k 256
	measure $op 1m 256
done
cat /proc/kallsyms > /mnt/host/kallsyms
