#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Guest side of attach-scale: SSD kvctxN has a pool of as many pages as the Nth argument says.
. "$(dirname "$0")/lib.sh"

modprobe kvctx
step=65536

# field NAME: a number of the shown pool
field() { kvctxctl pool show image -o json | tr -d ' \t\n' | grep -oE "\"$1\":[0-9]+" | head -n 1 | cut -d: -f2; }
# written DEVICE: bytes written to it so far
written() { awk '{ print $7 * 512 }' "/sys/class/block/${1#/dev/}/stat"; }
ms() { echo $(($(date +%s%N) / 1000000)); }

i=0
for pages; do
	dev=$(nvmet_ssd "kvctx$i")
	echo 3 > /proc/sys/vm/drop_caches
	start=$(ms)
	kvctxctl pool attach "$dev" > /dev/null
	attach=$(($(ms) - start))
	bytes=$(field attach_bytes) us=$(field attach_us)
	segments=$(field segments)
	found=$(kvctxctl stat image -o json | tr -d ' \t\n' | grep -oE '"recovered_pages":[0-9]+' | cut -d: -f2)
	check "$pages pages: all are found" test "$found" = "$pages"
	# a record of 120 bytes a page; extents are at least 64 KiB, of which a header and less than a block are not records
	most=$((pages * 120 * 68 / 64 + segments * (step + 8192)))
	check "$pages pages: attach read $((bytes >> 10)) KiB, at most $((most >> 10))" test "$bytes" -le $most
	until_true 10 test "$(written "$dev")" -gt 0
	sleep 1
	before=$(written "$dev") start=$(ms)
	kvctxctl pool detach image > /dev/null
	detach=$(($(ms) - start))
	check "$pages pages: detach without anything new writes nothing" test "$(written "$dev")" = "$before"
	echo "# $pages pages: attach $attach ms, of which reading $((bytes >> 10)) KiB $((us / 1000)) ms; detach $detach ms"
	i=$((i + 1))
done

# Detach writes the summaries of what is new, and seals nothing by force
kvctxctl pool attach "$dev" > /dev/null
KVCTX_NODE=/dev/kvctx/image/default pages store 0 20 100000 > /tmp/stored
sleep 1
before=$(written "$dev") sealed=$(kvctxctl stat image -o json | grep -oE '"segments_sealed": *[0-9]+' | grep -oE '[0-9]+$')
kvctxctl pool detach image > /dev/null
after=$(written "$dev")
check "detach after 20 stores writes $((after - before)) bytes, one extent" \
	test $((after - before)) -le 8192 -a $((after - before)) -gt 0
check "nothing was sealed before" test "$sealed" = 0
rmmod kvctx
finish
