# SPDX-License-Identifier: GPL-2.0
#
# Static analysis of module and native code, and the nodes under stress. No part of `make test`: it takes long.
#   make audit         all of it; AUDIT='clang coccinelle stress' some

#   make check-threat-model   part of `make check`: are the tests there that the threat model names?

AUDIT		?=
CHECKS		+= check-threat-model

.PHONY: audit check-threat-model
check-threat-model:
	@selftests/audit/threat-model

audit: guest
	@selftests/deps audit
	@selftests/audit/run $(O) $(AUDIT)
