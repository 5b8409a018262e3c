# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034
#
# For the scripts of the bench that run in the guest (sourced): devices, pool, fio jobs.
#
# A job file holds jobs that run one after the other in one fio, whose start takes longer than a job does:
#   jobs_begin FILE; job ENGINE NAME OP SIZE BATCH COUNT [LINE]...; jobs_run FILE JSON
# ENGINE is kvctx (pool "t") or raw ($raw_device), OP is load or store.

# shellcheck source=selftests/kvctx/lib.sh
. /kvctx/selftests/kvctx/lib.sh

device='' raw_device='' job_file=''
load_span=64M	# pages that loads find, and the part of the raw device that is read

say() { echo "bench: $*"; }

stop() {
	echo "bench: $*" >&2
	exit 1
}

# device_of TARGET: sets device (for the pool) and raw_device, of one size. Both are without discard: null_blk discards
# sector by sector, and the emulated SSD makes holes in its file that the next write has to fill, which costs more than
# all else a store does. No real device behaves so.
device_of() {
	case $1 in
		null)
			device=$(nvmet_null_blk nb 1024 512 0) && raw_device=$(nvmet_null_blk nbraw 1024 512 0) ;;
		ssd)
			device=$(nvmet_ssd kvctx0) && raw_device=$(nvmet_ssd kvctx1) &&
				echo 0 > "/sys/class/block/${device##*/}/queue/discard_max_bytes" ;;
		tcp)
			nvmet_target tcp pool "$(nvmet_null_blk tcp 1024 512 0)" &&
				nvmet_target tcp raw "$(nvmet_null_blk tcpraw 1024 512 0)" &&
				device=$(nvmet_connect tcp pool) && raw_device=$(nvmet_connect tcp raw) ;;
	esac || stop "no device for $1"
}

# fill DEVICE: memory-backed devices have memory afterwards, and an SSD's file blocks
fill() {
	dd if=/dev/zero of="$1" bs=1M oflag=direct status=none 2> /dev/null
	return 0
}

# pool_on DEVICE: make pool t there, on memory that is there
pool_on() {
	fill "$1"
	make_pool "$1" --segment-size 64M > /dev/null || stop "no pool on $1"
}

jobs_begin() {
	job_file=$1
	cat > "$job_file" <<-END
	[global]
	thread
	stonewall
	norandommap
	randrepeat=1
	disk_util=0
	io_size=1t
	END
}

kvctx_lines() {
	cat <<-END
	ioengine=external:/usr/lib/kvctx-fio.so
	pool=t
	keyspace=$3
	size=$load_span
	END
	if [ "$2" = load ]; then
		echo filename=pages
	else
		# its keys are new because no other job has this name
		echo "filename=$1-$SRANDOM"
		echo overwrite_page=new
	fi
	echo verify_load=0
}

raw_lines() {
	cat <<-END
	ioengine=io_uring
	fixedbufs
	registerfiles
	direct=1
	filename=$raw_device
	END
	[ "$2" != load ] || echo "size=$load_span"
}

# job ENGINE NAME OP SIZE BATCH COUNT [LINE]...
job() {
	local engine=$1 op=$3 batch=$5

	{
		echo "[$2]"
		"${engine}_lines" "$2" "$op" "$4"
		if [ "$op" = load ]; then echo rw=randread; else echo rw=randwrite; fi
		echo "bs=$4"
		echo "number_ios=$6"
		echo "iodepth=$batch"
		echo "iodepth_batch_submit=$batch"
		echo "iodepth_batch_complete_min=$(((batch + 1) / 2))"
		[ $# -lt 7 ] || printf '%s\n' "${@:7}"
	} >> "$job_file"
}

# jobs_run JSON
jobs_run() {
	fio --eta=never --output-format=json --output="$1" "$job_file" > /tmp/fio.out 2>&1 ||
		stop "fio failed: $(tail -n 5 /tmp/fio.out "$1")"
}

# lay_out SIZE...: the pages that loads of these sizes find
lay_out() {
	local size

	jobs_begin /tmp/layout.fio
	for size; do
		job kvctx "layout-$size" load "$size" 16 0 rw=write verify_load=1 "io_size=$load_span"
	done
	jobs_run /tmp/layout.json
}
