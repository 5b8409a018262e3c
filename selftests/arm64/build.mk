# SPDX-License-Identifier: GPL-2.0
#
# make check-arm64: cross-built for arm64, and run under emulation; see run.

.PHONY: check-arm64
check-arm64:
	@selftests/arm64/run $(O) $(LIB_TESTS)
