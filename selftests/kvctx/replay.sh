#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kvctx-replay against the module over NVMe/TCP: in a pool that holds everything the hits
# are those of an unbounded cache; pages survive detach and attach; a byte flipped on the
# target is noticed.
. "$(dirname "$0")/lib.sh"

# hits FILE: leading blocks of each request that an earlier one had
hits() {
	awk '{
		sub(/.*"hash_ids": *\[/, ""); sub(/\].*/, "")
		n = split($0, id, / *, */)
		for (i = 1; i <= n && (id[i] in seen); i++)
			hits++
		for (i = 1; i <= n; i++)
			seen[id[i]] = 1
	} END { print hits + 0 }' "$1"
}

field() { tr -d ' \t\n' < "$1" | grep -oE "\"$2\":[0-9]+" | head -n 1 | cut -d: -f2; }

replay() {
	kvctx-replay --trace /tmp/trace.jsonl --device /dev/kvctx/t/default --page-size 64K --verify \
		--no-progress --json "$1"
}

modprobe kvctx
backing=$(nvmet_null_blk replay 768)
check "NVMe/TCP target" nvmet_target tcp replay "$backing"
check "connect with kvctxctl" prints '/dev/nvme' kvctxctl connect --transport tcp \
	--traddr "$(nvmet_address tcp)" --trsvcid 4420 --nqn "$(nvmet_nqn replay)"
dev=$(nvmet_find replay)
check "format and attach" make_pool "$dev" --segment-size 16M
check "generate requests" kvctx-replay --generate 120 --seed 7 --dump-trace /tmp/trace.jsonl
want=$(hits /tmp/trace.jsonl)
check "they have hits" test "$want" -gt 0
check "replay" replay /tmp/first.json
check "no wrong page" test "$(field /tmp/first.json wrong_pages)" = 0
check "no error" test "$(field /tmp/first.json errors)" = 0
check "the hits are those of an unbounded cache ($want)" test "$(field /tmp/first.json pages_hit)" = "$want"
check "the checker leaves a pool in use alone" refuses 3 'in use' kvctxctl check "$dev"
check "unless it is told not to" bash -c "kvctxctl check --force $dev | grep -q 'Pool  *t'"
pages=$(kvctxctl stat t | awk '$1 == "pages" { print $2 }')
check "detach" until_true 20 kvctxctl pool detach t
check "the checker finds it sound, with all pages ($pages)" prints "Pages +$pages.*Sound" kvctxctl check --data "$dev"
check "and shows its superblock" prints 'valid: true' kvctxctl dump "$dev"
check "and a segment with pages" prints 'page' kvctxctl dump "$dev" segment 0
check "attach" kvctxctl pool attach "$dev"
check "replay again" replay /tmp/second.json
check "every page is a hit now" test "$(field /tmp/second.json pages_hit)" = "$(field /tmp/second.json pages_referenced)"
check "and right" test "$(field /tmp/second.json wrong_pages)$(field /tmp/second.json errors)" = 00

# overwrite a stretch in the middle of what was stored, below the target
check "damage the target" dd if=/dev/urandom of="$backing" bs=4096 count=64 seek=$((40 * 256)) oflag=direct
check "replay notices" refuses 1 '' replay /tmp/third.json
check "as pages that failed verification, not as wrong bytes" test "$(field /tmp/third.json bad_pages)" -gt 0
check "none was wrong" test "$(field /tmp/third.json wrong_pages)" = 0

check "detach" until_true 20 kvctxctl pool detach t
check "the pages that were damaged are gone" prints 'Sound' kvctxctl check --data "$dev"
check "damage others" dd if=/dev/urandom of="$backing" bs=4096 count=64 seek=$((60 * 256)) oflag=direct
check "logs are sound" prints 'Sound' kvctxctl check "$dev"
check "pages are not" refuses 1 'page.*checksum' kvctxctl check --data "$dev"
check "disconnect with kvctxctl" kvctxctl disconnect --nqn "$(nvmet_nqn replay)"
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
