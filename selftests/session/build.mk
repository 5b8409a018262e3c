# SPDX-License-Identifier: GPL-2.0
#
# What kmod/session has, natively.
#   make check-session   part of `make check`: which operations and calls are valid, what a LOAD reads; slots, leases and
#                        MATCH, the tree that they stand in; waiting for space and for turns; messages of what is
#                        watched; run adds them up

SESSION_TESTS	:= $(O)/test/session $(O)/test/session-parts
SESSION_DIR	:= $(O)/obj/selftests/session
SESSION_OBJS	:= $(KVCTX_SESSION:%=$(O)/obj/kmod/session/%.o)

TESTPROGS	+= $(SESSION_TESTS)
ASAN_PROGS	+= $(SESSION_TESTS)
TSAN_PROGS	+= $(O)/test/session-parts
CHECKS		+= check-session

$(SESSION_DIR)/%.o $(SESSION_OBJS): OBJ_CFLAGS := $(KVC_CORE_CFLAGS) -Ikmod -Ikmod/session
$(O)/test/session: $(SESSION_DIR)/sqe.o $(SESSION_DIR)/call.o $(addprefix $(O)/obj/kmod/session/,sqe.o call.o)
$(O)/test/session-parts: $(SESSION_DIR)/parts.o $(SESSION_DIR)/tree.o $(SESSION_DIR)/slots.o $(SESSION_DIR)/lease.o $(SESSION_DIR)/wait.o $(SESSION_DIR)/shares.o $(SESSION_DIR)/pace.o $(SESSION_DIR)/tally.o $(SESSION_DIR)/watch.o \
	$(SESSION_OBJS) $(O)/obj/kmod/core/os-native/os.o
$(SESSION_TESTS):
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^

.PHONY: check-session
check-session:
	@$(MAKE) --no-print-directory -s $(ASAN) $(SESSION_TESTS:$(O)/%=$(O)/asan/%)
	@$(MAKE) --no-print-directory -s $(TSAN) $(O)/tsan/test/session-parts
	@selftests/session/run $(SESSION_TESTS:$(O)/%=$(O)/asan/%) $(O)/tsan/test/session-parts
