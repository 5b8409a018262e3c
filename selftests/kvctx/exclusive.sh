#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Who else would write to a member: other programs, which the kernel keeps from it (booted with
# bdev_allow_write_mounted=0), and the pool's own workers while the machine is put to sleep.
. "$(dirname "$0")/lib.sh"

a=$(nvmet_null_blk exclusive 256 512)
b=$(nvmet_null_blk excluded 64 512)
modprobe kvctx
zeros() { dd if=/dev/zero of="$1" bs=4096 count=1 seek=2000 conv=notrunc oflag=direct; }

check "who has it open for writing keeps a pool from it" bash -c "
	kvctxctl pool format t $a --force --segment-size 4M > /dev/null && exec 9<> $a && ! kvctxctl pool attach $a"
check "attach" kvctxctl pool attach "$a"
check "nobody may write to a member" fails 'busy' zeros "$a"
check "everybody may read it" dd if="$a" of=/dev/null bs=4096 count=1
check "also as a member of a pool" prints "$a" kvctxctl pool scan
check "to another device anybody may write" zeros "$b"
check "store" prints 'stored=50' pages store 0 50 100000
check "add a member" kvctxctl pool add t "$b" --force
check "nobody may write to that either" fails 'busy' zeros "$b"

# All tasks and what writes media are frozen for five seconds, and go on
pages hang > /dev/null 2>&1 & busy=$!
sleep 1
echo freezer > /sys/power/pm_test
check "freeze, under load" bash -c 'echo freeze > /sys/power/state'
echo none > /sys/power/pm_test
before=$(stat_of stores)
check "stores go on" until_true 60 bash -c "
	test \$(kvctxctl stat t -o json | tr -d ' \n' | grep -oE '\"stores\":[0-9]+' | cut -d: -f2) -gt $before"
kill -9 $busy
wait $busy 2> /dev/null
check "detach" until_true 60 kvctxctl pool detach t
check "from then on anybody may write" zeros "$a"
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
