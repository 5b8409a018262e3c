# SPDX-License-Identifier: GPL-2.0
#
# Static analysis of module and native code, and the nodes under stress. No part of `make test`: it takes long.
#   make audit         all of it; AUDIT='clang coccinelle stress' some

AUDIT		?=

.PHONY: audit
audit: guest
	@selftests/deps audit
	@selftests/audit/run $(O) $(AUDIT)
