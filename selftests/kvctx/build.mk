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

.PHONY: check-guest-6.12 check-guest-7.2
check-guest-6.12 check-guest-7.2: check-guest-%:
	@selftests/kvctx/run $*
