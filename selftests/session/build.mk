# SPDX-License-Identifier: GPL-2.0
#
# What kmod/session has, natively.
#   make check-session   part of `make check`: which operations and calls are valid, what a LOAD reads

SESSION_TEST	:= $(O)/test/session
SESSION_OBJS	:= $(patsubst %,$(O)/obj/%.o,selftests/session/sqe selftests/session/call kmod/session/sqe kmod/session/call)

TESTPROGS	+= $(SESSION_TEST)
CHECKS		+= check-session

$(SESSION_OBJS): OBJ_CFLAGS := -Ikmod/core/os-native -Ikmod/session
$(SESSION_TEST): $(SESSION_OBJS)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^

.PHONY: check-session
check-session:
	@$(MAKE) --no-print-directory -s O=$(O)/asan SAN=1 $(O)/asan/test/session
	@$(O)/asan/test/session
