#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A member that has no place for a further request: a queue of few tags, none of which comes back. Nobody waits in the
# kernel for one, what waits for one can be ended, and the other member serves.
#
# The member is an NVMe-oF namespace with a short queue; its target's device is a suspended device-mapper device.
. "$(dirname "$0")/lib.sh"

backing=$(nvmet_null_blk tagsback 192)
other=$(nvmet_null_blk tagsother 192)
modprobe -a dm-mod nvme-core
# the transport shall not give up meanwhile
echo 3600 > /sys/module/nvme_core/parameters/io_timeout
dmsetup create tags --table "0 $(cat /sys/class/block/tagsback/size) linear $backing 0"
[ -b /dev/mapper/tags ] || dmsetup mknodes
check "a target over it" nvmet_target loop tags /dev/mapper/tags
dev=$(nvmet_connect loop tags --queue-size=16 --nr-io-queues=1)
check "a namespace behind a short queue ($dev)" test -b "$dev"
modprobe kvctx
# a member's submitter waits for its device as long as it does not answer: no finding
echo 0 > /proc/sys/kernel/hung_task_timeout_secs
soon=$((15 * patience))
places=24	# tags, and what else may be with the device

suspend() { dmsetup suspend --noflush tags; }
resume() { dmsetup resume tags; }
attach() { kvctxctl pool format t "$dev" "$other" --force --segment-size 2M && kvctxctl pool attach "$dev" "$other"; }
# of PROCESS: prints what it says when it has submitted, and when nothing ends any more
said() { until_true "$1" grep -q "$2" /tmp/tags.out; }
ended_within() { until_true "$1" bash -c "! kill -0 $2"; }
# field NAME LINE: of what tags prints
field() { grep -a '^right=' /tmp/tags.out | sed -n "$2p" | grep -oE "(^| )$1=[0-9]+" | cut -d= -f2; }
# below N: so many operations are in flight at most
below() { test "$(stat_of inflight)" -le "$1"; }
idle() { kvctxctl stat t -o json | tr -d ' \n' | grep -q '"sessions":0,"inflight":0'; }

check "format and attach" attach
check "store 160 pages" prints 'stored=160' pages store 0 160 100000

check "store 16 large ones" prints 'stored=16' pages store 40000 16 1000000

check "suspend the member" suspend
tags load 160 > /tmp/tags.out 2>&1 & client=$!
check "SUBMIT of 160 loads returns" said 30 'submitted: 160'
check "the loads from the other member end" said 60 'right='
check "and are right ($(cat /tmp/tags.out))" test "$(field right 1)" -ge 40 -a "$(field other 1)" = 0
check "those that wait for a place can be cancelled" said 60 'canceled=[1-9]'
sed 's/^/# /' /tmp/tags.out
check "which leaves those that are with the device" below $places
# a bio that is made, or comes back from the device, after its operation was cancelled
timeout -s KILL $((60 * patience)) tags cut 40000 16 > /tmp/tags.cut 2>&1
check "what CANCEL said to end ends, whatever was under way ($(tail -n 1 /tmp/tags.cut))" \
	bash -c 'grep -qE "^told=([1-9][0-9]*) ended=\1 of 16$" /tmp/tags.cut'
tags late 160 > /tmp/tags.late 2>&1 & late=$!
check "loads with a deadline end" ended_within 60 $late
check "in time, or with it ($(tail -n 1 /tmp/tags.late))" \
	grep -qE 'right=[1-9][0-9]* late=[1-9][0-9]* canceled=0 other=0 of 160' /tmp/tags.late
tags store 1000 100 > /tmp/tags.store 2>&1 & store=$!
check "stores with a deadline end" ended_within 60 $store
check "in the other member, or with it ($(tail -n 1 /tmp/tags.store))" \
	grep -qE 'right=[1-9][0-9]* late=[0-9]+ canceled=0 other=0 of 100' /tmp/tags.store
check "somebody who never waits for it is served" prints 'holding' timeout 60 pages lease 0 10 0
tags load 160 > /tmp/tags.out2 2>&1 & second=$!
until_true 60 grep -q 'right=' /tmp/tags.out2
start=$SECONDS
kill -9 $client $second
wait $client $second $late $store 2> /dev/null
check "killed clients are gone within $soon seconds ($((SECONDS - start)))" test $((SECONDS - start)) -le $soon
check "and what waited with them" until_true 20 below $places

# however much is asked of a member, so much waits there with memory of ours
available() { awk '/^MemAvailable/ { print $2 }' /proc/meminfo; }
before=$(available)
tags flood 40000 1600 > /tmp/tags.out 2>&1 & client=$!
check "SUBMIT of 1600 loads that need copies returns" said 60 'submitted: 1600'
check "those from the other member end" said 120 'right='
check "and are right ($(cat /tmp/tags.out))" test "$(field right 1)" -ge 600
taken=$(((before - $(available)) >> 10))
check "the others have 256 MiB, and what is common ($taken)" test $taken -le 450
timeout -s KILL $((60 * patience)) tags late 160 > /tmp/tags.late 2>&1
check "loads with a deadline end behind them ($(tail -n 1 /tmp/tags.late))" \
	grep -qE 'right=[1-9][0-9]* late=[1-9][0-9]* canceled=0 other=0 of 160' /tmp/tags.late
start=$SECONDS
kill -9 $client
wait $client 2> /dev/null
check "a killed client is gone within $soon seconds ($((SECONDS - start)))" test $((SECONDS - start)) -le $soon
check "and what waited with it" until_true 20 below $places

# of many sessions the same, also for what a load of a part reads round it; each has an arena of 32 MiB beside
before=$(available)
parts=()
for i in 1 2 3 4 5 6; do
	tags parts 40000 4000 > /tmp/tags.part$i 2>&1 & parts+=($!)
done
all_said() { for i in 1 2 3 4 5 6; do grep -q "$1" /tmp/tags.part$i || return 1; done; }
check "SUBMIT of 4000 loads of a byte returns, six times" until_true 120 all_said 'submitted: 4000'
check "those from the other member end" until_true 120 all_said 'right=[1-9][0-9]*'
taken=$((((before - $(available)) >> 10) - 6 * 32)) waiting=$(stat_of inflight)
check "the others wait ($waiting)" test "$waiting" -ge 6000
check "the others have the same 256 MiB ($taken)" test $taken -le 450
kill -9 "${parts[@]}"
wait "${parts[@]}" 2> /dev/null
check "and nothing waits when they are killed" until_true 20 below $places

# in a control group, which is charged for what another thread sends
group=/sys/fs/cgroup/tags
grep -q ' /sys/fs/cgroup ' /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup
check "a control group" bash -c "echo +io > /sys/fs/cgroup/cgroup.subtree_control && mkdir $group"
reads_of_group() { grep "^$(cat "/sys/class/block/${dev##*/}/dev") " $group/io.stat | grep -oE 'rios=[0-9]+' | cut -d= -f2; }
bash -c "echo \$\$ > $group/cgroup.procs; exec tags ring 160" > /tmp/tags.out 2>&1 & client=$!
check "io_uring: submitting 160 loads returns" said 30 'submitted: 160'
check "io_uring: those from the other member end" said 60 'right=[1-9]'
check "resume" resume
check "nothing is left" until_true 60 idle
wait $client
check "the group is charged for its loads from the member ($(reads_of_group))" test "0$(reads_of_group)" -ge 60
rmdir $group
check "the pages are right" prints 'right=160 wrong=0 bad=0 missing=0 gone=0' pages load 0 160 100000
check "what was stored is right or missing" prints 'wrong=0 bad=0 .*gone=0 errors=0' pages load 1000 100 100000

# A full pool: stores wait for space, and are tried again while the member is stuck
check "fill the pool" prints 'again=0 errors=0' pages store 5000 4500 100000
check "suspend the member" suspend
tags load 160 > /tmp/tags.out 2>&1 & client=$!
said 60 'right='
for i in 1 2 3; do
	tags store $((20000 + 1000 * i)) 200 > /tmp/tags.store 2>&1 & store=$!
	check "full: stores with a deadline end" ended_within 60 $store
	check "full: in the other member, or with it ($(tail -n 1 /tmp/tags.store))" \
		grep -qE 'canceled=0 other=0 of 200' /tmp/tags.store
done
kill -9 $client
wait $client 2> /dev/null
check "resume" resume
check "nothing is left" until_true 60 idle
check "the pool takes stores" prints 'stored=50 dedup=0 again=0 errors=0' pages store 30000 50 100000
check "detach" until_true 60 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
nvmet_remove tags
dmsetup remove tags
nvmet_teardown
finish
