#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that holds on to its transfers: clients are killed, files closed, and the memory stays until the transfers
# end. The member is a device-mapper device, suspended to make it stuck.
. "$(dirname "$0")/lib.sh"

backing=$(nvmet_null_blk stuck 256 512)
sectors=$(blockdev --getsz "$backing" 2> /dev/null || cat /sys/class/block/stuck/size)
modprobe dm-mod
check "a device that can be suspended" dmsetup create stuck --table "0 $sectors linear $backing 0"
dev=/dev/mapper/stuck
[ -b $dev ] || dmsetup mknodes
modprobe kvctx

suspend() { dmsetup suspend --noflush stuck; }
# ended_within SECONDS PID: the process is gone by then
ended_within() { until_true "$1" bash -c "! kill -0 $2"; }
in_flight() { test "$(stat_of inflight)" -gt 0; }
soon=$((10 * patience))
pinned() { awk '/^nr_foll_pin_acquired|^nr_foll_pin_released/ { n[$1] = $2 }
	END { print n["nr_foll_pin_acquired"] - n["nr_foll_pin_released"] }' /proc/vmstat; }

check "format and attach" make_pool $dev --segment-size 4M
check "store 50 pages" prints 'stored=50' pages store 0 50 100000
before=$(pinned)

check "suspend the member" suspend
pages load 0 50 100000 > /dev/null 2>&1 & client=$!
check "the client's loads are in flight" until_true 60 in_flight
kill -9 $client
start=$SECONDS
wait $client 2> /dev/null
check "a killed client is gone within $soon seconds ($((SECONDS - start)))" test $((SECONDS - start)) -le $soon
check "its session is still counted" test "$(stat_of sessions)" = 1
check "detach refuses" refuses 1 session kvctxctl pool detach t
check "the module cannot be unloaded" refuses 1 'in use' rmmod kvctx
check "who only asks is answered" prints holding timeout 60 pages lease 0 10 0
check "resume" dmsetup resume stuck
check "the session ends by itself" until_true 60 bash -c "kvctxctl stat t -o json | tr -d ' \n' | grep -q '\"sessions\":0'"
check "nothing is in flight" test "$(stat_of inflight)" = 0
check "all pins are released" test "$(pinned)" = "$before"
check "the pages are right" prints 'right=50 wrong=0 bad=0 missing=0 gone=0' pages load 0 50 100000

# Who has many sessions waits no longer than who has one
check "suspend under four sessions of one process" suspend
pages stick 4 100000 > /tmp/stick.out 2>&1 & client=$!
check "their loads are in flight" until_true 60 grep -q holding /tmp/stick.out
kill -9 $client
start=$SECONDS
wait $client 2> /dev/null
check "it is gone within $soon seconds ($((SECONDS - start)))" test $((SECONDS - start)) -le $soon
check "its sessions are still counted" test "$(stat_of sessions)" = 4
check "resume them" dmsetup resume stuck
check "they end by themselves" until_true 60 bash -c "kvctxctl stat t -o json | tr -d ' \n' | grep -q '\"sessions\":0'"

# A store that waits for its DMA when its client dies is completed or never was
check "suspend again" suspend
pages store 1000 10 300000 > /dev/null 2>&1 & client=$!
check "its stores are in flight" until_true 60 in_flight
kill -9 $client
wait $client 2> /dev/null
check "resume again" dmsetup resume stuck
check "that session ends too" until_true 60 bash -c "kvctxctl stat t -o json | tr -d ' \n' | grep -q '\"sessions\":0'"
check "its pages are right or missing" prints 'wrong=0 bad=0 .*gone=0 errors=0' pages load 1000 10 300000

# No space, and no way to make some: stores wait, run into their deadline, or go with their client
check "fill the pool" prints 'again=0 errors=0' pages store 5000 600 500000
check "suspend the full member" suspend
parked 300 > /tmp/parked.out 2>&1 & client=$!
until_true 90 grep -q canceled /tmp/parked.out
check "without waiting: try again" grep -q '^again: 1 ' /tmp/parked.out
check "with a deadline of 700 ms: late, and not before" grep -qE ' late: 1 after ([7-9][0-9]{2}|[0-9]{4,}) ms ' /tmp/parked.out
check "without one: waits" grep -q ' parked: 1 ' /tmp/parked.out
check "canceled: no longer" grep -q ' canceled: 1$' /tmp/parked.out
check "stores that waited are counted" test "$(stat_of store_waits)" -ge 2
kill -9 $client
start=$SECONDS
wait $client 2> /dev/null
check "its client can be killed ($((SECONDS - start)))" test $((SECONDS - start)) -le $soon
check "resume the full member" dmsetup resume stuck
check "nothing of it is left" until_true 20 bash -c "kvctxctl stat t -o json | tr -d ' \n' | grep -q '\"sessions\":0,\"inflight\":0'"
check "the pool takes stores again" prints 'stored=50 dedup=0 again=0 errors=0' pages store 9000 50 500000
check "store the first pages again" prints 'errors=0' pages store 0 50 100000

# A request that waits for the member holds up those to its pool
other=$(nvmet_null_blk other 64 512)
kvctxctl pool format u "$other" --force --segment-size 1M > /dev/null
check "another pool" kvctxctl pool attach "$other"
check "suspend the member under requests" suspend
timeout 300 kvctxctl tenant add t slow > /tmp/slow.out 2>&1 & slow=$!
check "one waits for the device" until_true 60 bash -c "grep -q '(kvctxctl) D' /proc/[0-9]*/stat"
check "the other pool gets a tenant" timeout 60 kvctxctl tenant add u quick
check "which can be opened" prints 'tenant_flags=0' timeout 60 env KVCTX_NODE=/dev/kvctx/u/quick pages info
check "it is detached" timeout 60 kvctxctl pool detach u
check "and attached again" timeout 60 kvctxctl pool attach "$other"
check "a name is given once" fails 'attached already' timeout 60 bash -c "
	kvctxctl pool detach u > /dev/null && kvctxctl pool format t $other --force --segment-size 1M > /dev/null &&
	kvctxctl pool attach $other"
check "all pools are told" prints 't +online' timeout 60 kvctxctl pool list
check "the first still waits" kill -0 $slow
check "resume under requests" dmsetup resume stuck
wait $slow # here: a subshell has no children of ours
check "it ends well" test $? = 0
check "and had its effect" test -c /dev/kvctx/t/slow

# Transfers that fail: the pages are not condemned for it
table() { suspend && dmsetup load stuck --table "0 $sectors $1" && dmsetup resume stuck; }
check "let the member fail its transfers" table error
check "loads say so" prints 'right=0 wrong=0 bad=0 missing=0 gone=50 errors=0' pages load 0 50 100000
check "and are counted" test "$(stat_of io_errors)" -ge 50
check "let it work again" table "linear $backing 0"
check "the pages are still there" prints 'right=50 wrong=0 bad=0 missing=0 gone=0' pages load 0 50 100000
check "no chunk was taken for bad" test "$(stat_of rereads)" = 0
check "detach" until_true 60 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
dmsetup remove stuck
nvmet_teardown
finish
