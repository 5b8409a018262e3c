# SPDX-License-Identifier: GPL-2.0
#
# What kvctx-replay and kvctx-simulate share, as $(O)/lib/libworkload.a, and its tests.

WORKLOAD_OBJ	:= $(O)/obj/tools/workload
WORKLOAD_OBJS	:= $(patsubst %,$(WORKLOAD_OBJ)/%.o,cmdline content figures generate loads outfile progress trace workload)
WORKLOAD_UNITS	:= cmdline content generate loads trace
WORKLOAD_TESTS	:= $(WORKLOAD_UNITS:%=$(O)/test/workload-%)

TESTPROGS	+= $(WORKLOAD_TESTS)
ASAN_PROGS	+= $(WORKLOAD_TESTS)
CHECKS		+= check-workload

$(WORKLOAD_OBJ)/%.o: OBJ_CFLAGS = -Itools/workload $(call pkg,json-c)

$(O)/lib/libworkload.a: $(WORKLOAD_OBJS) $(O)/obj/tools/common/size.o
	@mkdir -p $(@D)
	@rm -f $@
	$(Q_LD)$(AR) rcs $@ $^

$(WORKLOAD_TESTS): $(O)/test/workload-%: $(WORKLOAD_OBJ)/tests/test_%.o $(O)/lib/libworkload.a
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,cmocka json-c)

.PHONY: check-workload workload-tests
workload-tests: $(WORKLOAD_TESTS)
check-workload:
	@$(MAKE) --no-print-directory $(ASAN) workload-tests
	@selftests/floors tools/workload/workload.h $(WORKLOAD_OBJS:$(O)/%=$(O)/asan/%)
	@tools/workload/tests/run workload $(O)/asan/test $(WORKLOAD_UNITS)
