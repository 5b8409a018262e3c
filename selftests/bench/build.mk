# SPDX-License-Identifier: GPL-2.0
#
# The bench. README says what is measured and how.
#   make bench         kvctx beside raw io_uring, and the bars: build/bench/report.{txt,json,svg}
#   make bench-insn    write the instructions a page that check-insn compares with: selftests/bench/insn.expected
#   make check-insn    part of `make test`: has a page become more expensive?
#   make check-bench   part of `make check`: the code of the report

BENCH_DIR	:= selftests/bench
BENCH_PROGS	:= $(addprefix $(O)/selftests/,mark readv prefix)
BENCH_PLUGIN	:= $(O)/bench/count.so

GUESTPROGS	+= $(BENCH_PROGS) $(BENCH_PLUGIN)

$(O)/obj/$(BENCH_DIR)/%.o: OBJ_CFLAGS := -Ilibkvctx
$(O)/selftests/readv: BENCH_LIBS := -luring
$(O)/selftests/prefix: $(LIBKVCTX_A)
$(O)/selftests/prefix: BENCH_LIBS := -pthread $(LIBKVCTX_LIBS)
$(BENCH_PROGS): $(O)/selftests/%: $(O)/obj/$(BENCH_DIR)/%.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(BENCH_LIBS)

# Loaded by the QEMU of the guest root, so built there
$(O)/obj/$(BENCH_DIR)/plugin/%.o: OBJ_CFLAGS := -fPIC -fvisibility=hidden
$(BENCH_PLUGIN): $(O)/obj/$(BENCH_DIR)/plugin/count.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -shared $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ -lpthread

CHECKS		+= check-bench

BENCH		?= some
STRICT		?=

.PHONY: bench bench-insn check-insn check-bench
bench: deps guest
	@$(BENCH_DIR)/run $(if $(filter full,$(BENCH)),--full) $(if $(STRICT),--strict)

bench-insn: guest
	@$(BENCH_DIR)/insn write

check-insn:
	@$(BENCH_DIR)/insn check

check-bench:
	@$(BENCH_DIR)/test_report.py
