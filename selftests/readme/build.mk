# SPDX-License-Identifier: GPL-2.0
#
# What README tells people to type, and what they read.

CHECKS		+= check-readme check-markup
.PHONY: check-readme check-markup check-demo
check-readme:
	@selftests/readme/run $(O)

check-markup:
	@selftests/readme/markup

# Part of `make test`
check-demo:
	@$(MAKE) --no-print-directory demo REQUESTS=40 && echo "demo: 1 passed, 0 failed, 0 skipped"
