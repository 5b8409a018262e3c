#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a tenant may not take (ctl_admin.sh: that its limits are kept, and told).
. "$(dirname "$0")/lib.sh"

kind=limits
KVCTX_BACKING=$(nvmet_null_blk limits 384 512)
KVCTX_NODE=/dev/kvctx/t/small
export KVCTX_BACKING KVCTX_NODE KVCTX_SCRIPTS=$here
dev=$("$here/slow.sh" create "$KVCTX_BACKING")
modprobe kvctx
check "format and attach" make_pool "$dev" --segment-size 16M
check "add a tenant with limits" kvctxctl tenant add t small --max-pinned 8M

# Urgent operations, and those that wait for them; then the same without
program limits
waits=$(stat_of turn_waits)
check "background operations waited for urgent ones" test "$waits" -gt 0
check "no operation of it is urgent any more" kvctxctl tenant set t small --no-urgent
program limits
check "nobody waited for one" test "$(stat_of turn_waits)" = "$waits"
check "they may be urgent again" kvctxctl tenant set t small --urgent
program limits
check "and are waited for" test "$(stat_of turn_waits)" -gt "$waits"
check "a reserve that the pool does not have is refused" \
	fails "cannot keep all reserves" kvctxctl tenant set t small --reserve 1T
check "so is a tenant with one" fails "cannot keep all reserves" kvctxctl tenant add t other --reserve 1T
check "which is not there then" fails "other" kvctxctl tenant show t other
check "detach" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
"$here/slow.sh" remove
nvmet_teardown
finish
