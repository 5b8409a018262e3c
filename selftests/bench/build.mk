# SPDX-License-Identifier: GPL-2.0
#
# The bench. README says what is measured and how.
#   make bench         kvctx beside raw io_uring, and the bars: build/bench/report.{txt,json,svg}
#   make bench-insn    write the instructions a page that check-insn compares with: selftests/bench/insn.expected
#   make check-insn    part of `make test`: has a page become more expensive?
#   make check-bench   part of `make check`: the code of the report

BENCH		:= selftests/bench
BENCH_PROGS	:= $(addprefix $(O)/selftests/,mark)
BENCH_PLUGIN	:= $(O)/bench/count.so

GUESTPROGS	+= $(BENCH_PROGS) $(BENCH_PLUGIN)

$(O)/selftests/mark: $(O)/obj/$(BENCH)/mark.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^

# Loaded by the QEMU of the guest root, so built there
$(O)/obj/$(BENCH)/plugin/%.o: OBJ_CFLAGS := -fPIC -fvisibility=hidden
$(BENCH_PLUGIN): $(O)/obj/$(BENCH)/plugin/count.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -shared $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ -lpthread

.PHONY: check-insn bench-insn
check-insn:
	@$(BENCH)/insn check

bench-insn: guest
	@$(BENCH)/insn write
