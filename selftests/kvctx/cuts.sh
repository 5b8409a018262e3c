#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A pool of two members, one of whose tenants is encrypted, passed to and fro between the module and a process that serves
# it itself: at clean ends, and at power cuts under load. A cut takes the members away from whoever serves them. They are
# null_blk devices with a volatile cache, which keep what was flushed, and what the cache had no more room for; the load and
# what it is held to is that of the crash tests, see crash.c.
. "$(dirname "$0")/lib.sh"
[ -n "${KVCTX_KEYS-}" ] || KVCTX_KEYS=ours exec keys run "$0"

# so large that no machine fills it in the time that the loads have
mb=768 cache=4
dir=/tmp/cuts log=/tmp/cuts.log
module=/dev/kvctx/t process=$dir
devs=()

# at SERVER TENANT COMMAND...
at() { KVCTX_NODE=$1/$2 "${@:3}"; }
load() { CRASH_TENANTS="$server/default $server/secret" crash "$1" "$account" 1 roomy $((mb * 14 / 10 << 20)); }
attach() { kvctxctl pool attach "${devs[@]}"; }
detach() { until_true 60 kvctxctl pool detach t; }
power() { echo "$1" > "$nvmet_null_cfg/half0/power" && echo "$1" > "$nvmet_null_cfg/half1/power"; }
# said REGEX: the load; what it has said is shown
said() { cat $log; grep -qE "$1" $log; }

mkdir $dir
for i in 0 1; do
	devs+=("$(nvmet_null_blk half$i $mb 512 1 $cache)")
	ln -s "${devs[i]}" $dir/member$i
done
account=$(nvmet_null_blk account 32)
modprobe kvctx
keys add user kvctx:t 1
check "format" kvctxctl pool format t "${devs[@]}" --force --segment-size 2M
check "attach to the module" attach
check "a tenant with a key" kvctxctl tenant add t secret --key kvctx:t

# Clean ends
for tenant in default secret; do
	check "the module stores, $tenant" prints 'stored=40 ' at $module $tenant pages store 0 40 100000
done
check "detach" detach
for tenant in default secret; do
	check "a process finds all, $tenant" prints 'right=40 ' at $process $tenant pages load 0 40 100000
	check "stores others" prints 'stored=40 ' at $process $tenant pages store 40 40 70001
	check "and deletes some" prints 'deleted=10 ' at $process $tenant pages delete 0 10
done
check "attach to the module" attach
for tenant in default secret; do
	check "it finds what both have stored, $tenant" prints 'right=30 ' at $module $tenant pages load 10 30 100000
	check "also of the process" prints 'right=40 ' at $module $tenant pages load 40 40 70001
	check "and what was deleted is gone" prints 'missing=10 ' at $module $tenant pages load 0 10 100000
done
check "detach" detach

# Power cuts
found='0 '
for i in 1 2 3 4; do
	if [ $((i % 2)) = 1 ]; then
		who=module server=$module
		check "cut $i: attach to the module" attach
	else
		who=process server=$process
	fi
	load run > $log 2>&1 & loading=$!
	until_true 120 grep -qE '^(loading|FAILED)' $log
	check "cut $i: the $who $(head -n 1 $log)" said "^verified $found"
	found='[1-9]'
	sleep $(((i + 1) / 2))
	check "cut $i: it loads until then" kill -0 $loading
	check "cut $i: power off" power 0
	check "cut $i: the load ends" until_true 120 bash -c "! kill -0 $loading"
	check "cut $i: $(tail -n 1 $log)" said '^FAILED .*(failed this transfer|is gone)$'
	[ $who = process ] || check "cut $i: detach" detach
	check "cut $i: power on" power 1
done
check "attach to the module" attach
server=$module
check "it finds what was flushed" prints '^verified [1-9]' load verify
for tenant in default secret; do
	check "pages that no cut met are there, $tenant" prints 'right=40 ' at $module $tenant pages load 40 40 70001
	check "and what was deleted is not" prints 'missing=10 ' at $module $tenant pages load 0 10 100000
done
check "detach" detach

# Another key
keys add user kvctx:t 2
check "with another key a process does not open the tenant" fails 'key not available' at $process secret pages load 40 1 70001
check "the others it does" prints 'right=40 ' at $process default pages load 40 40 70001
check "attach with another key" attach
check "nor does the module" fails 'key not available' at $module secret pages load 40 1 70001
check "the others it does" prints 'right=40 ' at $module default pages load 40 40 70001
check "detach" detach
keys drop user kvctx:t
check "nor a process without one" fails 'key not available' at $process secret pages load 40 1 70001
keys add user kvctx:t 1
check "with its own it does" prints 'right=40 ' at $process secret pages load 40 40 70001
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
