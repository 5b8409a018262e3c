#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The Python package and the connectors on the module's nodes: some of their own tests (libkvctx/python/tests), and
# python -m kvctx. Python is on an SSD that python-boot made.
. "$(dirname "$0")/lib.sh"

kind=python
home=/mnt/python package=/kvctx/libkvctx/python
KVCTX_DEVICE=$(nvmet_null_blk python 64)
export KVCTX_DEVICE

python() {
	env PYTHONHOME=$home LD_LIBRARY_PATH=$home/lib PYTHONPATH=$package:$home/site:"$here" \
		KVCTX_LIBRARY=/usr/lib/libkvctx.so.0 $home/bin/python3 "$@"
}

# What moves pages and asks for them, once each: the errors and the engines' odd cases are the package's own, whoever
# serves, and an emulated processor takes minutes for them
package_tests() {
	local tests=(
		store_and_load test_packed pieces_of_a_page delete_and_query stored_once_and_replaced test_match pages_outlive
		keyspaces_do_not_meet more_pages_than_fit futures_and_callbacks asyncio what_happened
		registered_memory_is_moved that_is_not_registered
		store_lookup_load missing_is_told_by_bit delete_usage_and_listeners evicted_is_reported leases_are_renewed_until
		every_layout_come_back one_submission pinned_once share_replicated
		test_tier stored_by_one_engine chunk_is_loaded groups_have_pages failed_blocks_recomputed
	)
	local any

	any=$(printf ' or %s' "${tests[@]}")
	python -m pytest -p no:terminal -p tap -p no:cacheprovider --timeout 120 --basetemp=/tmp/pytest \
		$package/tests/test_{session,operations,events,buffers,lmcache,vllm,sglang}.py -k "(${any# or }) and not another_rank"
}

mkdir $home
check "Python's SSD" mount -t ext4 -o ro "$(nvmet_ssd python)" $home
modprobe kvctx
program package_tests

check "format and attach" make_pool "$KVCTX_DEVICE" --segment-size 1M
check "python -m kvctx tells of the node, and its self-test passes there" prints \
	'default: module; .*self-test: 64 pages of 64 KiB stored' python -m kvctx --on /dev/kvctx/t/default
check "and leaves nothing" test "$(stat_of pages)" = 0
check "detach" kvctxctl pool detach t
check "unload" until_true 10 kvctxctl unload
umount $home
nvmet_teardown
finish
