# SPDX-License-Identifier: GPL-2.0
#
# kvctx: top of the build. `make help` tells the targets.
#
# Everything built goes to $(O): programs to $(O)/bin, libraries to $(O)/lib, objects to $(O)/obj. The same rules
# build natively (O=build), with sanitizers (O=build/asan SAN=1) and inside the guest root (O=build/guest, through
# selftests/vm/inroot). Each folder brings its rules in a file build.mk, which adds to the lists below.

O		?= build
VERSION		:= 0.1.0
PREFIX		?= /usr/local
DESTDIR		?=
SBINDIR		?= $(PREFIX)/sbin
UNITDIR		?= $(PREFIX)/lib/systemd/system
UDEVDIR		?= $(PREFIX)/lib/udev/rules.d
ZSHDIR		?= $(PREFIX)/share/zsh/site-functions
PKG_CONFIG	?= pkg-config
CFLAGS		?= -O2 -g
WERROR		?= -Werror
RPATH		?= -Wl,-rpath,'$$ORIGIN/../lib'
SAN		?=

KVCTX_CFLAGS	:= -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra $(WERROR) -Wstrict-prototypes \
		   -Wmissing-prototypes -fno-strict-aliasing -Iuapi -DKVCTX_VERSION='"$(VERSION)"'
ifneq ($(SAN),)
KVCTX_CFLAGS	+= -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
KVCTX_LDFLAGS	+= -fsanitize=address,undefined
endif

# What build.mk files add to:
PROGRAMS	:=	# paths of programs that users get
LIBRARIES	:=	# paths of libraries that users get
TESTPROGS	:=	# paths of test programs of rings 1 and 2
ASAN_PROGS	:=	# those that the checks run with AddressSanitizer, below $(O)/asan
TSAN_PROGS	:=	# and with ThreadSanitizer, below $(O)/tsan
GUESTPROGS	:=	# paths of programs that only run in the guest
CHECKS		:=	# phony targets that `make check` runs; each ends with a line "N passed, N failed, N skipped"
INSTALLS	:=	# phony targets that `make install` runs

# Arguments of make for these builds, which take half the time with less of optimization and of what debuggers want, and
# run as fast. ThreadSanitizer does not see fences; they only order atomics here.
ASAN		:= O=$(O)/asan SAN=1 CFLAGS="-O1 -g1"
TSAN		:= O=$(O)/tsan SAN= CFLAGS="-O1 -g1 -fsanitize=thread -Wno-tsan" LDFLAGS=-fsanitize=thread

.DEFAULT_GOAL	:= all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS	+= --no-builtin-rules

# $(call pkg,NAME...): compile flags; $(call pkglibs,NAME...): link flags
pkg		= $(shell $(PKG_CONFIG) --cflags $(1))
pkglibs		= $(shell $(PKG_CONFIG) --libs $(1))

include $(sort $(wildcard kmod/core/build.mk kmod/build.mk libkvctx/build.mk tools/*/build.mk selftests/*/build.mk))

# One rule for every object; a target may add -D and -I through OBJ_CFLAGS of its own
$(O)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(Q_CC)$(CC) $(KVCTX_CFLAGS) $(OBJ_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

V ?= 0
ifeq ($(V),0)
Q_CC	= @echo "  CC      $@";
Q_LD	= @echo "  LD      $@";
endif

-include $(shell find $(O)/obj -name '*.d' 2>/dev/null)

GUEST_O		:= build/guest
INROOT		:= selftests/vm/inroot
KERNELS		:= 6.12 7.2
KERNEL		?= 7.2
REQUESTS	?=
TRACE		?=

CHECKS		+= check-licences check-mutations
# The long ones begin first
CHECKS_LONG	:= check-lib check-contract check-core check-kvctxd check-python check-ctl check-replay
CHECKS_ALL	:= $(CHECKS_LONG) $(filter-out $(CHECKS_LONG),$(CHECKS))

.PHONY: all help programs testprogs asanprogs tsanprogs checkprogs guestprogs deps setup guest check check-licences check-mutations check-vm test try demo install uninstall dist deb rpm clean
all: programs $(if $(NATIVE_MODULE),module)
	@echo "Built in $(O)/. 'make help' tells the other targets."
	@$(if $(NATIVE_MODULE),:,echo "Without the module: no kernel headers in $(KDIR) (Debian: apt install linux-headers-$$(uname -r)).")

programs: $(LIBRARIES) $(PROGRAMS)
testprogs: programs $(TESTPROGS)
guestprogs: $(LIBRARIES) $(PROGRAMS) $(GUESTPROGS)

# All that the checks run, so that they can run side by side: then they find everything built
asanprogs: $(ASAN_PROGS)
tsanprogs: $(TSAN_PROGS)
checkprogs:
	@$(MAKE) --no-print-directory -s -j$$(nproc) testprogs
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(ASAN) asanprogs
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(TSAN) tsanprogs

help:
	@echo "kvctx $(VERSION): KV cache pages on NVMe and NVMe-oF namespaces"
	@echo
	@echo "Try it"
	@echo "  make try [TRACE=FILE.jsonl] [REQUESTS=N]"
	@echo "                     as any user, without a module: replays requests on a file, in under a minute"
	@echo "  make demo [TRACE=FILE.jsonl] [REQUESTS=N] [KERNEL=7.2|6.12]"
	@echo "                     a kernel with kvctx.ko replays requests against an NVMe/TCP namespace"
	@echo "Test it"
	@echo "  make test          everything: native tests, then the module on kernels $(KERNELS)"
	@echo "  make check         the native tests alone (engine, library, contract, tools), under sanitizers (JOBS=n at a time)"
	@echo "  make sim           the engine on devices that lose, tear and rot (SECONDS=60); SEED=n repeats one history"
	@echo "  make fuzz          long fuzzing of what reads media, and of what clients say to kvctxd, with libFuzzer (FUZZ_SECONDS=600)"
	@echo "  make fuzz-abi      long fuzzing of the module's ioctls, mmap, io_uring and netlink on the debug kernel, led by"
	@echo "                     what of the module is run (FUZZ_SECONDS=600)"
	@echo "  make audit         static analysis (clang, coccinelle), and device nodes under stress-ng (AUDIT='clang coccinelle stress')"
	@echo "  make mutate        break the engine on purpose and see the tests fail"
	@echo "  make crash-test    guests under load are killed, and what they flushed has to be there (N=200 [SEED=])"
	@echo "  make crash-process the engine in a process, or in kvctxd, is killed instead (N=500 [SEED=])"
	@echo "  make test-debug    the module on a kernel that is built with KASAN, lockdep and fault injection: about an hour"
	@echo "  make test-kcsan    the module on a kernel that is built with KCSAN, which finds data races [BOOTS='control tcp']"
	@echo "  make check-kernel SERIES=7.3 SUITE=experimental [MIRROR=URL] [BOOTS='control tcp']"
	@echo "                     the module on a kernel of another suite of Debian, or of Ubuntu's archive at MIRROR: 20 minutes"
	@echo "  make crash-mutate  break the module on purpose and see that fail"
	@echo "  make crash-process-mutate  break that engine on purpose and see that fail"
	@echo "  make check-arm64   the engine and the library on arm64, cross-built and emulated: about three minutes"
	@echo "  make check-arm64-guest  the module on arm64, with pages of 4 and of 16 KiB, in an emulated machine: a quarter of an hour"
	@echo "                     (with MIRROR=URL of Ubuntu's archive also with pages of 64 KiB)"
	@echo "  make hostile-test  tampered pools, attached one after another (N=1000 [SEED=])"
	@echo "  make cuda          the CUDA kernel and example, where nvcc is"
	@echo "  make check-gpu     these, and CUDA tensors of torch, on a machine with a GPU (PYTHON=one with torch; GPU=speed)"
	@echo "  make bench-core    figures of the engine: lookups, match, bytes per page"
	@echo "  make bench         beside raw io_uring, 20 minutes (BENCH=full: all of it; STRICT=1: a missed bar is an error)"
	@echo "  make bench-native  without the module or a virtual machine, beside raw io_uring, under 25 minutes"
	@echo "                     (NATIVE='--pairs N --cells REGEX --disk DIR'; STRICT=1)"
	@echo "  make check-connectors  the engines' own tests with kvctx: LMCache, vLLM, SGLang, NIXL (downloads 1.5 GiB once; under"
	@echo "                     20 minutes; NIXL_SRC=DIR, ENGINES=DIR)"
	@echo "  make bench-connectors  beside what these engines would use instead (CONNECTORS_BENCH='--pairs N --cases REGEX"
	@echo "                     --limit SECONDS --resume'; STRICT=1)"
	@echo "  make bench-insn    keep the instructions a page that the tests compare with"
	@echo "Install it"
	@echo "  make wheel         the Python package with the library inside, to build/wheel"
	@echo "  make               programs, libraries and, where kernel headers are installed, the module"
	@echo "  make install       to PREFIX=$(PREFIX); DESTDIR is honoured"
	@echo "  make uninstall     takes the same files away again"
	@echo "  make deb           Debian packages, to build/deb: kvctx-dkms kvctx-tools libkvctx0 libkvctx-dev python3-kvctx;"
	@echo "                     with FIO_SRC=DIR, where a fio was built, kvctx-fio for that fio"
	@echo "  make check-packages  those in a Debian of their own, in a virtual machine: installed, rebooted, a newer kernel, removed"
	@echo "  make rpm           RPM packages, to build/rpm"
	@echo "  make dist          the sources of this commit, to build/kvctx-$(VERSION).tar.xz"
	@echo "  make nixl-plugin NIXL_SRC=DIR [NIXL_NAME=OBJ]   the backend for NIXL, built against the source tree of its release"
	@echo "Parts"
	@echo "  make deps          install the Debian packages that the native build needs"
	@echo "  make setup         build the guest root that virtual machines run from (cached)"
	@echo "  make guest         module, programs and tests for the guest"
	@echo "  make clean         remove build/"
	@echo "Variables: O=build  SAN=1 (sanitizers)  V=1 (show commands)"

deps:
	@selftests/deps

setup:
	@selftests/vm/setup

# Module and programs for virtual machines, built with the guest's own compiler and libraries
guest: setup
	@$(MAKE) --no-print-directory guest-modules
	@$(INROOT) make -s -j2 O=$(GUEST_O) guestprogs

check: deps
	@selftests/all checkprogs --together $(CHECKS_ALL) --apart

check-licences:
	@selftests/licences

# That each would still break something, without building it
check-mutations:
	@selftests/mutations selftests/core/mutate.sh selftests/kvctx/crash-process-mutate selftests/kvctx/crash-mutate

test:
	@selftests/all deps --together guest checkprogs --apart --together check-vm check-kmod $(CHECKS_ALL) check-insn check-crash check-demo \
		--apart $(KERNELS:%=check-guest-%)

try:
	@tools/demo/try $(if $(TRACE),--trace "$(TRACE)") $(if $(REQUESTS),--requests "$(REQUESTS)")

demo:
	@tools/demo/run --kernel "$(KERNEL)" $(if $(TRACE),--trace "$(TRACE)") $(if $(REQUESTS),--requests "$(REQUESTS)")

# The loader finds libraries by a list, which root has written anew
LDCONFIG = $(if $(DESTDIR),:,[ "$$(id -u)" != 0 ] || ldconfig)

install: programs $(INSTALLS) $(if $(NATIVE_MODULE),modules_install)
	@$(LDCONFIG)

deb:
	@selftests/deps deb
	@env -u MAKEFLAGS $(if $(filter command environment,$(origin FIO_SRC)),DEB_BUILD_PROFILES="$$DEB_BUILD_PROFILES pkg.kvctx.fio" \
		FIO_SRC="$$(realpath "$(FIO_SRC)")") debian/packages $(VERSION) $(O)/deb

# The same list of files, from an installation elsewhere; folders go that only we have
uninstall:
	@rm -rf $(O)/uninstall
	@$(MAKE) --no-print-directory -s install DESTDIR=$(abspath $(O))/uninstall
	@cd $(O)/uninstall && find . ! -type d ! -path './lib/modules/*/modules.*' -print0 | (cd $(DESTDIR)/ && xargs -0 rm -fv)
	@cd $(O)/uninstall && find . -depth -type d -path '*kvctx*' -print0 | \
		(cd $(DESTDIR)/ && xargs -0r rmdir --ignore-fail-on-non-empty 2> /dev/null || :)
	@rm -rf $(O)/uninstall
	@$(if $(DESTDIR),:,$(if $(NATIVE_MODULE),depmod))
	@$(LDCONFIG)

DIST := $(O)/kvctx-$(VERSION).tar.xz
dist:
	@mkdir -p $(O)
	@grep -q 'MODULE_VERSION("$(VERSION)")' kmod/main.c || { echo "kmod/main.c has another version" >&2; exit 1; }
	@git archive --format=tar --prefix=kvctx-$(VERSION)/ HEAD | xz > $(DIST)
	@echo $(DIST)

rpm: dist
	@selftests/deps rpm
	@tools/rpm/packages $(VERSION) $(DIST) $(O)/rpm

clean:
	rm -rf build
