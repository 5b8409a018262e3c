# SPDX-License-Identifier: GPL-2.0
#
# The connectors to inference engines, with the engines themselves. README says what is run and measured.
#   make check-connectors  the engines' own tests with kvctx in place (downloads about 1.5 GiB when first run)
#   make bench-connectors  beside what the engines would use instead: build/bench/connectors.{txt,json,svg}
#   make check-bench-connectors  part of `make check`: the arithmetic of the report

CONNECTORS_DIR	:= selftests/connectors
CONNECTORS	:= lmcache vllm sglang nixl
CHECKS		+= check-bench-connectors
# a ready environment, as setup makes it; and the options of bench/run
ENGINES		?=
CONNECTORS_BENCH ?=
NIXL_SRC	?=

.PHONY: check-connectors bench-connectors check-bench-connectors $(CONNECTORS:%=check-connectors-%)
check-connectors: deps programs wheel
	@$(CONNECTORS_DIR)/check prepare $(O) "$(ENGINES)"
	@selftests/all $(CONNECTORS:%=check-connectors-%)

$(CONNECTORS:%=check-connectors-%): check-connectors-%:
	@O=$(O) NIXL_SRC="$(NIXL_SRC)" $(CONNECTORS_DIR)/check $* $(O) "$(ENGINES)"

bench-connectors: deps programs wheel $(O)/selftests/cputime
	@$(CONNECTORS_DIR)/check prepare $(O) "$(ENGINES)"
	@fio=$$(selftests/bench/native/fio) && PYTHONPATH=$(O)/connectors/site $(CONNECTORS_DIR)/bench/run --build $(O) --fio "$$fio/fio" \
		$(if $(ENGINES),--engines "$(ENGINES)") $(if $(STRICT),--strict) $(CONNECTORS_BENCH)

check-bench-connectors:
	@$(CONNECTORS_DIR)/bench/test_report.py
