# SPDX-License-Identifier: GPL-2.0
#
# kvctx-replay: the program, its manual page and its tests.

REPLAY_OBJ	:= $(O)/obj/tools/replay
REPLAY_FILES	:= hist main options pagegrain player plot report session simpool simreport simulate stats
REPLAY_OBJS	:= $(REPLAY_FILES:%=$(REPLAY_OBJ)/%.o) $(O)/lib/libworkload.a
REPLAY_UNITS	:= hist options pagegrain simpool
REPLAY_TESTS	:= $(REPLAY_UNITS:%=$(O)/test/replay-%)
# The whole program over a tenant in memory instead of the library
REPLAY_FAKE	:= $(O)/test/fake/kvctx-replay
REPLAY_FAKES	:= $(REPLAY_OBJ)/tests/fake_kvctx.o $(REPLAY_OBJ)/tests/fake_store.o

PROGRAMS	+= $(O)/bin/kvctx-replay
TESTPROGS	+= $(REPLAY_TESTS) $(REPLAY_FAKE)
ASAN_PROGS	+= $(REPLAY_TESTS) $(REPLAY_FAKE)
CHECKS		+= check-replay
INSTALLS	+= install-replay

$(REPLAY_OBJ)/%.o: OBJ_CFLAGS = -Itools/workload -Itools/workload/tests -Itools/replay -Ilibkvctx $(call pkg,json-c)
$(REPLAY_OBJ)/simpool.o $(REPLAY_OBJ)/tests/test_simpool.o: OBJ_CFLAGS := -Itools/workload -Itools/workload/tests -Itools/replay $(KVC_CORE_CFLAGS)

$(O)/bin/kvctx-replay: $(REPLAY_OBJS) $(O)/lib/libkvctx.so $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(RPATH) -o $@ $(REPLAY_OBJS) \
		-L$(O)/lib -lkvctx $(KVC_CORE_LIB) $(call pkglibs,json-c) $(KVC_CORE_LIBS)

$(REPLAY_FAKE): $(REPLAY_FAKES) $(REPLAY_OBJS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,json-c) $(KVC_CORE_LIBS)

# The test sees what is asked of the engine
$(O)/test/replay-simpool: REPLAY_WRAP := kvc_match kvc_load_begin kvc_store_begin

$(REPLAY_TESTS): $(O)/test/replay-%: $(REPLAY_OBJ)/tests/test_%.o \
		 $(patsubst %,$(REPLAY_OBJ)/%.o,hist options pagegrain simpool stats) $(O)/lib/libworkload.a $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(REPLAY_WRAP:%=-Wl,--wrap=%) -o $@ $^ $(call pkglibs,cmocka json-c) \
		$(KVC_CORE_LIBS)

.PHONY: check-replay replay-tests install-replay
replay-tests: $(REPLAY_TESTS) $(REPLAY_FAKE)
check-replay:
	@$(MAKE) --no-print-directory $(ASAN) replay-tests
	@TRACE='$(TRACE)' tools/workload/tests/run --program tools/replay/tests/test_program.py $(O)/asan/test/fake/kvctx-replay \
		replay $(O)/asan/test $(REPLAY_UNITS)

install-replay: $(O)/bin/kvctx-replay
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/kvctx-replay
	install -D -m 644 tools/replay/kvctx-replay.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvctx-replay.1
