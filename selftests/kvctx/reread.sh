#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Chunks that fail their check are read once more, from a member that takes very long: more of them than there can be
# threads. The other member's loads are checked meanwhile.
. "$(dirname "$0")/lib.sh"

backing=$(nvmet_null_blk reread 192)
other=$(nvmet_null_blk rereadother 192)
dev=$("$here/slow.sh" create "$backing")
check "a device that can be slow ($dev)" test -b "$dev"
modprobe kvctx
# a member's submitter waits for its device as long as it does not answer: no finding
echo 0 > /proc/sys/kernel/hung_task_timeout_secs

attach() { kvctxctl pool format t "$dev" "$other" --force --segment-size 2M && kvctxctl pool attach "$dev" "$other"; }
read_again() { test "$(stat_of rereads)" -ge "$1"; }
delayed() { test "$("$here/slow.sh" delayed)" -ge "$1"; }

check "format and attach" attach
check "store 160 pages" prints 'stored=160' pages store 0 160 100000
check "store 4000 small ones" prints 'stored=4000' pages store 60000 4000 16384
check "let the member be slow" "$here/slow.sh" delay 20000
tags twice 60000 4000 > /tmp/reread.out 2>&1 & client=$!
check "submit loads that cannot match" until_true 30 grep -q 'submitted: 4000' /tmp/reread.out
check "the member has half of them" until_true 19 delayed 1900
# threads end at about a thousand
check "it answers, and is asked again" until_true 60 read_again 3000
timeout -s KILL $((60 * patience)) tags late 160 > /tmp/reread.late 2>&1
check "the other member serves ($(tail -n 1 /tmp/reread.late))" \
	grep -qE 'right=(7[0-9]|[89][0-9]|1[0-9]{2}) ' /tmp/reread.late
check "let it be fast" "$here/slow.sh" delay 0
wait $client
check "all get what the medium has ($(tail -n 1 /tmp/reread.out))" grep -q 'right=4000 .* other=0 of 4000' /tmp/reread.out
check "all were read again" test "$(stat_of rereads)" = 4000
check "no page was taken for bad" prints 'right=4000 wrong=0 bad=0 missing=0 gone=0' pages load 60000 4000 16384
check "detach" until_true 60 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
"$here/slow.sh" remove
nvmet_teardown
finish
