# SPDX-License-Identifier: GPL-2.0
#
# make check-arm64: cross-built for arm64, and run under emulation; see run.

.PHONY: check-arm64
check-arm64:
	@selftests/arm64/run $(O) $(LIB_TESTS)

# The module there, in an emulated machine: see guest. SUITE is of Ubuntu's archive at MIRROR
.PHONY: check-arm64-guest
check-arm64-guest:
	@MIRROR='$(MIRROR)' SUITE='$(or $(SUITE),resolute)' selftests/arm64/guest $(O)
