# SPDX-License-Identifier: GPL-2.0
#
# kvctx.ko.
#   make module           against the headers in KDIR (this machine's own); leaves $(O)/kmod/kvctx.ko
#   make modules_install  installs it there; INSTALL_MOD_PATH or DESTDIR is honoured
#   make guest-modules    for every kernel of the guest root: build/guest/kmod/VERSION/kvctx.ko
#   make check-kmod       W=1, sparse and checkpatch

KDIR		?= /lib/modules/$(shell uname -r)/build
NATIVE_MODULE	:= $(wildcard $(KDIR)/Makefile)
KMOD_SRC	= $(abspath $(O))/kmod/src
# Without our own make's flags: O means another thing to kbuild
KBUILD_MAKE	= env -u MAKEFLAGS make -j$(shell nproc) --no-print-directory -C $(KDIR) M=$(KMOD_SRC) V=$(V)

.PHONY: module modules_install guest-modules check-kmod kmod-headers kmod-staged

kmod-headers:
	@test -e $(KDIR)/Makefile || { \
		echo "No kernel headers in $(KDIR)." >&2; \
		echo "Install them (Debian: apt install linux-headers-$$(uname -r)) or give KDIR=DIRECTORY." >&2; \
		exit 1; }

kmod-staged: kmod-headers
	@kmod/scripts/stage $(KMOD_SRC)

module: kmod-staged
	$(KBUILD_MAKE) modules
	@cp -u $(KMOD_SRC)/kmod/kvctx.ko $(O)/kmod/kvctx.ko

modules_install: module
	$(KBUILD_MAKE) INSTALL_MOD_PATH=$(or $(INSTALL_MOD_PATH),$(DESTDIR)) modules_install

guest-modules:
	@kmod/scripts/guest $(GUEST_O)/kmod

check-kmod:
	@kmod/scripts/check $(GUEST_O)/kmod-check

# Programs of the tests of the control side
GUESTPROGS	+= $(O)/selftests/ctl_super $(O)/selftests/ctl_genl

$(O)/obj/selftests/kvctx/ctl_super.o: OBJ_CFLAGS = $(KVC_CORE_CFLAGS)
$(O)/selftests/ctl_super: $(O)/obj/selftests/kvctx/ctl_super.o $(O)/lib/libkvccore.a
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(KVC_CORE_LIBS)

$(O)/obj/selftests/kvctx/ctl_genl.o: OBJ_CFLAGS = $(call pkg,libnl-genl-3.0)
$(O)/selftests/ctl_genl: $(O)/obj/selftests/kvctx/ctl_genl.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,libnl-genl-3.0)
