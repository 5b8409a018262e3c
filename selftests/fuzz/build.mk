# SPDX-License-Identifier: GPL-2.0
#
# The fuzzer of the module's ABI. It is built on the host, since the guest's root has no clang, which works as long as the
# libraries of the guest are newer. It cannot be static: the runtime of libFuzzer looks functions up.

ABI_FUZZ	:= build/guest/selftests/abi-fuzz
ABI_FUZZ_SRCS	:= $(wildcard selftests/fuzz/*.c)

.PHONY: fuzz-abi fuzz-abi-keep fuzz-abi-ready
$(ABI_FUZZ): $(ABI_FUZZ_SRCS) selftests/fuzz/fuzz.h $(wildcard uapi/linux/*.h) libkvctx/kvctx_uring.h
	@mkdir -p $(@D)
	$(Q_LD)clang $(KVCTX_CFLAGS) -Ilibkvctx -O1 -g -fsanitize=fuzzer $(call pkg,libnl-genl-3.0) -o $@ \
		$(ABI_FUZZ_SRCS) -l:liburing.a $(call pkglibs,libnl-genl-3.0)

fuzz-abi-ready: debug-kernel
	@selftests/deps fuzz
	@$(MAKE) --no-print-directory guest
	@$(MAKE) --no-print-directory $(ABI_FUZZ)

fuzz-abi: fuzz-abi-ready
	@selftests/fuzz/run $(FUZZ_SECONDS)

fuzz-abi-keep: fuzz-abi-ready
	@selftests/fuzz/run --keep
