# SPDX-License-Identifier: GPL-2.0
#
# make check-arm64: cross-built for arm64, and run under emulation; see run.

.PHONY: check-arm64
check-arm64:
	@selftests/arm64/run $(O) $(LIB_TESTS)

# The module there, in an emulated machine: see guest
.PHONY: check-arm64-guest
check-arm64-guest:
	@selftests/arm64/guest $(O)
