#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The Python package and the connectors on the module's nodes: those of their own tests (libkvctx/python/tests) that are
# not about files or kvctxd, and python -m kvctx. Python is on an SSD that python-boot made.
. "$(dirname "$0")/lib.sh"

kind=python
home=/mnt/python package=/kvctx/libkvctx/python
KVCTX_DEVICE=$(nvmet_null_blk python 64)
export KVCTX_DEVICE

python() {
	env PYTHONHOME=$home LD_LIBRARY_PATH=$home/lib PYTHONPATH=$package:$home/site:"$here" \
		KVCTX_LIBRARY=/usr/lib/libkvctx.so.0 $home/bin/python3 "$@"
}

# The files beside these open no pool; the tests left out ask the package the same many times, whoever serves
package_tests() {
	python -m pytest -q -p tap -p no:cacheprovider --tb=short --timeout 120 --basetemp=/tmp/pytest \
		$package/tests/test_{session,operations,events,life,buffers,lmcache,vllm,sglang,main}.py \
		-k 'not nothing_raises and not another_rank and not another_shape and not wheel and not readme and not python_3'
}

mkdir $home
check "Python's SSD" mount -t ext4 -o ro "$(nvmet_ssd python)" $home
modprobe kvctx
program package_tests

check "format and attach" make_pool "$KVCTX_DEVICE" --segment-size 1M
check "python -m kvctx tells of the node, and its self-test passes there" prints \
	'default: module; .*self-test: 64 pages of 64 KiB stored' python -m kvctx --on /dev/kvctx/t/default
check "and leaves nothing" test "$(stat_of pages)" = 0
check "detach" kvctxctl pool detach t
check "unload" until_true 10 kvctxctl unload
umount $home
nvmet_teardown
finish
