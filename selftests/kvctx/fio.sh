#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The fio engine over a memory-backed null_blk: what it moves is right, what it refuses says why.
. "$(dirname "$0")/lib.sh"

engine="--ioengine=external:/usr/lib/kvctx-fio.so --thread --disk_util=0"

# kfio OPTION...: one job of 64 KiB pages on pool t
kfio() {
	# a second file name would be a second file
	[[ " $*" = *" --filename="* ]] || set -- --filename=pages "$@"
	# shellcheck disable=SC2086 # options
	timeout -k 5 60 fio $engine --name=job --pool=t --bs=64k --size=8m "$@"
}

# job_file NAME: run an example as it lies in the tree, on pool t
job_file() {
	sed -e 's,external:kvctx-fio.so,external:/usr/lib/kvctx-fio.so,' -e 's/^pool=.*/pool=t/' \
		-e 's/^size=.*/size=16m/' -e 's/^runtime=.*/runtime=1/' "/kvctx/tools/fio/examples/$1" > "/tmp/$1"
	timeout -k 5 60 fio --disk_util=0 "/tmp/$1"
}

# flushes AT-LEAST COMMAND...: the command makes so many
flushes() {
	local least=$1 before

	before=$(stat_of flushes)
	"${@:2}" && [ $(($(stat_of flushes) - before)) -ge "$least" ]
}

# damage DEVICE: flip bytes all over the pages of a pool that is detached
damage() {
	local i

	for i in $(seq 2 4 700); do
		dd if=/dev/urandom of="$1" bs=64k count=1 seek=$((i * 16)) conv=notrunc oflag=direct status=none
	done
}

modprobe kvctx
dev=$(nvmet_null_blk fio 768 512)
check "format and attach" make_pool "$dev" --segment-size 16M
check "the engine lists its options" prints 'segments' fio --enghelp=/usr/lib/kvctx-fio.so
check "write, then verify=crc32c" prints 'READ: .*io=8' kfio --rw=write --verify=crc32c --iodepth=16
check "verify=crc32c with 64 segments and replaced pages" \
	prints 'READ: .*io=8' kfio --rw=randwrite --verify=crc32c --iodepth=8 --segments=64
kfio --filename=parts --rw=write --verify=crc32c --do_verify=0 --segments=2 > /dev/null
check "pages in 2 segments are right when they are read in 2" \
	prints 'READ: .*io=8' kfio --filename=parts --rw=read --verify=crc32c --segments=2
check "and out of order in 1" refuses 1 'verify' kfio --filename=parts --rw=read --verify=crc32c
check "a sync is a FLUSH" flushes 3 kfio --filename=synced --rw=write --fsync=32
check "random reads, 16 deep, in batches" \
	prints 'READ: .*io=8' kfio --rw=randread --iodepth=16 --iodepth_batch_submit=16 --iodepth_batch_complete_min=8
check "writes in longer batches than a SUBMIT takes" \
	prints 'WRITE: .*io=16' kfio --filename=deep --rw=write --bs=4k --size=16m --iodepth=4096 \
	--iodepth_batch_submit=4096
check "reads of a part of a page" prints 'READ: .*io=8' kfio --rw=read --bs=4k --page=64k --iodepth=4
check "registered memory" prints 'READ: .*io=8' kfio --rw=randread --memory=registered --iodepth=4
check "unverified" prints 'READ: .*io=8' kfio --rw=randread --verify_load=0 --iodepth=4
check "stored without checksums, verified by fio" prints 'READ: .*io=8' \
	kfio --filename=plain --rw=write --verify_load=0 --verify=crc32c --iodepth=4
check "new pages each time" prints 'WRITE: .*io=8' kfio --filename=new --rw=randwrite --overwrite_page=new --iodepth=8
check "io_uring commands" prints 'READ: .*io=8' kfio --rw=randread --entry=uring --iodepth=16
check "io_uring commands: write and verify" \
	prints 'READ: .*io=8' kfio --rw=write --entry=uring --verify=crc32c --iodepth=8 --segments=7
check "two jobs share the pages of a file" prints 'READ: .*io=16' kfio --rw=randread --numjobs=2 --group_reporting
check "pages of another keyspace are absent" refuses 1 'absent: run a write job first' kfio --rw=read --keyspace=other
check "a job of two files" prints 'READ: .*io=8' kfio --filename=one:two --rw=randwrite --verify=crc32c --iodepth=8
check "each of them has its pages" prints 'READ: .*io=4' kfio --filename=two --rw=read --size=4m
kfio --filename=some --rw=write --size=4m > /dev/null
check "absent pages are read as nothing" prints 'READ: .*io=4' kfio --filename=some --rw=read --miss=ignore --iodepth=4
check "trim of absent pages" prints 'TRIM: .*io=8' kfio --filename=gone --rw=trim
kfio --filename=gone --rw=write > /dev/null
check "a page is there before its trim" prints 'READ: .*io=8' kfio --filename=gone --rw=read
kfio --filename=gone --rw=trim > /dev/null
check "and absent behind it, with a hint" refuses 1 'absent: run a write job first' kfio --filename=gone --rw=read
check "but pages of another file are there" prints 'READ: .*io=8' kfio --rw=read
for example in verify.fio load.fio uring.fio; do
	check "example $example" prints 'Run status' job_file $example
done
check "no pool" refuses 1 'needs path= or pool=, one of them' fio $engine --name=job --rw=read --size=1m
check "unknown pool" refuses 1 'no such pool or tenant: /dev/kvctx/nope/default' \
	fio $engine --name=job --pool=nope --rw=read --size=1m
check "unknown tenant" refuses 1 'no such pool or tenant: /dev/kvctx/t/nobody' kfio --rw=read --tenant=nobody
check "pages too long" refuses 1 'page=.* at most' kfio --rw=write --bs=256m --size=256m
check "writes that are no pages" refuses 1 'bs=4096: writes have the size of a page' kfio --rw=write --bs=4k --page=64k
check "too deep" refuses 1 'iodepth=40000: at most' kfio --rw=read --iodepth=40000 --bs=512
check "no size" refuses 1 'needs size=' fio $engine --name=job --pool=t --rw=read
check "peer memory without a file" refuses 1 'needs peer_file=' kfio --rw=read --memory=peer
check "a keyspace too long" refuses 1 'keyspace=.*longer' kfio --rw=read --keyspace=12345678901234567
kfio --filename=hurt --rw=write --verify=crc32c --do_verify=0 --size=48m > /dev/null
check "detach" until_true 30 kvctxctl pool detach t
damage "$dev"
check "attach again" kvctxctl pool attach "$dev"
check "damage on the device is found" refuses 1 'failed verification|Bad message' \
	kfio --filename=hurt --rw=read --size=48m
check "detach again" until_true 30 kvctxctl pool detach t
nvmet_teardown
finish
