# SPDX-License-Identifier: GPL-2.0
#
# kvctxctl, its man page and bash completion (both from its command table), and its tests.

CTL_SRC		:= main table help completion util out nl nl_socket objects peers cmd_pool cmd_attach cmd_scan cmd_destroy grow cmd_rejoin cmd_format \
		   cmd_tenant cmd_probe cmd_status cmd_doctor cmd_tenant_stat tenant_stats cmd_module cmd_fabrics cmd_stat cmd_top cmd_events watch metrics cmd_exporter media signature scan cmd_check check_report cmd_dump
CTL_OBJS	:= $(CTL_SRC:%=$(O)/obj/tools/kvctxctl/%.o) $(O)/obj/tools/common/size.o $(O)/obj/tools/common/limits.o \
		   $(O)/obj/libkvctx/engine/format.o $(O)/obj/libkvctx/engine/file.o
CTL_PKGS	:= libnl-genl-3.0 libnl-3.0 json-c blkid ncursesw
CTL_SYS_PKGS	:= libnvme libkmod	# which the tests replace
CTL		:= $(O)/bin/kvctxctl
CTL_MAN		:= $(O)/share/man/man8/kvctxctl.8
# of bash, zsh and fish
CTL_COMPLETION	:= $(O)/share/bash-completion/completions/kvctxctl $(O)/share/zsh/_kvctxctl \
		   $(O)/share/fish/vendor_completions.d/kvctxctl.fish

PROGRAMS	+= $(CTL)
CHECKS		+= check-ctl
INSTALLS	+= install-ctl

$(O)/obj/tools/common/limits.o: OBJ_CFLAGS = $(call pkg,libnl-3.0)
$(O)/obj/tools/kvctxctl/%.o: OBJ_CFLAGS = $(KVC_CORE_CFLAGS) $(call pkg,$(CTL_PKGS) $(CTL_SYS_PKGS))

$(CTL): $(CTL_OBJS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,$(CTL_PKGS) $(CTL_SYS_PKGS)) $(KVC_CORE_LIBS)

programs: $(CTL_MAN) $(CTL_COMPLETION)

$(CTL_COMPLETION): $(CTL)
	@mkdir -p $(@D)
	@$(CTL) --generate $(@F) > $@

$(CTL_MAN): tools/kvctxctl/kvctxctl.8.in $(CTL)
	@mkdir -p $(@D)
	@$(CTL) --generate man | sed -e 's/@VERSION@/$(VERSION)/' -e '/@COMMANDS@/{r /dev/stdin' -e 'd}' $< > $@

# kvctxctl-fake is the tool with libnvme, libkmod, the netlink socket and some system calls replaced
CTL_FAKE	:= $(O)/test/kvctxctl-fake
CTL_FAKE_OBJS	:= $(patsubst %,$(O)/obj/tools/kvctxctl/tests/%.o,fake_kernel fake_kmod fake_nvme fake_system)
# open64 and the like: as the C library calls those with offsets of 64 bits
CTL_WRAPPED	:= genl_connect nl_socket_add_membership setsockopt access opendir open64 fopen64 stat64 fstat64 ioctl pwrite64 fsync fallocate64
CTL_SUPERDUMP	:= $(O)/test/superdump
TESTPROGS	+= $(CTL_FAKE) $(CTL_SUPERDUMP)
ASAN_PROGS	+= $(CTL) $(CTL_MAN) $(CTL_COMPLETION) $(CTL_FAKE) $(CTL_SUPERDUMP)

$(O)/obj/tools/kvctxctl/tests/%.o: OBJ_CFLAGS = $(KVC_CORE_CFLAGS) $(call pkg,$(CTL_PKGS) $(CTL_SYS_PKGS)) \
						-Wno-unused-parameter

$(CTL_FAKE): $(CTL_OBJS) $(CTL_FAKE_OBJS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(CTL_WRAPPED:%=-Wl,--wrap=%) -o $@ $^ $(call pkglibs,$(CTL_PKGS)) \
		$(KVC_CORE_LIBS)

$(CTL_SUPERDUMP): $(O)/obj/tools/kvctxctl/tests/superdump.o $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(KVC_CORE_LIBS)

.PHONY: check-ctl check-ctl-run install-ctl
check-ctl:
	@$(MAKE) --no-print-directory $(ASAN) check-ctl-run

check-ctl-run: $(CTL) $(CTL_MAN) $(CTL_COMPLETION) $(CTL_FAKE) $(CTL_SUPERDUMP) $(O)/test/core-fuzz
	@python3 tools/kvctxctl/tests/run.py $(O)

install-ctl: programs
	install -D -m 755 $(CTL) $(DESTDIR)$(SBINDIR)/kvctxctl
	install -D -m 644 $(CTL_MAN) $(DESTDIR)$(PREFIX)/share/man/man8/kvctxctl.8
	install -D -m 644 $(O)/share/zsh/_kvctxctl $(DESTDIR)$(ZSHDIR)/_kvctxctl
	for f in $(filter-out %/_kvctxctl,$(CTL_COMPLETION:$(O)/%=%)); do \
		install -D -m 644 $(O)/$$f $(DESTDIR)$(PREFIX)/$$f || exit; done
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(UDEVDIR)
	for f in kvctx-attach@.service kvctx-rejoin@.service; do \
		sed 's|@SBINDIR@|$(SBINDIR)|' tools/kvctxctl/$$f.in > $(DESTDIR)$(UNITDIR)/$$f || exit; done
	sed 's|@SBINDIR@|$(SBINDIR)|' tools/kvctxctl/66-kvctx.rules.in > $(DESTDIR)$(UDEVDIR)/66-kvctx.rules
