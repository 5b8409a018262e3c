#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What kvctx.vllm promises, tried with vLLM 0.32 itself: its own tests of offloading tiers with ours in place of its
# example, then engines on the CPU that answer from pages of kvctx, or in spite of them.
#
#   libkvctx/python/tests/engines/vllm.sh ENGINES [PYTEST-ARGUMENT...]
#
# ENGINES has the environment vllm, and src/vllm-0.32.0, its source distribution. Arguments choose engine tests (-k
# damaged). From the environment: PYTHONPATH with the package, BUILD with bin/kvctxd (build). Writes below
# BUILD/connectors/vllm. Ends with "vllm: N passed, N failed, N skipped"; exit status 1 when any failed. About eight minutes.
set -uo pipefail
engines=$(realpath -e "${1:?usage: vllm.sh ENGINES [PYTEST-ARGUMENT...]}") || exit 1
shift
here=$(cd "$(dirname "$0")" && pwd)/vllm
BUILD=$(realpath "${BUILD:-build}")
work=$BUILD/connectors/vllm
python=$engines/vllm/bin/python
src=$engines/src/vllm-0.32.0
passed=0 failed=0 skipped=0
mkdir -p "$work"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

export PYTHONPATH=$here:$here/..:$here/../..${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export KVCTX_BIN=$BUILD/bin KVCTX_MODEL=$tmp/model

# tests TITLE SECONDS LOG PYTEST-ARGUMENT...
# Not by python -m pytest, which would take vLLM itself from its source distribution, with nothing built
tests() {
	local status p f s started=$SECONDS log=$work/$3.log

	echo "== $1 (log: $log)"
	timeout --kill-after=10 "$2" "${python%/*}/pytest" -v -p no:cacheprovider --durations=0 --junitxml="$tmp/report.xml" \
		"${@:4}" > "$log" 2>&1 < /dev/null
	status=$?
	read -r p f s < <("$python" -S "$here/../../counts" "$tmp/report.xml")
	rm -f "$tmp/report.xml"
	if [ "$status" != 0 ] && [ "$f" = 0 ]; then
		echo "not ok $1: pytest ended with status $status"
		f=1
	fi
	[ "$f" = 0 ] || tail -n 100 "$log"
	grep '^kvctx: ' "$log"
	echo "== $1: $p, $f, $s (passed, failed, skipped), $((SECONDS - started)) s"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

if [ $# != 0 ]; then
	:
elif [ -d "$src/tests/v1/kv_offload" ]; then
	cd "$src" || exit 1
	# the source distribution's metadata, which is found first, does not say that it is the build for CPUs
	export VLLM_TARGET_DEVICE=cpu
	# p2p wants another machine, test_gpu_worker.py a GPU; processes of test_shared_offload_region.py, which is of vLLM's own
	# memory, have 30 s to start in
	tests "vLLM's tests of offloading" 480 offload --noconftest -c /dev/null --rootdir=. -p kvctx_example \
		--ignore=tests/v1/kv_offload/tiering/p2p --ignore=tests/v1/kv_offload/cpu/test_gpu_worker.py \
		--ignore=tests/v1/kv_offload/cpu/test_shared_offload_region.py tests/v1/kv_offload
	cd - > /dev/null || exit 1
else
	echo "ok vLLM's tests of offloading # SKIP no $src"
	skipped=$((skipped + 1))
fi

if "$python" "$here/model.py" "$KVCTX_MODEL" > "$work/model.log" 2>&1; then
	tests "engines" 700 cases --rootdir="$here" -c /dev/null "$here/cases.py" "$here/walk_through.py" "$@"
else
	cat "$work/model.log"
	failed=$((failed + 1))
fi
echo "vllm: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
