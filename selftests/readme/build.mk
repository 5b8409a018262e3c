# SPDX-License-Identifier: GPL-2.0
#
# What README tells people to type.

CHECKS		+= check-readme
.PHONY: check-readme check-demo
check-readme:
	@selftests/readme/run $(O)

# Part of `make test`
check-demo:
	@$(MAKE) --no-print-directory demo REQUESTS=40 && echo "demo: 1 passed, 0 failed, 0 skipped"
