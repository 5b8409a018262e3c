#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tampered pools, attached one after another: see hostile.c.
#
#   hostile.sh [COUNT [FIRST]]
. "$(dirname "$0")/lib.sh"

count=${1:-100} first=${2:-$(($(date +%s) * 1000))}
step=50
dev=$(nvmet_null_blk hostile 8)
modprobe kvctx

# base fresh|used: a pool with pages 0 to 159 in it, or what is left of them, and tombstones
base() {
	make_pool "$dev" --segment-size 256K > /dev/null && pages store 0 80 20000 && pages flush &&
		pages delete 5 20 && pages flush && pages store 80 40 20000 || return
	if [ "$1" = used ]; then	# several times around
		pages store 1000 900 20000 && pages store 0 30 20000 && pages flush && pages delete 1850 20 &&
			pages delete 3 10 && pages flush || return
	fi
	kvctxctl pool detach t
}

# images NUMBER COUNT: try them, and tell what came of it
images() {
	hostile "$dev" "$1" "$2" > /tmp/hostile.out
	status=$?
	sed 's/^/# /' /tmp/hostile.out
	return $status
}

kind=used
for ((done = 0; done < count; done += step)); do
	n=$((count - done < step ? count - done : step))
	kind=$([ $kind = used ] && echo fresh || echo used)
	check "a pool, $kind" base $kind
	images $((first + done)) $n
	check "images $((first + done)) to $((first + done + n - 1)) of it are refused with a reason or recovered" \
		grep -q "^images=$n " /tmp/hostile.out
done
check "a sound pool attaches still" bash -c "kvctxctl pool attach $dev && kvctxctl pool detach t"
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
