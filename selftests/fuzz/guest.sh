#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In the guest: a pool to be abused, and the fuzzer on it. Arguments are libFuzzer's; files come and go in /mnt/host.
# A tenant's key lies in this script's own keyring, see keys.c.
[ -n "${KVCTX_KEYS-}" ] || KVCTX_KEYS=ours exec /kvctx/selftests/keys run "$0" "$@"
set -euo pipefail
. /kvctx/selftests/vm/guest/nvmet.sh
PATH=/kvctx/selftests:$PATH

mountpoint=/sys/kernel/debug
grep -q " $mountpoint " /proc/mounts || mount -t debugfs none $mountpoint
for n in 0 1 2; do
	nvmet_null_blk fuzz$n 32 > /dev/null
done
modprobe kvctx
keys add logon kvctx:fuzz 1
kvctxctl pool format t /dev/fuzz0 /dev/fuzz1 --force --segment-size 1M > /dev/null

# what a finding is, ends the guest: the newest inputs are kept outside
echo 1 > /proc/sys/kernel/panic_on_warn
echo 30 > /proc/sys/kernel/hung_task_timeout_secs 2> /dev/null || true
echo 1 > /proc/sys/kernel/hung_task_panic 2> /dev/null || true

# nobody else adds to the corpus: reading its folder again, by way of the host, would take most of the time
status=0
FUZZ_LAST=/mnt/host/last abi-fuzz -max_len=1024 -len_control=0 -timeout=120 -rss_limit_mb=0 -detect_leaks=0 -use_value_profile=0 -reload=0 \
	-print_final_stats=1 -artifact_prefix=/mnt/host/failed- "$@" || status=$?
rmmod kvctx
# where it is on
if { echo scan > $mountpoint/kmemleak; } 2> /dev/null; then
	sleep 5
	echo scan > $mountpoint/kmemleak
	if grep -q . $mountpoint/kmemleak; then
		cat $mountpoint/kmemleak
		status=1
	fi
fi
exit $status
