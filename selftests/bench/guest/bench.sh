#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In a guest with two CPUs and two SSDs: everything of the report that is measured by the clock.
#
#   bench.sh some|full PAIRS TARGET...
#
# Runs of raw io_uring and of kvctx alternate. Results go to /mnt/host, progress to the output:
#   NAME.json   as fio wrote it. A job's name is engine.target.op.size.batch.segments.verify.pair; op is load, store,
#               latency (loads at depth 1), mixed (the same beside a stream of stores) or flood (of another tenant's stores)
#   stat        lines "JOB prerun|postrun CPU-LINE" of /proc/stat before and after each job
#   results     lines "@WHAT VALUE...", see the functions below
. "$(dirname "$0")/lib.sh"

scope=${1?} pairs=${2?}
shift 2
out=/mnt/host
work=/tmp/bench
stamp='. /tmp/stat.sh'
crc=/sys/module/kvctx_crc/parameters/ns_per_mib

result() { echo "@$*" >> $out/results; }

# fio runs this before and after each job, in the shell it starts anyway; no program is started in addition
cat > /tmp/stat.sh <<'EOS'
while read -r line; do
	case $line in cpu*) echo "$line" ;; *) break ;; esac
done < /proc/stat
EOS

# cell_run NAME: run the job file, keep what it measured
cell_run() {
	local file job

	mkdir -p $work
	cd $work || exit
	jobs_run "/tmp/$1.json"
	cp "/tmp/$1.json" $out/
	for file in $(compgen -G '*run.txt'); do
		job=${file%.txt}
		sed "s/^/${job%.*} ${job##*.} /" "$file"
	done >> $out/stat
	cd / && rm -r $work
}

# both ENGINE-LIST PAIR: the list, turned round in every other pair
both() {
	local first=${1% *} second=${1#* }

	if [ $(($2 % 2)) = 1 ]; then echo "$first $second"; else echo "$second $first"; fi
}

# count TARGET OP SIZE BATCH: operations of a run that takes about 0.4 s; never a whole pool of stores
count() {
	local n

	case $1.$3 in
		tcp.16k) n=1000 ;;
		tcp.64k) n=700 ;;
		tcp.256k) n=300 ;;
		tcp.2m) n=48 ;;
		*.16k) n=6000 ;;
		*.64k) n=4000 ;;
		*.256k) n=1500 ;;
		*.2m) n=250 ;;
	esac
	if [ "$1.$4" = ssd.1 ]; then
		n=$((n / 4))
	fi
	[ $n -ge $((4 * $4)) ] || n=$((4 * $4))
	echo $n
}

# cell TARGET OP SIZE BATCH: pairs of runs
cell() {
	local target=$1 op=$2 size=$3 batch=$4 pair engine n

	n=$(count "$@")
	jobs_begin /tmp/cell.fio
	for ((pair = 1; pair <= pairs; pair++)); do
		for engine in $(both 'raw kvctx' $pair); do
			job "$engine" "$engine.$target.$op.$size.$batch.1.0.$pair" "$op" "$size" "$batch" \
				"$n" "exec_prerun=$stamp" "exec_postrun=$stamp"
		done
	done
	cell_run "cell.$target.$op.$size.$batch"
	say "$target $op $size batch $batch"
}

bytes() {
	case $1 in
		*k) echo $((${1%k} << 10)) ;;
		*M) echo $((${1%M} << 20)) ;;
	esac
}

# Scattered memory: kvctx through fio, raw through readv, which does what fio has no engine for
scattered() {
	local target=$1 op=$2 size=$3 batch=$4 pair engine n moved

	n=$(count "$@")
	for ((pair = 1; pair <= pairs; pair++)); do
		for engine in $(both 'raw kvctx' $pair); do
			if [ "$engine" = kvctx ]; then
				jobs_begin /tmp/cell.fio
				job kvctx "kvctx.$target.$op.$size.$batch.64.0.$pair" "$op" "$size" "$batch" \
					"$n" segments=64 "exec_prerun=$stamp" "exec_postrun=$stamp"
				cell_run "scattered.$target.$op.$size.$batch.$pair"
			else
				moved=$(readv "$raw_device" "$op" "$(bytes "$size")" "$batch" "$n" 64 "$(bytes $load_span)") ||
					stop "readv failed"
				result "readv raw.$target.$op.$size.$batch.64.0.$pair" "$moved"
			fi
		done
	done
	say "$target $op $size batch $batch, 64 segments"
}

# latency TARGET: percentiles of loads one at a time
latency() {
	local target=$1 pair engine n=4000

	[ "$target" != tcp ] || n=1000
	jobs_begin /tmp/cell.fio
	for ((pair = 1; pair <= pairs; pair++)); do
		for engine in $(both 'raw kvctx' $pair); do
			job "$engine" "$engine.$target.latency.64k.1.1.0.$pair" load 64k 1 $n clat_percentiles=0 lat_percentiles=1
		done
	done
	cell_run "latency.$target"
	say "$target latency"
}

# Pages that are loaded all the time while stores evict the others: 32 among seven times as many that nobody wants.
# Reclaim keeps wanted pages as long as they are few in a segment.
lay_out_hot() {
	jobs_begin /tmp/hot.fio
	job kvctx layout-hot load 64k 16 0 rw=write verify_load=1 filename=hot:c1:c2:c3:c4:c5:c6:c7 size=16M io_size=16M
	jobs_run /tmp/hot.json
}

# beside TARGET OP TENANT: the same of hot pages while 16 stores of that tenant are always under way; the end of the loads
# ends the stores
beside() {
	local target=$1 op=$2 pair engine hot stores n=12000

	# p99.9 needs many
	case $target in
		ssd) n=4000 ;;
		tcp) n=2000 ;;
	esac
	for ((pair = 1; pair <= pairs; pair++)); do
		lay_out_hot
		for engine in $(both 'raw kvctx' $pair); do
			hot=size=2M
			stores=
			[ "$engine" = raw ] || hot='filename=hot size=2M' stores=tenant=$3
			jobs_begin /tmp/cell.fio
			echo exitall >> /tmp/cell.fio
			sed -i /stonewall/d /tmp/cell.fio
			# shellcheck disable=SC2086 # one argument a line
			job "$engine" "$engine.$target.$op.64k.1.1.0.$pair" load 64k 1 $n $hot clat_percentiles=0 \
				lat_percentiles=1
			# shellcheck disable=SC2086 # a line, or none
			job "$engine" "stores-$engine-$pair" store 64k 16 0 $stores
			cell_run "$op.$target.$engine.$pair"
		done
	done
	say "$target latency beside stores of tenant $3"
}

# verification CPUS: loads of kvctx with and without, and before each pair's loads with, crc32c() alone
verification() {
	local cpus=$1 pair verify before n=600

	modprobe kvctx_crc
	jobs_begin /tmp/cell.fio
	for ((pair = 1; pair <= pairs; pair++)); do
		for verify in $(both '0 1' $pair); do
			before=$stamp	# for fio, a semicolon begins a comment
			[ "$verify" = 0 ] || before="echo @crc $cpus $pair \$(cat $crc) >> $out/results && $stamp"
			job kvctx "kvctx.null.verify$cpus.256k.16.1.$verify.$pair" load 256k 16 $n "verify_load=$verify" \
				"exec_prerun=$before" "exec_postrun=$stamp"
		done
	done
	cell_run "verify$cpus"
	say "verification with $cpus CPUs"
}

# Times of MATCH, and the system calls of one MATCH and the LOAD of 1000 pages found. prefix makes a getppid() before
# and after it.
prefixes() {
	local keys

	prefix store 10000 4096 || stop "no prefix"
	for keys in 1 100 10000; do
		result "match $keys $(prefix match $keys 101)"
	done
	strace -o /tmp/strace prefix load 1000 4096 || stop "no load of a prefix"
	awk '/^getppid/ { on = !on; next } on' /tmp/strace > $out/strace
	result "syscalls match $(grep -c '0xb5, 0x6,' $out/strace) submit $(grep -c '0xb5, 0x4,' $out/strace)" \
		"wait $(grep -c '0xb5, 0x5,' $out/strace) all $(grep -c . $out/strace)"
	say "MATCH, system calls"
}

# cells TARGET OP: the matrix, or its middle row and column
cells() {
	local size batch

	for size in 16k 64k 256k 2m; do
		for batch in 1 16 64; do
			if [ "$scope" = full ] || [ $batch = 16 ] || [ $size = 64k ]; then
				cell "$1" "$2" $size $batch
			fi
		done
	done
	if [ "$1" = null ] || [ "$scope" = full ]; then
		for size in 64k 256k; do
			scattered "$1" "$2" $size 16
		done
	fi
}

: > $out/results
: > $out/stat
modprobe kvctx
for target; do
	device_of $target
	fill "$raw_device"
	pool_on "$device"
	lay_out 16k 64k 256k 2m
	cells $target load
	latency $target
	if [ $target = null ]; then
		verification 2
		echo 0 > /sys/devices/system/cpu/cpu1/online && verification 1
		echo 1 > /sys/devices/system/cpu/cpu1/online
		prefixes
	fi
	# the stores evict what was there
	cells $target store
	beside $target mixed default
	kvctxctl tenant add t flood > /dev/null || stop "no other tenant"
	beside $target flood flood
	kvctxctl pool detach t > /dev/null
done
