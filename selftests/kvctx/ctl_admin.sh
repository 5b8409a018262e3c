#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Administration: rights, malformed requests, dumps, events, tenants on media, unload, many rounds, many at once.
. "$(dirname "$0")/lib.sh"
# shellcheck source=selftests/kvctx/verbs.sh
. "$here/verbs.sh"

a=$(nvmet_null_blk ctla 64)
b=$(nvmet_null_blk ctlb 64)
modprobe kvctx

# unplug NAME: the device goes away, as a drive that is pulled
unplug() {
	echo 0 > "/sys/kernel/config/nullb/$1/power" && rmdir "/sys/kernel/config/nullb/$1"
}
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

kvctxctl pool format t "$a" --force --segment-size 1M > /dev/null
check "attach" kvctxctl pool attach "$a"
check "malformed requests are refused, each for its reason" ctl_genl table
ctl_genl table | grep -A 1 '^not ok'

# Rights
check "everybody may list pools" prints 't +online' as_nobody kvctxctl pool list
check "who may open no tenant sees none" bash -c '! setpriv --reuid 65534 --regid 65534 --clear-groups kvctxctl tenant list t \
	-o json | grep -q default'
kvctxctl tenant add t his --uid 65534 > /dev/null
kvctxctl tenant add t theirs --gid 65534 --mode 0640 > /dev/null
kvctxctl tenant add t alls --mode 0666 > /dev/null
kvctxctl tenant add t writable --gid 65534 --mode 0620 > /dev/null
tenants_of() { "$@" kvctxctl tenant list t -o json | grep -oE '"tenant": *"[^"]*"' | cut -d'"' -f4 | sort | xargs; }
check "a user sees those that he may open" test "$(tenants_of as_nobody)" = "alls his theirs"
check "root sees all" test "$(tenants_of env)" = "alls default his theirs writable"
as_watcher() { as_nobody --inh-caps +net_admin --ambient-caps +net_admin "$@"; }
check "so does who has CAP_NET_ADMIN" test "$(tenants_of as_watcher)" = "alls default his theirs writable"
check "in a user namespace of his own he has it not" \
	test "$(tenants_of as_nobody unshare --user --map-root-user)" = "alls his theirs"
check "users hear no events" fails 'ermitted|ermission' as_nobody timeout 5 ctl_genl events 1 1
for name in his theirs alls writable; do kvctxctl tenant remove t $name > /dev/null; done
check "everybody may read statistics" prints 'pages' as_nobody kvctxctl stat t
scrape() {
	exec 3<> /dev/tcp/127.0.0.1/9585
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
	cat <&3
	exec 3>&-
}
# not by the function, whose shell would be what is killed: who holds the output keeps the guest waiting
setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +net_admin --ambient-caps +net_admin \
	kvctxctl exporter > /tmp/exporter.out 2>&1 & exporter=$!
until_true 60 grep -q Listening /tmp/exporter.out
check "who may see all tenants may serve metrics" prints 'kvctx_tenant_pages[{]pool="t",tenant="default"[}] 0' scrape
kill $exporter
wait $exporter
check "only root may add tenants" fails 'CAP_SYS_ADMIN|permitted|root' as_nobody kvctxctl tenant add t evil
check "only root may detach" fails 'CAP_SYS_ADMIN|permitted|root' as_nobody kvctxctl pool detach t
check "root of a user namespace may not either" fails 'CAP_SYS_ADMIN|permitted|root' \
	as_nobody unshare --user --map-root-user kvctxctl pool detach t
check "another network namespace sees no family" fails '.' unshare --net kvctxctl pool list
check "the pool is still there" test -c /dev/kvctx/t/default

# Tenants: many of them, dumped in parts
add_many() {
	local i

	for i in $(seq 1 "$1"); do
		kvctxctl tenant add t "tenant-with-a-long-name-$i" --uid "$i" > /dev/null || return
	done
}
check "add 99 tenants" add_many 99
check "a dump has them all, in several parts" prints 'objects=100 parts=([3-9]|[0-9]{2}) interrupted=0 err=0' ctl_genl dump
check "their nodes have owner and mode" test "$(stat -c '%u %a' /dev/kvctx/t/tenant-with-a-long-name-77)" = "77 600"
check "detach takes all nodes along" bash -c 'kvctxctl pool detach t && test ! -e /dev/kvctx/t'
check "attach brings them back" bash -c "kvctxctl pool attach $a > /dev/null && ls /dev/kvctx/t | wc -l | grep -qx 100"
old=$(stat -c %t:%T /dev/kvctx/t/default)
mknod /tmp/old-node c $((0x${old%:*})) $((0x${old#*:}))
check "a node made by number opens its tenant" bash -c ': < /tmp/old-node'
check "detach and attach" bash -c "kvctxctl pool detach t && kvctxctl pool attach $a"
check "numbers are not given out again: the old node opens nothing" fails 'No such device' bash -c ': < /tmp/old-node'
check "a name of 31 characters" kvctxctl tenant add t abcdefghijklmnopqrstuvwxyz01234
check "fill the table" bash -c '
	for i in $(seq 139); do kvctxctl tenant add t fill$i > /dev/null || exit 1; done'
check "one more is refused" fails 'no room for another tenant' kvctxctl tenant add t onemore
check "remove one, add one" bash -c 'kvctxctl tenant remove t fill7 && kvctxctl tenant add t onemore'
check "remove default: it comes back with the next attach" bash -c "
	kvctxctl tenant remove t default && kvctxctl tenant remove t fill9 && kvctxctl pool detach t &&
	kvctxctl pool attach $a > /dev/null && test -c /dev/kvctx/t/default"
check "detach" kvctxctl pool detach t

kvctxctl pool destroy "$a" --force > /dev/null
c=$(nvmet_null_blk ctlc 32)
pool_and_tenant_verbs "$a" "$b" "$c"
unplug ctlc

# Events
ctl_genl events 6 60 > /tmp/events &
events=$!
until_true 60 grep -q listening /tmp/events
kvctxctl pool format t "$a" "$b" --force --segment-size 1M > /dev/null
kvctxctl pool attach "$a" "$b" > /dev/null
kvctxctl tenant add t alice > /dev/null
kvctxctl tenant set t alice --require-verified > /dev/null
kvctxctl tenant remove t alice > /dev/null
unplug ctlb
check "the pool is degraded when a device goes" until_true 60 bash -c 'kvctxctl pool list | grep -q degraded'
check "one member failed, the other did not" bash -c "
	kvctxctl pool show t | grep -q 'online.*$a' && kvctxctl pool show t | grep -q 'failed.*$b'"
check "tenants can still be added" kvctxctl tenant add t bob
check "detach of a degraded pool" kvctxctl pool detach t
wait $events # here: a subshell has no children of ours
check "listeners saw six events" test $? = 0
check "in their order" diff - <(sed 1d /tmp/events) <<-EVENTS
	POOL_ATTACH pool=t member=1 state=0
	TENANT_ADD pool=t tenant=alice
	TENANT_SET pool=t tenant=alice flags=1
	TENANT_REMOVE pool=t tenant=alice
	MEMBER_LOST pool=t member=1 state=1
	TENANT_ADD pool=t tenant=bob
EVENTS
check "attach without it is refused" fails 'member 1 of 2 is missing' kvctxctl pool attach "$a"

# A device that refuses writes
b=$(nvmet_null_blk ctlb 64)
size=$(blockdev --getsz "$b")
dmsetup create ctl_flaky --table "0 $size linear $b 0"
flaky=/dev/dm-$(dmsetup info -c --noheadings -o minor ctl_flaky)
# fail_writes: reads work, writes fail
fail_writes() {
	dmsetup suspend ctl_flaky &&
		dmsetup load ctl_flaky --table "0 $size flakey $b 0 0 60 1 error_writes" && dmsetup resume ctl_flaky
}
kvctxctl pool format t "$a" "$flaky" --force --segment-size 1M > /dev/null
check "attach a pool with a device that will fail" kvctxctl pool attach "$a" "$flaky"
check "store on both" prints 'stored=40' pages store 0 40 100000
check "flush" prints flushed pages flush
check "the device begins to fail writes" fail_writes
check "a tenant is added all the same" kvctxctl tenant add t carol
check "and the member is lost" until_true 60 bash -c 'kvctxctl pool list | grep -q degraded'
check "pages of the other are served, those of the lost one are gone" \
	prints 'right=20 wrong=0 bad=0 missing=0 gone=20 errors=0' pages load 0 40 100000
check "stores go on" prints 'stored=20' pages store 100 20 100000
check "flush" prints flushed pages flush
check "detach" kvctxctl pool detach t
dmsetup suspend ctl_flaky && dmsetup load ctl_flaky --table "0 $size linear $b 0" && dmsetup resume ctl_flaky
check "attach when it works again" kvctxctl pool attach "$a" "$flaky"
check "the tenant that it missed is there" test -c /dev/kvctx/t/carol
check "all pages are there" prints 'right=40 wrong=0 bad=0 missing=0' pages load 0 40 100000
check "the later ones too" prints 'right=20 wrong=0 bad=0 missing=0' pages load 100 20 100000

# Summaries that cannot be written
meta=$(stat_of meta_written_bytes)
check "store more" prints 'stored=40' pages store 200 40 100000
# full segments: nothing more is written for them
summarized() {
	local now

	now=$(stat_of meta_written_bytes)
	[ "$now" -gt "$meta" ] && sleep 1 && [ "$(stat_of meta_written_bytes)" = "$now" ]
}
check "full segments are summarized" until_true 60 summarized
check "the device fails writes again" fail_writes
check "a flush fails" fails . pages flush
check "the member is lost" until_true 60 bash -c 'kvctxctl pool list | grep -q degraded'
check "the flush of a session that began later does not" prints flushed pages flush
check "detach" kvctxctl pool detach t
dmsetup remove ctl_flaky

# Unload with a pool attached
kvctxctl pool format t "$a" --force --segment-size 1M > /dev/null
check "attach, store, unload without detach" bash -c "
	kvctxctl pool attach $a > /dev/null && pages store 0 30 100000 && rmmod kvctx && test ! -e /dev/kvctx"
check "the pages are there when it is loaded again" bash -c "
	modprobe kvctx && kvctxctl pool attach $a > /dev/null && pages load 0 30 100000 | grep -q right=30"
check "detach" kvctxctl pool detach t

# Rounds
slab() { sync; echo 3 > /proc/sys/vm/drop_caches; awk '/^(SUnreclaim|VmallocUsed|Percpu):/ { n += $2 } END { print n }' /proc/meminfo; }
rounds() {
	local i

	for i in $(seq "$1"); do
		kvctxctl pool attach "$a" > /dev/null && kvctxctl tenant add t x > /dev/null &&
			kvctxctl tenant remove t x > /dev/null && kvctxctl pool detach t > /dev/null || return
	done
}
check "10 rounds of attach and detach" rounds 10
before=$(slab)
check "50 more" rounds 50
after=$(slab)
echo "# unreclaimable kernel memory grew by $((after - before)) KiB in 50 rounds"
check_growth "leave nothing behind (less than 16 KiB a round)" test $((after - before)) -lt 800
failing() {
	local i

	for i in $(seq "$1"); do
		kvctxctl pool attach "$a" "$a" 2> /dev/null && return 1
		kvctxctl pool attach "$a" /dev/null 2> /dev/null && return 1
		kvctxctl pool attach "$a" "$b" 2> /dev/null && return 1
	done
	return 0
}
before=$(slab)
check "150 refused attaches" failing 50
after=$(slab)
echo "# unreclaimable kernel memory grew by $((after - before)) KiB in 150 refusals"
check_growth "leave nothing behind either" test $((after - before)) -lt 800

# Everything at once
kvctxctl pool format u "$b" --force --segment-size 1M > /dev/null
busy() {
	local end=$((SECONDS + 10)) p=$1 d=$2

	while [ $SECONDS -lt $end ]; do
		kvctxctl pool attach "$d"
		kvctxctl tenant add "$p" x
		KVCTX_NODE=/dev/kvctx/$p/x pages store 0 3 1000
		kvctxctl tenant remove "$p" x
		kvctxctl pool detach "$p"
	done
}
lists() {
	local end=$((SECONDS + 10))

	while [ $SECONDS -lt $end ]; do
		kvctxctl tenant list; kvctxctl stat; kvctxctl pool list; ctl_genl dump
	done
}
many_at_once() {
	local pids=()

	busy t "$a" > /dev/null 2>&1 & pids+=($!)
	busy t "$a" > /dev/null 2>&1 & pids+=($!)
	busy u "$b" > /dev/null 2>&1 & pids+=($!)
	lists > /dev/null 2>&1 & pids+=($!)
	wait "${pids[@]}"
}
many_at_once
check "attach, detach, tenants, stores and lists at the same time: all can be detached" \
	bash -c 'for p in t u; do kvctxctl pool detach $p 2> /dev/null; done; [ -z "$(ls /dev/kvctx 2> /dev/null)" ]'
check "unload" until_true 60 rmmod kvctx
check "nothing is left" bash -c '! grep -qE "kvctx|kvc_" /proc/vmallocinfo /proc/slabinfo /proc/devices'
nvmet_teardown
finish
