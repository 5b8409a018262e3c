#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that computes a digest over what it sends, NVMe/TCP's, and a caller who writes to his memory meanwhile: the
# connection, which is everybody's, stays.
. "$(dirname "$0")/lib.sh"

backing=$(nvmet_null_blk stable 128)
check "a target" nvmet_target tcp stable "$backing"
dev=$(nvmet_connect tcp stable --data-digest)
check "a namespace with data digests ($dev)" test -b "$dev"
check "which wants stable writes" grep -qx 1 "/sys/class/block/${dev##*/}/queue/stable_writes"
modprobe kvctx
dmesg -c > /dev/null

check "format and attach" make_pool "$dev" --segment-size 4M
check "store pages from memory that changes: they are stored, and what was stored verifies" \
	prints 'stored=160 errors=0 loaded=160 unverified=0' restless 160
check "no digest was wrong" bash -c '! dmesg | grep -iE "digest|reconnect|reset"'
check "the copies are counted" test "$(stat_of bounced_blocks)" -ge $((160 * 64))
check "whole pages from memory that stays" prints 'stored=20' pages store 0 20 100001
check "come back" prints 'right=20 wrong=0 bad=0 missing=0 gone=0 errors=0' pages load 0 20 100001
check "nothing failed" test "$(stat_of io_errors)" = 0
check "detach" until_true 60 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
