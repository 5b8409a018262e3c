# SPDX-License-Identifier: GPL-2.0
#
# The tests of the contract, which run natively and in the guest, those of kvctx.ko, and the target that runs both there.

CONTRACT_TESTS	:= abi data match events replace cancel session edges slots blocked faults
KTESTS		:= $(CONTRACT_TESTS) limits pages outage parked tags restless prio scatter throughput p2p uring peers
KTEST_PROGS	:= $(KTESTS:%=$(O)/selftests/%)
KTEST_HARNESS	:= $(O)/obj/selftests/kvctx/harness.o $(O)/obj/selftests/kvctx/excused.o
CONTRACT_PROGS	:= $(CONTRACT_TESTS:%=$(O)/selftests/%) $(O)/selftests/library $(O)/selftests/pages $(O)/selftests/limits

TESTPROGS	+= $(CONTRACT_PROGS)
GUESTPROGS	+= $(KTEST_PROGS)

# The harness compares what it is given, of whatever sign
$(O)/obj/selftests/kvctx/%.o: OBJ_CFLAGS := -Ilibkvctx -Wno-sign-compare

$(O)/selftests/p2p $(O)/selftests/peers: $(O)/obj/selftests/kvctx/peer.o

$(O)/selftests/uring $(O)/selftests/tags $(O)/selftests/faults: KTEST_LIBS := -luring
$(O)/selftests/slots: $(O)/obj/selftests/kvctx/slow_here.o
$(O)/selftests/slots: KTEST_LIBS := -Wl,--wrap=preadv64v2,--wrap=pwritev64v2
$(KTEST_PROGS): $(O)/selftests/%: $(O)/obj/selftests/kvctx/%.o $(O)/obj/selftests/kvctx/ktest.o $(KTEST_HARNESS) \
				  $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS) $(KTEST_LIBS)

# The contract, served in the process
CONTRACT_MAKER	:= $(O)/selftests/new_pool
TESTPROGS	+= $(CONTRACT_MAKER) $(O)/selftests/keys
GUESTPROGS	+= $(O)/selftests/keys
ASAN_PROGS	+= $(CONTRACT_PROGS)
TSAN_PROGS	+= $(CONTRACT_PROGS)
CHECKS		+= check-contract

$(O)/selftests/keys: $(O)/obj/selftests/kvctx/keys.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^

$(O)/obj/selftests/kvctx/new_pool.o: OBJ_CFLAGS := $(KVE_CFLAGS)
$(CONTRACT_MAKER): $(O)/obj/selftests/kvctx/new_pool.o $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

.PHONY: check-contract contract-programs
contract-programs: $(CONTRACT_PROGS)

check-contract: $(CONTRACT_PROGS) $(CONTRACT_MAKER) $(O)/selftests/keys
	@$(MAKE) --no-print-directory -s $(ASAN) contract-programs
	@$(MAKE) --no-print-directory -s $(TSAN) contract-programs
	@selftests/kvctx/contract $(O)

# Commands with failures in them
GUESTPROGS	+= $(O)/selftests/fail_nth

$(O)/selftests/fail_nth: $(O)/obj/selftests/kvctx/fail_nth.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^

# Pulling the plug: the program in the guest, and the disk with a volatile cache that the guest's SSDs are
CRASH_PLUGIN	:= build/test/volatile.so
CRASH_OBJS	:= $(O)/obj/selftests/kvctx/crash.o $(O)/obj/selftests/kvctx/crash_account.o
GUESTPROGS	+= $(O)/selftests/crash

$(CRASH_OBJS): OBJ_CFLAGS := -Ilibkvctx
$(O)/selftests/crash: $(CRASH_OBJS) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

$(CRASH_PLUGIN): selftests/vm/volatile.c selftests/vm/volatile_cache.c selftests/vm/volatile_cache.h
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o $@ $(filter %.c,$^) $(call pkg,nbdkit)

# The same without a guest: the process is killed, above a file system that forgets
CRASH_FS	:= $(O)/test/volatile_fs
CRASH_NATIVE	:= $(O)/test/crash

$(CRASH_FS): $(O)/obj/selftests/vm/volatile_fs.o $(O)/obj/selftests/vm/volatile_cache.o
$(O)/obj/selftests/vm/volatile_fs.o: OBJ_CFLAGS = $(call pkg,fuse3)
$(CRASH_FS): CRASH_FS_LIBS = $(call pkglibs,fuse3)
$(CRASH_FS):
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(CRASH_FS_LIBS)

$(CRASH_NATIVE): $(CRASH_OBJS) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

# Tampered pools
GUESTPROGS	+= $(O)/selftests/hostile

$(O)/obj/selftests/kvctx/hostile.o: OBJ_CFLAGS = $(KVC_CORE_CFLAGS) -Ilibkvctx -Iselftests/core $(call pkg,libnl-genl-3.0)
$(O)/selftests/hostile: $(O)/obj/selftests/kvctx/hostile.o $(O)/obj/selftests/kvctx/ktest.o \
			$(O)/obj/selftests/core/media.o $(O)/obj/selftests/core/page.o $(LIBKVCTX_A) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS) $(KVC_CORE_LIBS) $(call pkglibs,libnl-genl-3.0)

# N, SEED and KERNEL are the user's
N		?=
CRASH_TEST	= selftests/kvctx/crash-test --kernel $(KERNEL) \
		  $(if $(filter command line environment,$(origin SEED)),--seed $(SEED))
HOSTILE		= hostile.sh $(or $(N),1000) $(if $(filter command line environment,$(origin SEED)),$(SEED))

.PHONY: crash-test crash-mutate hostile-test check-crash crash-process crash-process-mutate check-crash-process
CHECKS		+= check-crash-process

CRASH_PROCESS	= selftests/kvctx/crash-process --build $(O) \
		  $(if $(filter command line environment,$(origin SEED)),--seed $(SEED))

TESTPROGS	+= $(CRASH_FS) $(CRASH_NATIVE)

crash-process check-crash-process: $(CRASH_FS) $(CRASH_NATIVE) $(O)/bin/kvctxctl $(O)/bin/kvctxd

crash-process:
	@$(CRASH_PROCESS) --kills $(or $(N),500)

# The short one, of the tests
check-crash-process:
	@$(CRASH_PROCESS) --kills $(or $(N),20)

crash-process-mutate:
	@selftests/kvctx/crash-process-mutate

crash-test: deps guest $(CRASH_PLUGIN)
	@$(CRASH_TEST) --kills $(or $(N),200)

# The short one, of the tests; the guest's products are there
check-crash: $(CRASH_PLUGIN)
	@$(CRASH_TEST) --kills $(or $(N),3)

crash-mutate: deps guest $(CRASH_PLUGIN)
	@selftests/kvctx/crash-mutate

hostile-test: guest
	@selftests/vm/run --kernel $(KERNEL) --timeout 7200 -- /kvctx/selftests/kvctx/run-guest "$(HOSTILE)"

.PHONY: test-debug debug-kernel
debug-kernel: deps setup
	@selftests/vm/debug-kernel
	@kmod/scripts/guest $(GUEST_O)/kmod debug

test-debug: debug-kernel
	@$(MAKE) --no-print-directory guest
	@selftests/kvctx/run debug

# Data races: KASAN excludes what finds them
.PHONY: test-kcsan
test-kcsan: deps guest
	@selftests/vm/debug-kernel kcsan
	@kmod/scripts/guest $(GUEST_O)/kmod kcsan
	@selftests/kvctx/run kcsan $(BOOTS)

# The module on a kernel that others have built: SERIES=7.3 SUITE=experimental, or of Ubuntu's archive at MIRROR
.PHONY: check-kernel
check-kernel: deps guest
	@selftests/vm/other-kernel "$(SERIES)" "$(SUITE)" $(MIRROR)
	@kmod/scripts/guest $(GUEST_O)/kmod $(SERIES)
	@selftests/kvctx/run $(SERIES) $(BOOTS)

.PHONY: check-guest-6.12 check-guest-7.2
check-guest-6.12 check-guest-7.2: check-guest-%:
	@selftests/kvctx/run $*
