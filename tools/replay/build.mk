# SPDX-License-Identifier: GPL-2.0
#
# kvctx-replay: the program, its manual page and its tests.

REPLAY_OBJ	:= $(O)/obj/tools/replay
REPLAY_UNITS	:= content hist trace generate
REPLAY_TESTS	:= $(REPLAY_UNITS:%=$(O)/test/replay-%)
TESTPROGS	+= $(REPLAY_TESTS)
CHECKS		+= check-replay

$(REPLAY_OBJ)/%.o: OBJ_CFLAGS := -Itools/replay $(call pkg,json-c)

# Everything that is tested without a device, for the unit tests to pick from
REPLAY_PARTS	:= $(patsubst %,$(REPLAY_OBJ)/%.o,content generate hist trace)

$(REPLAY_TESTS): $(O)/test/replay-%: $(REPLAY_OBJ)/tests/test_%.o $(REPLAY_PARTS)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,cmocka json-c)

.PHONY: check-replay replay-tests
replay-tests: $(REPLAY_TESTS)
check-replay:
	@$(MAKE) --no-print-directory O=$(O)/asan SAN=1 replay-tests
	@tools/replay/tests/run $(O)/asan/test $(REPLAY_UNITS)
