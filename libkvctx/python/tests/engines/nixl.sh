#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The plugin for NIXL in the agent of NIXL's package, and SGLang's storage on it: tools/nixl/tests/run.
#
#   libkvctx/python/tests/engines/nixl.sh ENGINES
#
# ENGINES has the environment sglang, with nixl in it. From the environment: NIXL_SRC, BUILD (build).
set -euo pipefail
engines=$(realpath "${1:?usage: nixl.sh ENGINES}")
TMPDIR=$(realpath "${BUILD:-build}")/connectors/nixl
mkdir -p "$TMPDIR"
export TMPDIR
exec "$(dirname "$0")/../../../../tools/nixl/tests/run" "$engines/sglang"
