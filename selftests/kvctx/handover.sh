#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One NVMe-oF namespace, passed to and fro between the module and a process that serves it itself: whatever one has
# stored and deleted the other one finds, at clean ends and at unclean ones.
. "$(dirname "$0")/lib.sh"

dir=/tmp/handover
node=$dir/default

# in_process COMMAND...: served in that process
in_process() { KVCTX_NODE=$node "$@"; }

# The namespace as it is while the pool is attached is what a power cut would leave, as long as nobody writes to it
copy_of_now() { dd if="$dev" of="$copy" bs=1M iflag=direct oflag=direct status=none; }

killed_under_load() {
	KVCTX_NODE=$node pages hang > /tmp/hang.out 2>&1 &
	sleep "$1"
	kill -9 $!
	wait $! 2> /dev/null
	return 0
}

modprobe kvctx
check "target" nvmet_target loop handover "$(nvmet_null_blk handover 192)"
check "connect" nvmet_connect loop handover
dev=$(nvmet_find handover)
copy=$(nvmet_null_blk copy 192)
mkdir $dir
ln -s "$dev" $dir/member0

check "format, attach to the module" make_pool "$dev" --segment-size 4M
check "the module stores" prints 'stored=100 ' pages store 0 100 100000
check "a process is refused meanwhile" refuses 1 'busy' in_process pages load 0 1 100000
check "detach" until_true 20 kvctxctl pool detach t
check "a process finds all" prints 'right=100 ' in_process pages load 0 100 100000
check "stores others" prints 'stored=100 ' in_process pages store 100 100 70001
check "and deletes some" prints 'deleted=10 ' in_process pages delete 0 10
KVCTX_NODE=$node pages hold 600 > /tmp/hold.out & hold=$!
check "it holds the pool" until_true 60 grep -q holding /tmp/hold.out
check "the module is refused meanwhile" bash -c "kvctxctl pool attach $dev 2>&1 | grep 'in use'"
check "and so is another process" refuses 1 'busy' in_process pages load 0 1 100000
kill $hold
wait $hold
check "it comes to its end" test $? = 0
check "attach to the module" kvctxctl pool attach "$dev"
check "it finds what both have stored" prints 'right=90 wrong=0 bad=0 missing=0' pages load 10 90 100000
check "also of the process" prints 'right=100 ' pages load 100 100 70001
check "and what was deleted is gone" prints 'missing=10 ' pages load 0 10 100000

# The module does not come to its end
check "store, flush" prints flushed bash -c 'pages store 200 100 50000 && pages delete 10 10 && pages flush'
check "store more" prints 'stored=50 ' pages store 300 50 50000
check "a power cut: a copy of the namespace" copy_of_now
ln -sfn "$copy" $dir/member0
check "a process finds what was flushed" prints 'right=100 ' in_process pages load 200 100 50000
check "and no more what was deleted" prints 'missing=10 ' in_process pages load 10 10 100000
check "nothing is wrong" prints 'wrong=0 bad=0' in_process pages load 300 50 50000
ln -sfn "$dev" $dir/member0
check "detach" until_true 20 kvctxctl pool detach t

# The process does not come to its end
for i in 1 2 3; do
	check "a process is killed under load, $i" killed_under_load "0.$((i * 3))"
	check "it lets go of the device" until_true 60 kvctxctl check "$dev"
	check "the checker finds the pool sound" prints 'Sound' kvctxctl check --data "$dev"
	check "attach to the module" kvctxctl pool attach "$dev"
	check "what was stored before is there or was evicted" prints 'wrong=0 bad=0 .* gone=0 errors=0' pages load 20 80 100000
	check "what was deleted is not" prints 'missing=20 ' pages load 0 20 100000
	check "stores go on" prints "stored=20 " pages store $((1000 * i)) 20 100000
	check "and are right" prints 'right=20 ' pages load $((1000 * i)) 20 100000
	check "detach" until_true 20 kvctxctl pool detach t
	check "a process finds them" prints 'right=20 ' in_process pages load $((1000 * i)) 20 100000
done
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
