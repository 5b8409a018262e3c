# SPDX-License-Identifier: GPL-2.0
.PHONY: check-packages
check-packages:
	@selftests/vm/setup
	@selftests/packages/run
