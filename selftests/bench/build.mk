# SPDX-License-Identifier: GPL-2.0
#
# The bench. README says what is measured and how.
#   make bench         kvctx beside raw io_uring, and the bars: build/bench/report.{txt,json,svg}
#   make bench-native  without a virtual machine: the engine in the process, and kvctxd: build/bench/native.{txt,json}
#   make bench-insn    write the instructions a page that check-insn compares with: selftests/bench/insn.expected
#   make check-insn    part of `make test`: has a page become more expensive?
#   make check-bench check-bench-native   part of `make check`: the code of the reports

BENCH_DIR	:= selftests/bench
BENCH_PROGS	:= $(addprefix $(O)/selftests/,mark readv prefix cputime)
BENCH_PLUGIN	:= $(O)/bench/count.so

GUESTPROGS	+= $(BENCH_PROGS) $(BENCH_PLUGIN)

$(O)/obj/$(BENCH_DIR)/%.o: OBJ_CFLAGS := -Ilibkvctx
$(O)/selftests/readv: BENCH_LIBS := -luring
$(O)/selftests/cputime: BENCH_LIBS := -lisal
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

CHECKS		+= check-bench check-bench-native

BENCH		?= some
STRICT		?=
NATIVE		?=

.PHONY: bench bench-native bench-insn check-insn check-bench check-bench-native
bench: deps guest
	@$(BENCH_DIR)/run $(if $(filter full,$(BENCH)),--full) $(if $(STRICT),--strict)

# fio and the engine for it have to be of one make, so both are built here
bench-native: deps $(O)/selftests/readv $(O)/selftests/cputime $(LIB_COST) programs
	@fio=$$($(BENCH_DIR)/native/fio) && $(MAKE) --no-print-directory fio-engine FIO_SRC="$$fio" && \
		$(BENCH_DIR)/native/run --build $(O) --fio "$$fio/fio" $(if $(STRICT),--strict) $(NATIVE)

bench-insn: guest
	@$(BENCH_DIR)/insn write

check-insn:
	@$(BENCH_DIR)/insn check

check-bench:
	@$(BENCH_DIR)/test_report.py

check-bench-native:
	@$(BENCH_DIR)/native/test_native.py
