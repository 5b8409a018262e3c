# SPDX-License-Identifier: GPL-2.0
#
# The kselftests of kvctx.ko: programs that run in the guest, and the target that runs them there.

KSELFTEST_INC	?= /usr/local/include/kselftest
KTESTS		:= abi data session edges pages parked prio scatter slots throughput p2p uring peers
KTEST_PROGS	:= $(KTESTS:%=$(O)/selftests/%)

GUESTPROGS	+= $(KTEST_PROGS)

# The harness is not written for every warning that ours asks for
$(O)/obj/selftests/kvctx/%.o: OBJ_CFLAGS := -isystem $(KSELFTEST_INC) -Wno-missing-prototypes

$(O)/selftests/p2p $(O)/selftests/peers: $(O)/obj/selftests/kvctx/peer.o

$(O)/obj/selftests/kvctx/uring.o: OBJ_CFLAGS := -Ilibkvctx -isystem $(KSELFTEST_INC) -Wno-missing-prototypes
$(O)/selftests/uring: KTEST_LIBS := -luring
$(KTEST_PROGS): $(O)/selftests/%: $(O)/obj/selftests/kvctx/%.o $(O)/obj/selftests/kvctx/ktest.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ -lpthread $(KTEST_LIBS)

# Pulling the plug: the program in the guest, and the disk with a volatile cache that the guest's SSDs are
CRASH_PLUGIN	:= build/test/volatile.so
CRASH_OBJS	:= $(O)/obj/selftests/kvctx/crash.o $(O)/obj/selftests/kvctx/crash_account.o
GUESTPROGS	+= $(O)/selftests/crash

$(CRASH_OBJS): OBJ_CFLAGS := -Ilibkvctx
$(O)/selftests/crash: $(CRASH_OBJS) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ -lpthread

$(CRASH_PLUGIN): selftests/vm/volatile.c
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o $@ $< $(call pkg,nbdkit)

# N, SEED and KERNEL are the user's
N		?=
CRASH_TEST	= selftests/kvctx/crash-test --kernel $(KERNEL) \
		  $(if $(filter command line environment,$(origin SEED)),--seed $(SEED))

.PHONY: crash-test crash-mutate check-crash
crash-test: deps guest $(CRASH_PLUGIN)
	@$(CRASH_TEST) --kills $(or $(N),200)

# The short one, of the tests; the guest's products are there
check-crash: $(CRASH_PLUGIN)
	@$(CRASH_TEST) --kills $(or $(N),3)

crash-mutate: deps guest $(CRASH_PLUGIN)
	@selftests/kvctx/crash-mutate

.PHONY: check-guest-6.12 check-guest-7.2
check-guest-6.12 check-guest-7.2: check-guest-%:
	@selftests/kvctx/run $*
