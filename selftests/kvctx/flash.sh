#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What flash is spared: write amplification counted, discards at a rate, streams, the write budget, and the settings of
# a pool. The machine is that of flash-boot.
. "$(dirname "$0")/lib.sh"

mib=1048576
dev=$(nvmet_null_blk flash 128)
modprobe kvctx
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
# of_pool NAME: a field of pool t
of_pool() {
	kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE "\"$1\":[0-9]+" | head -n 1 | cut -d: -f2
}
# is FIELD NUMBER
is() { test "$(of_pool "$1")" = "$2"; }
amplification() { kvctxctl stat t -o json | grep -oE '"write_amplification": *[0-9.]+' | grep -oE '[0-9.]+$'; }
set_pool() { kvctxctl pool set t "$@"; }

# Settings
check "format, attach" make_pool "$dev" --segment-size 4M
check "discards are on after format" is discard_rate $((1024 * mib))
check "there is no budget" is write_budget 0
check "nothing is amplified before a store" bash -c '! kvctxctl stat t | grep -q amplification'
check "only root may change settings" refuses 3 'CAP_SYS_ADMIN|permitted|root' as_nobody kvctxctl pool set t --discard off
check "and nothing changed" is discard_rate $((1024 * mib))
check "too slow" refuses 1 'discard rate: 1M' kvctxctl pool set t --discard 1000
check "too little" refuses 1 'write budget: from 1M' kvctxctl pool set t --write-budget 1000
check "no such pool" refuses 3 'no pool named' kvctxctl pool set nope --discard off
check "set both" prints 'Pool t set' set_pool --discard 64M --write-budget 16M
check "the budget is there but for the superblocks" bash -c "
	left=$(of_pool write_budget_left); test \$left -lt $((16 * mib)) && test \$left -gt $((15 * mib))"
check "one is changed, the other stays" set_pool --discard off
check "so it is" is write_budget $((16 * mib))
check "detach, attach" bash -c "kvctxctl pool detach t && kvctxctl pool attach $dev"
check "both were kept" bash -c "kvctxctl pool show t | grep -qE 'discard +off' && kvctxctl pool show t | grep -qE '16.0 MiB a day'"
check "set by many at once" bash -c '
	for i in $(seq 20); do kvctxctl pool set t --discard ${i}M --write-budget ${i}G > /dev/null & done; wait
	kvctxctl pool set t --discard off --write-budget off'

# Accounts: 100 pages of 100,001 bytes are 25 blocks each
before=$(stat_of host_written_bytes)
check "store 100 pages" prints 'stored=100' pages store 0 100 100001
check "their blocks are counted" test $(($(stat_of host_written_bytes) - before)) = $((100 * 25 * 4096))
meta=$(stat_of meta_written_bytes)
check "flush" prints flushed pages flush
check "summaries are counted" test $(($(stat_of meta_written_bytes) - meta)) -ge 4096
check "duplicates are not" bash -c 'pages store 0 100 100001 | grep -q dedup=100'
check "the sum is the same" test $(($(stat_of host_written_bytes) - before)) = $((100 * 25 * 4096))
check "store twice what fits, some of it read meanwhile" bash -c '
	for i in $(seq 0 9); do
		pages store $((1000 + i * 100)) 100 262144 | grep -q stored=100 || exit 1
		pages load $((1000 + i * 100)) 30 262144 | grep -q wrong=0 || exit 1
	done'
host=$(stat_of host_written_bytes) reclaim=$(stat_of reclaim_written_bytes) meta=$(stat_of meta_written_bytes)
echo "# written: host $host, reclaim $reclaim, meta $meta; amplification $(amplification)"
check "moved pages are counted" test "$reclaim" -ge "$(stat_of moved_bytes)"
check "and no more than those" test "$reclaim" -le $(($(stat_of moved_bytes) * 2))
check "amplification is the ratio" awk -v h="$host" -v r="$reclaim" -v m="$meta" -v a="$(amplification)" \
	'BEGIN { d = a - (h + r + m) / h; exit !(d < 0.01 && d > -0.01) }'
check "nothing was discarded" test "$(stat_of discarded_bytes)" = 0

# Discards
check "segments were reclaimed" test "$(stat_of segments_reclaimed)" -gt 5
check "switch discards on, slowly" set_pool --discard 1M
check "they begin" until_true 60 bash -c 'kvctxctl stat t | grep -qE "discarded_bytes +[1-9]"'
check "a flush does not wait for them" bash -c '
	pages store 5000 3 262144 && timeout $((5 * KVCTX_PATIENCE)) pages flush | grep -q flushed'
check "stores and loads do not" bash -c '
	pages store 6000 200 262144 | grep -q stored=200 && pages load 6150 50 262144 | grep -q right=50'
# at 1 MiB a second at most, and a part more
start=$SECONDS before=$(stat_of discarded_bytes)
sleep 4
rate=$((($(stat_of discarded_bytes) - before) / (SECONDS - start + 1)))
check "no faster than they may ($rate bytes a second)" test $rate -le $((2 * mib))
check "switch to full speed" set_pool --discard on
segments() { kvctxctl pool show t -o json | tr -d ' \t\n' | grep -oE '"segments_free":[0-9]+' | cut -d: -f2; }
check "all that is old is discarded" until_true 20 bash -c '
	a=$(kvctxctl stat t | awk "/discarded_bytes/ { print \$2 }"); sleep 1
	test $a -gt 0 && test $a = "$(kvctxctl stat t | awk "/discarded_bytes/ { print \$2 }")"'
check "what is stored is right" bash -c 'pages load 6150 50 262144 | grep -q "right=50 wrong=0 bad=0"'
check "detach while discards are under way" bash -c '
	kvctxctl pool set t --discard 1M > /dev/null && pages store 7000 100 262144 | grep -q stored=100 && kvctxctl pool detach t'
nodiscard=$(nvmet_null_blk flashn 64 512 0)
check "a device that cannot" make_pool "$nodiscard" --segment-size 2M
check "store three times what fits" bash -c 'pages store 0 800 262144 | grep -q stored=800'
check "nothing was discarded" test "$(stat_of discarded_bytes)" = 0
check "no error either" test "$(stat_of io_errors)" = 0
check "detach" kvctxctl pool detach t

# Budget
check "format, attach" make_pool "$dev" --segment-size 4M
check "a budget of 16 MiB" set_pool --write-budget 16M
check "store 100 pages of 256 KiB: some are turned away" prints 'errors=0 unadmitted=([3-9][0-9])' \
	pages store 0 100 262144
turned=$(stat_of unadmitted)
echo "# turned away: $turned, written: $(stat_of host_written_bytes)"
check "no more than the budget was written" test "$(stat_of host_written_bytes)" -le $((16 * mib + 16 * 262144))
check "nothing is left" is write_budget_left 0
check "those that were stored are there, the others miss" prints "right=$((100 - turned)) wrong=0 bad=0 missing=$turned" \
	pages load 0 100 262144
check "the second time they are stored" prints "stored=$turned dedup=$((100 - turned)) .*unadmitted=0" \
	pages store 0 100 262144
check "now all are there" prints 'right=100 wrong=0' pages load 0 100 262144
check "new ones are not" prints 'stored=0 .*unadmitted=50' pages store 1000 50 262144
check "detach, attach" bash -c "kvctxctl pool detach t && kvctxctl pool attach $dev"
check "all are there still" prints 'right=100 wrong=0' pages load 0 100 262144
check "the budget is off" set_pool --write-budget off
check "new ones are stored" prints 'stored=50 .*unadmitted=0' pages store 2000 50 262144
check "detach" kvctxctl pool detach t

# Streams: which reclaim unit handles of the SSD were written through, as it tells itself
ssd=$(nvmet_ssd fdp0)
streams=$(cat "/sys/class/block/${ssd##*/}/queue/max_write_streams" 2> /dev/null || echo 0)
echo "# $ssd has $streams write streams"
# available NAME: media that each handle's reclaim unit has left
available() { nvme fdp status "$ssd" | grep -oE 'RUAMW[^0-9]*[0-9]+|Available Media Writes[^0-9]*[0-9]+' | grep -oE '[0-9]+$' | tr '\n' ' '; }
check "the SSD: format, attach" make_pool "$ssd" --segment-size 16M
if [ "$streams" -ge 3 ]; then
	read -r new0 moved0 meta0 _ <<< "$(available)"
	check "store 100 pages" prints 'stored=100' pages store 0 100 100000
	read -r new1 moved1 meta1 _ <<< "$(available)"
	echo "# left of the units: $new0 $moved0 $meta0, then $new1 $moved1 $meta1"
	check "they go to the first stream" test "$new1" != "$new0"
	check "nothing to the second" test "$moved1" = "$moved0"
	check "flush" prints flushed pages flush
	read -r new2 moved2 meta2 _ <<< "$(available)"
	check "summaries go to the third" test "$meta2" != "$meta1"
	check "and not to the others" test "$new2 $moved2" = "$new1 $moved1"
	check "hot pages among others, and more than fits" bash -c '
		for i in $(seq 0 59); do
			pages store $((500 + i)) 1 100000 | grep -q stored=1 && pages store $((1000 + i * 15)) 15 1048576 | grep -q stored=15 &&
				pages load 500 $((i + 1)) 100000 | grep -q wrong=0 || exit 1
		done'
	echo "# moved: $(stat_of moved_pages)"
	read -r new3 moved3 meta3 _ <<< "$(available)"
	check "moved pages go to the second" test "$moved3" != "$moved2"
else
	echo "ok $((test_no += 1)) streams # SKIP this kernel has no write streams for this SSD"
	check "store 100 pages" prints 'stored=100' pages store 0 100 100000
fi
check "detach" kvctxctl pool detach t
check "unload" until_true 60 rmmod kvctx
nvmet_teardown
finish
