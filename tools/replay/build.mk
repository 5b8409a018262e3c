# SPDX-License-Identifier: GPL-2.0
#
# kvctx-replay: the program, its manual page and its tests.

REPLAY_OBJ	:= $(O)/obj/tools/replay
REPLAY_OBJS	:= $(patsubst %,$(REPLAY_OBJ)/%.o,hist main options player report session stats)
REPLAY_UNITS	:= hist options
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

$(O)/bin/kvctx-replay: $(REPLAY_OBJS) $(O)/lib/libworkload.a $(O)/lib/libkvctx.so
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(RPATH) -o $@ $(filter-out %.so,$^) -L$(O)/lib -lkvctx $(call pkglibs,json-c)

$(REPLAY_FAKE): $(REPLAY_OBJS) $(REPLAY_FAKES) $(O)/lib/libworkload.a
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,json-c)

$(REPLAY_TESTS): $(O)/test/replay-%: $(REPLAY_OBJ)/tests/test_%.o $(REPLAY_OBJ)/%.o $(O)/lib/libworkload.a
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,cmocka json-c)

.PHONY: check-replay replay-tests install-replay
replay-tests: $(REPLAY_TESTS) $(REPLAY_FAKE)
check-replay:
	@$(MAKE) --no-print-directory $(ASAN) replay-tests
	@selftests/floors tools/replay/main.c $(REPLAY_OBJS:$(O)/%=$(O)/asan/%)
	@TRACE='$(TRACE)' tools/workload/tests/run --program tools/replay/tests/test_program.py \
		$(REPLAY_FAKE:$(O)/%=$(O)/asan/%) replay $(O)/asan/test $(REPLAY_UNITS)

install-replay: $(O)/bin/kvctx-replay
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/kvctx-replay
	install -D -m 644 tools/replay/kvctx-replay.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvctx-replay.1
