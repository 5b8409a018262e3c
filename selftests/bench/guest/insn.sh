#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In a guest with one CPU and the counting plugin: run each case once between two marks.
#
#   insn.sh expected
#   insn.sh some|full TARGET...
#
# "expected": kvctx alone, the cases of insn.expected. "some" and "full": kvctx and raw io_uring, for the report.
# Prints a line "@insn NUMBER CASE PAGES" for each measurement; CASE is engine.target.op.size.batch.segments. Leaves the
# kernel's symbols in /mnt/host/kallsyms. The op "base" is a load of one page: what lies between the marks beside the
# pages, as the end of one mark and the start of the next.
#
# Counts of pages are fixed and what is asked for repeats exactly, so that the instructions of the module do too: within
# 0.3 % between boots. SSD and NVMe/TCP are not among the cases "expected": there the number of interrupts depends on the
# clock.
. "$(dirname "$0")/lib.sh"

what=${1?}
shift
engines=kvctx
[ "$what" = expected ] || engines='kvctx raw'
number=0

# measure ENGINE TARGET OP SIZE BATCH SEGMENTS COUNT
measure() {
	local op=$3

	[ "$op" != base ] || op=load
	number=$((number + 1))
	job "$1" "$1-$number" "$op" "$4" "$5" "$7" "exec_prerun=mark 0" "exec_postrun=mark $number"
	[ "$6" = 1 ] || echo "segments=$6" >> "$job_file"
	echo "@insn $number $1.$2.$3.$4.$5.$6 $7"
}

# pages SIZE: enough to be above what happens by the clock, few enough to be quick, and to leave the pool's reclaim alone
pages() {
	case $1 in
		16k) echo 2048 ;;
		64k) echo 1024 ;;
		256k) echo 256 ;;
		1m | 2m) echo 64 ;;
	esac
}

target_begin() {
	[ "$what" = expected ] || fill "$raw_device"
	pool_on "$device"
	lay_out 16k 64k 256k 1m 2m
}

pool_anew() {
	kvctxctl pool detach t > /dev/null
	make_pool "$device" --segment-size 64M > /dev/null || stop "no pool on $device"
	lay_out 16k 64k 256k 2m
}

# target_cases TARGET CASE...: CASE is op.size.batch[.segments]
target_cases() {
	local engine target=$1 op size batch segments case

	shift
	jobs_begin "/tmp/insn-$target.fio"
	for engine in $engines; do
		measure "$engine" "$target" base 64k 1 1 1
		for case; do
			IFS=. read -r op size batch segments <<< "$case"
			measure "$engine" "$target" "$op" "$size" "$batch" "${segments:-1}" "$(pages "$size")"
		done
	done
	jobs_run "/tmp/insn-$target.json"
}

# The figures of the report: STORE and LOAD of each size
report_cases() {
	local op size batch

	for op in load store; do
		for size in 16k 64k 256k 2m; do
			for batch in 1 16 64; do
				if [ "$what" = full ] || [ $batch = 16 ] || [ $size = 64k ]; then
					echo $op.$size.$batch
				fi
			done
		done
	done
}

modprobe kvctx
if [ "$what" = expected ]; then
	device_of null
	target_begin
	target_cases null {load,store}.{16k,64k,1m}.{1,16} {load,store}.64k.16.64
else
	for target; do
		device_of $target
		target_begin
		rounds=1
		[ $target != tcp ] || rounds=5	# how often the workers poll in vain differs by a factor of ten
		for ((round = 1; round <= rounds; round++)); do
			# the stores of several rounds would make reclaim evict some of the pages, and be counted with them
			[ $round = 1 ] || pool_anew
			# shellcheck disable=SC2046 # one argument a case
			target_cases $target $(report_cases)
		done
		kvctxctl pool detach t > /dev/null
	done
fi
# now that all modules are there
cat /proc/kallsyms > /mnt/host/kallsyms
