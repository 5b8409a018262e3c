#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The demonstration (tools/demo/guest) where `make demo` boots no machine for it: on arm64, see ../arm64/guest. It wants an
# SSD with the serial number kvctx0.
. "$(dirname "$0")/lib.sh"

host=/mnt/host
field() { tr -d ' \t\n' < "$host/$1.json" | grep -oE "\"$2\":[0-9a-z]+" | head -n 1 | cut -d: -f2; }

check "requests" kvctx-replay --generate 40 --dump-trace $host/trace.jsonl
check "target, pool, replay, detach, attach, replay, and all of it undone" "$here/../../tools/demo/guest" --page-size 64K
check "the first replay stored pages, and all that it loaded were right" \
	test "$(field first good)" = true -a "$(field first pages_stored)" -gt 0
check "so were those of the second" test "$(field second good)" = true
check "which found every page" test "0$(field second pages_hit)" -gt 0 -a "$(field second pages_hit)" = "$(field second pages_referenced)"
finish
