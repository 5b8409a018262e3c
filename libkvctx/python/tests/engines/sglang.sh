#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# kvctx.sglang with SGLang itself: its host pools in all layouts, its factory with fault injection, its cache controller,
# threads, a medium that is damaged, a pool that is too small, kvctxd that is killed.
#
#   libkvctx/python/tests/engines/sglang.sh ENGINES
#
# ENGINES has the environment sglang. From the environment: PYTHONPATH with the package, BUILD with bin/kvctxd (build).
# Writes below BUILD/connectors/sglang. Ends with "sglang: N passed, N failed, N skipped"; status 1 when any failed.
# Takes a minute.
set -uo pipefail
engines=$(realpath "${1:?usage: sglang.sh ENGINES}")
here=$(cd "$(dirname "$0")" && pwd)/sglang
BUILD=$(realpath "${BUILD:-build}")
mkdir -p "$BUILD/connectors/sglang"
export KVCTX_BIN=$BUILD/bin PYTHONPATH=$here/..:$here/../..${PYTHONPATH:+:$PYTHONPATH}
log=$BUILD/connectors/sglang/log

if ! "$engines/sglang/bin/python" -c 'import kvctx' > "$log" 2>&1; then
	cat "$log"
	echo "sglang: 0 passed, 1 failed, 0 skipped"
	exit 1
fi
work=$(mktemp -d -p "$BUILD/connectors/sglang")
trap 'rm -rf "$work"' EXIT
timeout --kill-after=10 400 "$engines/sglang/bin/python" "$here/prove.py" "$work" > "$log" 2>&1 < /dev/null
status=$?
grep -E '^(ok|not ok) ' "$log"
if tail -n 1 "$log" | grep -E '^sglang: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'; then
	[ $status = 0 ] || cat "$log" >&2
	exit $status
fi
tail -n 40 "$log"
echo "status $status"
echo "sglang: $(grep -c '^ok ' "$log") passed, $(($(grep -c '^not ok ' "$log") + 1)) failed, 0 skipped"
exit 1
