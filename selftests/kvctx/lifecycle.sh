#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What survives and what does not: detach and attach, damaged pages, a full pool,
# leases, deletes, tenants, killed clients, unloading.
. "$(dirname "$0")/lib.sh"

dev=$(nvmet_null_blk life 256)
big=$(nvmet_null_blk big 256)
modprobe kvctx

reattach() { kvctxctl pool detach t && kvctxctl pool attach "$@"; }

check "format and attach a pool" make_pool "$dev" --segment-size 4M
check "store 200 pages" prints 'stored=200 dedup=0 again=0 errors=0' pages store 0 200 200001
check "store them again: all are duplicates" prints 'stored=0 dedup=200 .*errors=0' pages store 0 200 200001
check "detach and attach" reattach "$dev"
check "all pages survived" prints 'right=200 wrong=0 bad=0 missing=0 gone=0 errors=0' pages load 0 200 200001

# Deletes are durable, and do not come back with an older copy
check "delete 50 of them" prints 'deleted=50 missing=0 errors=0' pages delete 0 50
check "flush" prints flushed pages flush
check "detach and attach after the deletes" reattach "$dev"
check "the deleted are gone, the others are not" \
	prints 'right=150 wrong=0 bad=0 missing=50 gone=0 errors=0' pages load 0 200 200001

# One flipped bit
check "flip a bit in the middle of page 60" prints flipped pages flip "$dev" 60 100000
check "page 60 fails verification, its neighbours do not" \
	prints 'right=9 wrong=0 bad=1 missing=0' pages load 55 10 200001
check "it is a miss afterwards" prints 'right=9 wrong=0 bad=0 missing=1' pages load 55 10 200001
check "the statistics tell of one bad page" test "$(stat_of bad_pages)" = 1
check "and it can be stored again" prints 'stored=1 dedup=0' pages store 60 1 200001
check "and loaded" prints 'right=1 wrong=0' pages load 60 1 200001
check "flip a bit of the last byte of page 61" prints flipped pages flip "$dev" 61 200000
check "page 61 fails verification" prints 'right=0 wrong=0 bad=1' pages load 61 1 200001

# A pool that is full several times over
check "store three times what fits" prints 'dedup=0 again=0 errors=0' pages store 1000 3000 262144
check "pages were evicted" test "$(stat_of evicted_pages)" -gt 1000
check "the newest 300 are all there" prints 'right=300 wrong=0 bad=0 missing=0 gone=0' pages load 3700 300 262144
check "nothing else that is there is wrong" prints 'wrong=0 bad=0 .*errors=0' pages load 1000 2700 262144
check "stores that do not wait: taken or told to try again" \
	prints 'dedup=0 .*errors=0' pages store 10000 2000 262144 nowait
check "detach and attach a full pool" reattach "$dev"
check "its pages are right or missing" prints 'wrong=0 bad=0 .*errors=0' pages load 10000 2000 262144

# Leases keep pages while everything else is pushed out
# all else was loaded just now, so what nobody has asked for may go before its lease comes: then it is stored again
lease_twenty() {
	pages store 20000 20 262144 | grep -q 'again=0 errors=0' || return
	pages lease 20000 20 3000 > /tmp/lease.out 2>&1 &
	echo $! > /tmp/lease.pid
	until_true 20 bash -c "grep -q holding /tmp/lease.out || ! kill -0 $!"
	grep -q holding /tmp/lease.out
}
check "store 20 pages and lease them" until_true 60 lease_twenty
lease=$(cat /tmp/lease.pid)
check "store twice what fits beside them" prints 'again=0 errors=0' pages store 30000 2000 262144
# asked for by leases: a LOAD would make them hot
check "the leased pages are still there" prints holding pages lease 20000 20 0
kill -9 $lease; wait $lease 2> /dev/null
check "the leases of a killed client end: its pages can be evicted" prints 'again=0 errors=0' pages store 40000 2000 262144
check "and were" prints 'wrong=0 bad=0 missing=[1-9][0-9]* gone=0' pages load 20000 20 262144

# Sessions pin pool, tenant and module
pages hold 60 > /tmp/hold.out & hold=$!
until_true 20 grep -q holding /tmp/hold.out
check "detach refuses while a session is open" refuses 1 'session' kvctxctl pool detach t
check "tenant removal refuses while a session is open" refuses 1 'session' kvctxctl tenant remove t default
check "unload refuses while a session is open" refuses 1 'in use|busy' kvctxctl unload
check "rmmod too" refuses 1 'in use' rmmod kvctx
kill $hold; wait $hold 2> /dev/null
check "detach works when it is closed" until_true 60 kvctxctl pool detach t

# Tenants
check "attach again" kvctxctl pool attach "$dev"
check "add a tenant" kvctxctl tenant add t alice --uid 1000 --gid 1000 --mode 0660
check "its node belongs to it" prints '^660 1000 1000$' stat -c '%a %u %g' /dev/kvctx/t/alice
check "it sees nothing of others" env KVCTX_NODE=/dev/kvctx/t/alice bash -c 'pages load 41900 10 262144 | grep -q missing=10'
check "it stores" env KVCTX_NODE=/dev/kvctx/t/alice bash -c 'pages store 0 10 5000 | grep -q stored=10'
check "the tenant survives detach and attach" reattach "$dev"
check "with its pages" env KVCTX_NODE=/dev/kvctx/t/alice bash -c 'pages load 0 10 5000 | grep -q right=10'
check "adding it again is refused" refuses 1 'exist' kvctxctl tenant add t alice
check "remove it" kvctxctl tenant remove t alice
check "its node is gone" test ! -e /dev/kvctx/t/alice
check "a tenant of the same name starts empty" bash -c 'kvctxctl tenant add t alice &&
	KVCTX_NODE=/dev/kvctx/t/alice pages load 0 10 5000 | grep -q missing=10'
check "also after detach and attach" bash -c "kvctxctl pool detach t && kvctxctl pool attach $dev &&
	KVCTX_NODE=/dev/kvctx/t/alice pages load 0 10 5000 | grep -q missing=10"

# Two members
check "detach" kvctxctl pool detach t
check "format two members" kvctxctl pool format t "$dev" "$big" --force --segment-size 4M
check "one member alone is refused" refuses 1 member kvctxctl pool attach "$dev"
check "attach them in the other order" kvctxctl pool attach "$big" "$dev"
check "store 400 pages over both" prints 'stored=400' pages store 0 400 100000
check "detach and attach both" reattach "$dev" "$big"
check "all 400 are there" prints 'right=400 wrong=0 bad=0 missing=0 gone=0' pages load 0 400 100000

# kill -9 with operations in flight, then everything goes
pages hang & hang=$!
sleep 1
kill -9 $hang; wait $hang 2> /dev/null
check "detach after a client was killed" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 kvctxctl unload
check "no node is left" test ! -e /dev/kvctx/t
check "no thread or workqueue is left" bash -c "! cat /proc/[0-9]*/comm 2> /dev/null | grep -vE '^kworker/u?[0-9]' | grep kvctx"

nvmet_teardown
finish
