#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tracepoints (kmod/trace.h), as tracefs shows them: which stages operations pass, in which order and with which fields,
# what reclaim says of segments and pages, and what counters count of the same.
. "$(dirname "$0")/lib.sh"

KVCTX_BACKING=$(nvmet_null_blk trace 256 512)
export KVCTX_BACKING KVCTX_SCRIPTS=$here
dev=$("$here/slow.sh" create "$KVCTX_BACKING")
modprobe kvctx
tracing=/sys/kernel/tracing
events=$tracing/events/kvctx
log=/tmp/trace.log

# traced COMMAND...: with all events enabled, which are in $log afterwards
traced() {
	local status

	echo > $tracing/trace
	# of all processors alike, so what is in it is in order
	echo mono > $tracing/trace_clock
	echo 1 > $events/enable
	"$@"
	status=$?
	echo 0 > $events/enable
	grep -E ' (op|victim|page|segment|member)_[a-z]+: ' $tracing/trace | sed 's/^.* \([a-z_]*\): /\1 /' > $log
	return $status
}

# stages OPCODE USER_DATA: what operations of this kind and name passed, in one line
stages() { grep -E " opcode=$1 user_data=$2 " $log | cut -d' ' -f1 | xargs; }
# passed STAGES OPCODE USER_DATA
passed() { local is; is=$(stages "$2" "$3"); echo "$is"; [ "$is" = "$1" ]; }
# each EVENT REGEX: there are such events, and all match
each() { grep -qE "^$1 " $log && ! grep -E "^$1 " $log | grep -vE "$2"; }
# one op=, and times that do not run backwards
one_operation() {
	grep -E " opcode=$1 user_data=$2 " $log | sed 's/.* op=\([^ ]*\) .* ns=\([0-9]*\)$/\1 \2/' |
		awk '{ bad += NR > 1 && ($1 != op || $2 < ns); op = $1; ns = $2 } END { exit !NR || bad }'
}
# as_counted EVENT COUNTER BEFORE: no event is missing, and none is too many
as_counted() {
	local n

	n=$(grep -c "^$1 " $log)
	echo "$n events, $(stat_of "$2") - $3 counted"
	[ "$n" = $(($(stat_of "$2") - $3)) ]
}
# what happened to each segment, in order
reclaimed() {
	awk '{ for (i = 2; i <= NF; i++) { split($i, f, "="); v[f[1]] = f[2] } s = v["segment"] }
		$1 == "victim_chosen" { bad += at[s]; at[s] = 1 }
		$1 == "page_evicted" { bad += at[s] != 1 }
		$1 == "victim_emptied" { bad += at[s] != 1; at[s] = 2 }
		$1 == "segment_freed" { bad += at[s] != 2; at[s] = 0; freed++ }
		END { print freed " freed, " bad " out of order"; exit bad || !freed }' $log
}

check "format and attach" make_pool "$dev" --segment-size 16M
check "another tenant" kvctxctl tenant add t alice
check "there are as many events as trace.h has" test "$(find $events -mindepth 1 -maxdepth 1 -type d | wc -l)" = 14
echo 16384 > $tracing/buffer_size_kb

check "store a page, traced" traced pages store 7 1 200001
check "its stages are in order" passed "op_submitted op_sent op_answered op_completed" STORE 0x7
check "of one operation, in time" one_operation STORE 0x7
check "pool, tenant and length are its own" \
	each 'op_(submitted|sent|answered|completed)' ' pool=t tenant=0 op=[0-9a-f]* opcode=STORE user_data=0x7 length=200001 '
check "the device's stages say which member" each 'op_(sent|answered)' ' member=0 result=0 '
check "the result is that of its completion" each op_completed ' member=-1 result=200001 '

check "store it again, traced" traced pages store 7 1 200001
check "a duplicate does not go to the device" passed "op_submitted op_completed" STORE 0x7
check "load it, traced" traced pages load 7 1 200001
check "its stages are in order" passed "op_submitted op_sent op_answered op_completed" LOAD 0x7
check "of one operation, in time" one_operation LOAD 0x7
check "load what is not there, traced" traced pages load 99 1 4096
check "it was refused when it was started" passed "op_submitted op_immediate" LOAD 0x63
check "for not being there" each op_immediate ' pool=t tenant=0 opcode=LOAD user_data=0x63 length=4096 result=-2 '
check "delete and flush, traced" traced bash -c 'pages delete 7 1 && pages flush'
check "a delete moves nothing" passed "op_submitted op_completed" DELETE "(0x)?[0-9a-f]+"
check "nor does a flush of its own" test "$(grep -c 'opcode=FLUSH' $log)" = 2
check "the other tenant stores, traced" traced env KVCTX_NODE=/dev/kvctx/t/alice pages store 8 1 5000
check "and is told apart" each op_completed ' tenant=1 .* opcode=STORE user_data=0x8 length=5000 '

before=$(stat_of store_waits) evicted=$(stat_of evicted_pages)
check "store twice what fits, traced" traced pages store 1000 2000 262144
check "stores that waited for space are as many as counted" as_counted op_parked store_waits "$before"
check "evicted pages too" as_counted page_evicted evicted_pages "$evicted"
check "segments were chosen, emptied, freed, in this order" reclaimed
check "with their tenant and length" each page_evicted ' tenant=[01] member=0 segment=[0-9]+ to=-1 length=(262144|5000) result=0 '
check "no event was lost" bash -c "! grep -qE '^(overrun|dropped events): [1-9]' $tracing/per_cpu/cpu*/stats"

before=$(stat_of turn_waits)
# at its end the member is lost
check "urgent loads beside others, traced" traced prio
check "those that waited for their turn are as many as counted" as_counted op_queued turn_waits "$before"
check "and are some" grep -q '^op_queued ' $log

check "the loss of the member is told once" test "$(grep '^member_lost ' $log | sed 's/ ns=.*//')" = "member_lost pool=t member=0"
echo > $tracing/trace
check "without tracing nothing is written" bash -c "pages load 2900 10 262144; ! grep -q ' op_[a-z]*: ' $tracing/trace"
check "detach" until_true 20 kvctxctl pool detach t
"$here/slow.sh" remove
nvmet_teardown
finish
