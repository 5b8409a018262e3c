#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The data tests over one kind of member:
#
#   transport.sh plain|tcp|loop|rdma|ssd
#
# "plain" is a memory-backed null_blk and also runs the tests of ABI and sessions; "tcp"
# and "rdma" are namespaces of the kernel's own NVMe target over one, "ssd" an emulated
# NVMe SSD (of the runner's --nvme), "loop" a namespace of a target over that.
. "$(dirname "$0")/lib.sh"

kind=${1?}

# Memory-backed null_blk with blocks of 4096 bytes forgets that it holds a block when a request's memory ends inside
# it (kernels 6.12 to 7.2: it marks only the block's first sector), so ours has blocks of 512; the SSD has 4096.
blocks=512
# Some of the tests of "plain" fill the pool
format=()
[ "$kind" != plain ] || format=(--segment-size 128M)

# member: print the device that becomes the pool's member
member() {
	local backing

	case $kind in
		ssd) nvmet_ssd kvctx0 ;;
		# This transport hands the initiator's memory, aligned to 4 bytes, to the backing device as it
		# is: null_blk and loop devices want 512 and fail or mistake it, an SSD takes it.
		loop)
			backing=$(nvmet_ssd kvctx0) && nvmet_target loop loop "$backing" &&
				nvmet_connect loop loop ;;
		plain) nvmet_null_blk plain 768 $blocks ;;
		*)
			backing=$(nvmet_null_blk "b$kind" 1536 $blocks) &&
				nvmet_target "$kind" "$kind" "$backing" && nvmet_connect "$kind" "$kind" ;;
	esac
}

modprobe kvctx
dev=$(member)
check "$kind: there is a device" test -b "$dev"
check "$kind: format and attach" make_pool "$dev" "${format[@]}"
program data
program replace
# nothing waits for memory
[ "$kind" = plain ] || program cancel
KT_DEVICE=$dev program scatter
check "$kind: no chunk had to be read twice" test "$(stat_of rereads)" = 0
if [ "$kind" = plain ]; then
	program abi
	program match
	program events
	program session
	program blocked
	program library
	check "$kind: the example of the documentation runs" prints 'verified' example /dev/kvctx/t/default
fi
check "$kind: no page failed verification" test "$(stat_of bad_pages)" = 0
# makes chunks fail on purpose
[ "$kind" != plain ] || program edges
check "$kind: detach" until_true 30 kvctxctl pool detach t
check "$kind: unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
