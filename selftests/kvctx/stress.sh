#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The nodes of a pool under stress-ng, which does to a device node all that can be done to any: opens and closes it, reads,
# writes, maps, polls, seeks, and sends it ioctls that it does not know.
#
#   stress.sh [SECONDS]
#
# Of `make audit`: stress-ng is there only then.
. "$(dirname "$0")/lib.sh"

dev=$(nvmet_null_blk stress 256)
modprobe kvctx

# two at a time on every node, as root and as one who may only use it
stress() {
	stress-ng --dev 2 --dev-file "$1" --timeout "$2" --oomable --verify --metrics-brief
}

check "a pool with two tenants" bash -c "kvctxctl pool format t $dev --force --segment-size 4M && kvctxctl pool attach $dev &&
	kvctxctl tenant add t alice --uid 65534 --gid 65534 --mode 0660"
check "pages are stored" prints 'stored=100 .*errors=0' pages store 0 100 100000
check "the node of a tenant, as root" stress /dev/kvctx/t/default "${1:-30}"
check "the node of a tenant, as its owner" setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all \
	stress-ng --dev 2 --dev-file /dev/kvctx/t/alice --timeout "${1:-30}" --oomable --verify --temp-path /tmp
check "the pages are there" prints 'right=100 wrong=0 bad=0 missing=0 gone=0 errors=0' pages load 0 100 100000
check "no session is left: the pool can be detached" until_true 20 kvctxctl pool detach t
check "the module can be unloaded" until_true 20 kvctxctl unload
finish
