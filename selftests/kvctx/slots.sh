#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Pages read ahead, and priorities: their test programs, over a device that can be made stuck, slow and broken.
. "$(dirname "$0")/lib.sh"

kind=slots
KVCTX_BACKING=$(nvmet_null_blk slots 384 512)
export KVCTX_BACKING KVCTX_SCRIPTS=$here

session_count() { kvctxctl stat t -o json | tr -d ' \n' | grep -q '"sessions":0,"inflight":0'; }

dev=$("$here/slow.sh" create "$KVCTX_BACKING")
check "a device that can be slow" test -b "$dev"
modprobe kvctx
check "format and attach" make_pool "$dev" --segment-size 16M
program slots
kind=uring
program uring
# ends with the loss of the member
kind=prio
program prio
check "operations waited for their turn" test "$(stat_of turn_waits)" -gt 100
check "hits were counted" test "$(stat_of slot_hits)" -gt 100
check "pages read ahead too" test "$(stat_of prefetches)" -gt 100
check "no session and no operation is left" until_true 20 session_count
check "detach" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
"$here/slow.sh" remove
nvmet_teardown
finish
