#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The README's Python lines with torch. kvctx.lmcache with LMCache itself: its bench in many shapes, its own tests of
# adapters with ours in the mock's place, a process that is killed while it stores, and vLLM on the CPU with an LMCache
# server that is killed and restarted.
#
#   libkvctx/python/tests/engines/lmcache.sh ENGINES [WORD...]
#
# ENGINES has the environments lmcache and vllm, and src/lmcache-VERSION, its source distribution. With WORDs only parts
# whose name has one of them are run. From the environment: PYTHONPATH with the package, BUILD with bin/kvctxd (build).
# Writes below BUILD/connectors/lmcache. Ends with "N passed, N failed, N skipped".
set -uo pipefail
engines=$(realpath "$1")
shift
words=("$@")
here=$(cd "$(dirname "$0")" && pwd)/lmcache
BUILD=$(realpath "${BUILD:-build}")
work=$BUILD/connectors/lmcache
python=$engines/lmcache/bin/python
export KVCTX_BIN=$BUILD/bin LMCACHE_TRACK_USAGE=false LMCACHE_DISABLE_BANNER=1 PYTHONHASHSEED=0
export PYTHONPATH=$here:$here/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$work"
passed=0 failed=0 skipped=0

# part NAME SECONDS COMMAND...: its lines "ok ..." and "FAILED ..." count, one of them at least, and its status
part() {
	local name=$1 limit=$2 log=$work/$1.log status=0 word mine=${#words[@]} started=$SECONDS bad

	for word in "${words[@]}"; do
		[[ $name != *"$word"* ]] || mine=0
	done
	[ "$mine" = 0 ] || return
	shift 2
	echo "== $name (log: $log)"
	timeout --kill-after=10 "$limit" "$@" > "$log" 2>&1 < /dev/null || status=$?
	grep -E '^(ok|FAILED|skipped) ' "$log"
	passed=$((passed + $(grep -c '^ok ' "$log")))
	skipped=$((skipped + $(grep -c '^skipped ' "$log")))
	bad=$(grep -c '^FAILED ' "$log")
	if [ "$bad" = 0 ] && { [ $status != 0 ] || ! grep -q '^ok ' "$log"; }; then
		echo "FAILED $name: status $status; the end of its log:"
		tail -n 25 "$log"
		bad=1
	fi
	failed=$((failed + bad))
	echo "== $name: $((SECONDS - started)) s"
}

# LMCache's own tests of what uses an adapter, a line for each file of them; what is left out says why.
# Not by python -m pytest, which would take LMCache itself from its source distribution, with nothing built
suite() {
	local files tests

	tests=$(echo "$engines"/src/lmcache-*/tests/v1/distributed)
	cd "$tests/../../.." || exit 1
	# whatever has an adapter below it in those tests is the mock, but for a few files that only read its configuration
	mapfile -t files < <(grep -lE 'MockL2Adapter\b|MockL2AdapterConfig\(' "$tests"/*.py "$tests"/serde/test_serde_e2e.py)
	mkdir -p "$work/suite"
	KVCTX_TEST_DIR=$work/suite "${python%/*}/pytest" -p in_place_of_mock -p no:cacheprovider -W ignore -q \
		--show-capture=no "${files[@]}"
}

# What the README shows, on torch's tensors, too: the package's own tests have no torch
readme() {
	"$python" - "$(mktemp -d -p "$work")" <<-'PY'
		import sys
		from test_main import readme_python
		block, = readme_python()
		assert "torch" in block
		exec(block.replace("/var/lib/kvctx", sys.argv[1]), {})
		print("ok the Python lines of the README")
	PY
}

export -f suite readme
export engines work python
part readme 60 bash -c readme
part fakes 60 "$python" "$here/../agree.py" lmcache
part bench 400 "$python" "$here/bench.py" "$engines/lmcache/bin/lmcache" "$work/bench"
part suite 400 bash -c suite
part kill 200 "$python" "$here/kill.py" "$work/kill"
part vllm 500 "$python" "$here/restart.py" "$engines" "$work/vllm"
echo "lmcache: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
