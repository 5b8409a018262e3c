# SPDX-License-Identifier: GPL-2.0
#
# kvctx-simulate and what draws its figures, their manual page and their tests.

SIMULATE_OBJ	:= $(O)/obj/tools/simulate
SIMULATE_OBJS	:= $(patsubst %,$(SIMULATE_OBJ)/%.o,main options pagegrain report simpool simulate)
SIMULATE_UNITS	:= options pagegrain simpool
SIMULATE_TESTS	:= $(SIMULATE_UNITS:%=$(O)/test/simulate-%)
# The tests have traces written by kvctx-replay
SIMULATE_TESTED	:= $(SIMULATE_TESTS) $(O)/bin/kvctx-simulate $(O)/bin/kvctx-replay

PROGRAMS	+= $(O)/bin/kvctx-simulate
TESTPROGS	+= $(SIMULATE_TESTS)
ASAN_PROGS	+= $(SIMULATE_TESTED)
CHECKS		+= check-simulate
INSTALLS	+= install-simulate

$(SIMULATE_OBJ)/%.o: OBJ_CFLAGS = -Itools/workload -Itools/workload/tests -Itools/simulate $(KVC_CORE_CFLAGS) $(call pkg,json-c)

$(O)/bin/kvctx-simulate: $(SIMULATE_OBJS) $(O)/lib/libworkload.a $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,json-c) $(KVC_CORE_LIBS)

# The test sees what is asked of the engine
$(O)/test/simulate-simpool: SIMULATE_WRAP := kvc_match kvc_load_begin kvc_store_begin

$(SIMULATE_TESTS): $(O)/test/simulate-%: $(SIMULATE_OBJ)/tests/test_%.o $(filter-out %/main.o,$(SIMULATE_OBJS)) \
		   $(O)/lib/libworkload.a $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(SIMULATE_WRAP:%=-Wl,--wrap=%) -o $@ $^ $(call pkglibs,cmocka json-c) \
		$(KVC_CORE_LIBS)

.PHONY: check-simulate simulate-tests install-simulate
simulate-tests: $(SIMULATE_TESTED)
check-simulate:
	@$(MAKE) --no-print-directory $(ASAN) simulate-tests
	@selftests/floors tools/simulate/main.c $(SIMULATE_OBJS:$(O)/%=$(O)/asan/%)
	@TRACE='$(TRACE)' REPLAY=$(O)/asan/bin/kvctx-replay tools/workload/tests/run --program tools/simulate/tests/test_program.py \
		$(O)/asan/bin/kvctx-simulate simulate $(O)/asan/test $(SIMULATE_UNITS)

SIMULATE_MAN	:= $(PREFIX)/share/man/man1
install-simulate: $(O)/bin/kvctx-simulate
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/kvctx-simulate
	install -m 755 tools/simulate/kvctx-simulate-plot $(DESTDIR)$(PREFIX)/bin/
	install -D -m 644 tools/simulate/kvctx-simulate.1 $(DESTDIR)$(SIMULATE_MAN)/kvctx-simulate.1
	echo .so man1/kvctx-simulate.1 > $(DESTDIR)$(SIMULATE_MAN)/kvctx-simulate-plot.1
