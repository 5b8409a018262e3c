#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Guest side of attach-scale: the SSDs kvctx0, kvctx1 ... have a pool for each argument, PAGES[:MEMBERS].
. "$(dirname "$0")/lib.sh"

modprobe kvctx
step=65536

# field NAME: a number of the shown pool
field() { kvctxctl pool show image -o json | tr -d ' \t\n' | grep -oE "\"$1\":[0-9]+" | head -n 1 | cut -d: -f2; }
# written DEVICE...: bytes written to them so far
written() { for d; do cat "/sys/class/block/${d#/dev/}/stat"; done | awk '{ n += $7 * 512 } END { print n }'; }
ms() { echo $(($(date +%s%N) / 1000000)); }

i=0
for what; do
	pages=${what%:*} members=${what#"${what%:*}"} devs=()
	members=${members#:}
	members=${members:-1}
	for ((n = 0; n < members; n++, i++)); do
		devs+=("$(nvmet_ssd "kvctx$i")")
	done
	echo 3 > /proc/sys/vm/drop_caches
	start=$(ms)
	kvctxctl pool attach "${devs[@]}" > /dev/null
	attach=$(($(ms) - start))
	bytes=$(field attach_bytes) us=$(field attach_us)
	segments=$(($(field segments) * members))
	found=$(kvctxctl stat image -o json | tr -d ' \t\n' | grep -oE '"recovered_pages":[0-9]+' | cut -d: -f2)
	check "$pages pages: all are found" test "$found" = "$pages"
	# a record of 120 bytes a page; extents are at least 64 KiB, of which a header and less than a block are not records
	most=$((pages * 120 * 68 / 64 + segments * (step + 8192)))
	check "$pages pages: attach read $((bytes >> 10)) KiB, at most $((most >> 10))" test "$bytes" -le $most
	until_true 60 test "$(written "${devs[@]}")" -gt 0
	sleep 1
	before=$(written "${devs[@]}") start=$(ms)
	kvctxctl pool detach image > /dev/null
	detach=$(($(ms) - start))
	check "$pages pages: detach without anything new writes nothing" test "$(written "${devs[@]}")" = "$before"
	echo "# $pages pages, $members members: attach $attach ms, of which reading $((bytes >> 10)) KiB $((us / 1000)) ms; detach $detach ms"
done

# Detach writes the summaries of what is new, and seals nothing by force
kvctxctl pool attach "${devs[@]}" > /dev/null
KVCTX_NODE=/dev/kvctx/image/default pages store 0 20 100000 > /tmp/stored
sleep 1
before=$(written "${devs[@]}") sealed=$(kvctxctl stat image -o json | grep -oE '"segments_sealed": *[0-9]+' | grep -oE '[0-9]+$')
kvctxctl pool detach image > /dev/null
after=$(written "${devs[@]}")
check "detach after 20 stores writes $((after - before)) bytes, one extent on each member" \
	test $((after - before)) -le $((8192 * members)) -a $((after - before)) -gt 0
check "nothing was sealed before" test "$sealed" = 0
rmmod kvctx
finish
