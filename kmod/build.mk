# SPDX-License-Identifier: GPL-2.0
#
# kvctx.ko.
#   make module           against the headers in KDIR (this machine's own); leaves $(O)/kmod/kvctx.ko
#   make modules_install  installs it there; INSTALL_MOD_PATH or DESTDIR is honoured
#   make dkms-source      puts the sources where dkms finds them: then `dkms install kvctx/$(VERSION)`
#   make guest-modules    for every kernel of the guest root: build/guest/kmod/VERSION/kvctx.ko
#   make check-kmod       W=1, sparse and checkpatch

KDIR		?= /lib/modules/$(shell uname -r)/build
NATIVE_MODULE	:= $(wildcard $(KDIR)/Makefile)
KMOD_SRC	= $(abspath $(O))/kmod/src
MODULES_TO	= $(or $(INSTALL_MOD_PATH),$(DESTDIR))
DKMS_DIR	= $(DESTDIR)/usr/src/kvctx-$(VERSION)
# Without our own make's flags: O means another thing to kbuild
KBUILD_MAKE	= env -u MAKEFLAGS make --no-print-directory -C $(KDIR)
KBUILD_OURS	= $(KBUILD_MAKE) -j$(shell nproc) M=$(KMOD_SRC) V=$(V)

.PHONY: module modules_install dkms-source guest-modules check-kmod kmod-headers kmod-staged

kmod-headers:
	@test -e $(KDIR)/Makefile || { \
		echo "No kernel headers in $(KDIR)." >&2; \
		echo "Install them (Debian: apt install linux-headers-$$(uname -r)) or give KDIR=DIRECTORY." >&2; \
		exit 1; }

kmod-staged: kmod-headers
	@kmod/scripts/stage $(KMOD_SRC)

module: kmod-staged
	$(KBUILD_OURS) modules
	@cp -u $(KMOD_SRC)/kmod/kvctx.ko $(O)/kmod/kvctx.ko

# kbuild skips depmod where the headers come without a System.map
modules_install: module
	$(KBUILD_OURS) INSTALL_MOD_PATH=$(MODULES_TO) modules_install
	@$(if $(MODULES_TO),:,depmod "$$($(KBUILD_MAKE) -s kernelrelease)")

dkms-source:
	@kmod/scripts/stage $(DKMS_DIR)
	@sed 's/@VERSION@/$(VERSION)/' kmod/dkms.conf > $(DKMS_DIR)/dkms.conf
	@echo "Sources in $(DKMS_DIR). Next: dkms install kvctx/$(VERSION)"

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
