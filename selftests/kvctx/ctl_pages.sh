#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What listeners to the group "pages" are told: of all tenants, of pools that come later too, and nobody else of any.
. "$(dirname "$0")/lib.sh"

a=$(nvmet_null_blk pagesa 64)
b=$(nvmet_null_blk pagesb 64)
told=/tmp/ctl_pages.told

# listen FILE [OPTION]...: kvctxctl events in the background, as $listener; it listens when this returns. Not below check,
# which is a process of its own
listen() {
	local file=$1 n

	kvctxctl events -o json "${@:2}" > "$file" 2>&1 &
	listener=$!
	for n in {1..600}; do
		kvctxctl tenant add t probe && kvctxctl tenant remove t probe
		grep -q tenant_removed "$file" && return
		sleep 0.1
	done
	return 1
}

# events KIND TENANT [POOL]: how many there were; a line of JSON each
events() { tr -d ' ' < $told | grep "\"event\":\"page_$1\"" | grep "\"pool\":\"${3:-t}\"" | grep -c "\"tenant\":\"$2\""; }
told() { [ "$(events "${@:1:3}")" = "$4" ]; }
alice() { KVCTX_NODE=/dev/kvctx/t/alice "$@"; }

# overhear NAME COMMAND...: one without rights who is in all groups, by the command, in the background, as $listener
overhear() {
	setpriv --reuid 65534 --clear-groups "${@:2}" ctl_genl overhear > "/tmp/ctl_pages.$1" 2>&1 &
	listener=$!
	until_true 60 grep -q '^in' "/tmp/ctl_pages.$1"
}

overhear early env
check "one is in all groups while they are nobody's" grep -E '^in [1-9]' /tmp/ctl_pages.early
early=$listener
modprobe kvctx
overhear apart unshare -Urn
check "so is root of namespaces of his own" grep -E '^in [1-9]' /tmp/ctl_pages.apart
apart=$listener
kvctxctl pool format t "$a" --force --segment-size 1M > /dev/null
kvctxctl pool attach "$a" > /dev/null
kvctxctl tenant add t alice > /dev/null
check "users are not told" refuses 3 'needs CAP_NET_ADMIN' setpriv --reuid 65534 --clear-groups \
	kvctxctl events --pages --count 1
check "nor is root of a namespace of his own" refuses 3 'needs CAP_NET_ADMIN' setpriv --reuid 65534 --clear-groups \
	unshare -Ur kvctxctl events --pages --count 1
check "before anybody listens" prints 'stored=5 ' pages store 500 5 100000
listen /tmp/ctl_pages.rest
check "one listens to the rest" test $? = 0
rest=$listener
listen $told --pages
check "one listens to pages" test $? = 0
check "store" prints 'stored=20 ' pages store 0 20 100000
check "store as another tenant" prints 'stored=10 ' alice pages store 0 10 5000
check "he is told" until_true 60 told stored default t 20
check "of both" until_true 60 told stored alice t 10
check "what is there already is no event" prints 'dedup=20' pages store 0 20 100000
check "delete" prints 'deleted=4 ' pages delete 0 4
check "he is told of that" until_true 60 told deleted default t 4
check "each page and length once" test "$(grep page_stored $told | tr -d ' ' | grep '"bytes":100000' | sort -u | wc -l)" = 20
check "more than there is room for" prints 'stored=900 ' pages store 1000 900 100000
evicted=$(stat_of evicted_pages)
check "$evicted were evicted" test "$evicted" -gt 0
# the counter counts on while reclaim does
check "and he is told of each" until_true 60 bash -c "
	test \$(tr -d ' ' < $told | grep -c '\"event\":\"page_evicted\"') = \
		\$(kvctxctl stat t -o json | tr -d ' \n' | grep -oE '\"evicted_pages\":[0-9]+' | cut -d: -f2)"
check "none was lost" bash -c "! grep -q '\"lost\"' $told"

kvctxctl pool format u "$b" --force --segment-size 1M > /dev/null
check "a pool that comes" kvctxctl pool attach "$b"
check "has pages" env KVCTX_NODE=/dev/kvctx/u/default bash -c "pages store 0 7 1000 | grep -q 'stored=7 '"
check "which he is told of" until_true 60 told stored default u 7
check "it is detached while he listens" kvctxctl pool detach u
check "who did not ask is told of that" until_true 60 grep -q pool_detached /tmp/ctl_pages.rest
check "and was told of no page" bash -c "! grep -E '\"event\": *\"page_' /tmp/ctl_pages.rest"
check "who may not listen is told of none" bash -c "! grep overheard /tmp/ctl_pages.early /tmp/ctl_pages.apart"
check "and is still there" kill "$early" "$apart"
kill "$listener" "$rest"
wait "$listener" "$rest" "$early" "$apart"

# Nobody is told for longer than a pool stays watched
for n in {1..80}; do
	pages store $((3000 + n)) 1 5000 > /dev/null
	sleep 0.1
done
listen $told --pages
check "he comes again" test $? = 0
check "store" prints 'stored=3 ' pages store 4000 3 7000
check "he is told of what came since" until_true 60 told stored default t 3
check "the pool goes, and comes back" bash -c "kvctxctl pool detach t && kvctxctl pool attach $a > /dev/null"
check "store" prints 'stored=2 ' pages store 5000 2 7000
check "he is still told" until_true 60 told stored default t 5
pages store 6000 200 5000 > /dev/null & storing=$!
kill "$listener"
wait "$listener"
wait $storing
check "pages while he ended" test $? = 0
check "detach" kvctxctl pool detach t
check "unload" rmmod kvctx
nvmet_teardown
finish
