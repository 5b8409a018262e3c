# SPDX-License-Identifier: GPL-2.0
# The testbed brings no programs, only the test of itself.

.PHONY: check-vm
check-vm:
	@selftests/vm/selftest
