# SPDX-License-Identifier: GPL-2.0
#
# The fuzzer of the module's ABI. It is built on the host, since the guest's root has no clang, and so has to be static.

ABI_FUZZ	:= build/guest/selftests/abi-fuzz
ABI_FUZZ_SRCS	:= $(wildcard selftests/fuzz/*.c)

.PHONY: fuzz-abi
$(ABI_FUZZ): $(ABI_FUZZ_SRCS) selftests/fuzz/fuzz.h $(wildcard uapi/linux/*.h)
	@mkdir -p $(@D)
	$(Q_LD)clang $(KVCTX_CFLAGS) -O1 -g -fsanitize=fuzzer -static -Wl,-w $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0) -o $@ \
		$(ABI_FUZZ_SRCS) -luring $(shell $(PKG_CONFIG) --static --libs libnl-genl-3.0)

fuzz-abi: debug-kernel
	@selftests/deps fuzz
	@$(MAKE) --no-print-directory guest
	@$(MAKE) --no-print-directory $(ABI_FUZZ)
	@selftests/fuzz/run $(FUZZ_SECONDS)
