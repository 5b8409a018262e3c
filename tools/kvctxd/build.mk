# SPDX-License-Identifier: GPL-2.0
#
# kvctxd, and its tests.

KVCTXD_SRC	:= access sock memory signal session request pools conn report answer events pages attach control_pool control_tenant control main
KVCTXD_OBJS	:= $(KVCTXD_SRC:%=$(O)/obj/tools/kvctxd/%.o)
KVCTXD_SHARED	:= $(O)/obj/tools/common/size.o $(O)/obj/tools/common/limits.o
KVCTXD_PKGS	:= libnl-genl-3.0 libnl-3.0 liburing
KVCTXD		:= $(O)/bin/kvctxd

PROGRAMS	+= $(KVCTXD)
INSTALLS	+= install-kvctxd

$(O)/obj/tools/kvctxd/%.o: OBJ_CFLAGS = -pthread -Ilibkvctx -Ilibkvctx/engine -Ilibkvctx/engine/os -Ikmod/core -Ikmod \
					$(call pkg,$(KVCTXD_PKGS))

$(KVCTXD): $(KVCTXD_OBJS) $(KVCTXD_SHARED) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,$(KVCTXD_PKGS)) $(LIBKVCTX_LIBS)

# Its tests, with sanitizers on both sides
KVCTXD_CLIENT	:= $(O)/test/kvctxd-client
TESTPROGS	+= $(KVCTXD_CLIENT)
KVCTXD_CHECKED	:= $(KVCTXD) $(KVCTXD_CLIENT) $(CTL) $(CONTRACT_PROGS)
# and programs that take its sockets
KVCTXD_USERS	:= $(O)/bin/kvctx-replay $(LIB_TEST)/example
# and the daemon with an engine that breaks
KVCTXD_BROKEN	:= $(O)/test/kvctxd-broken
KVCTXD_INPUTS	:= $(O)/test/kvctxd-inputs
TESTPROGS	+= $(KVCTXD_BROKEN) $(KVCTXD_INPUTS)
ASAN_PROGS	+= $(KVCTXD_CHECKED) $(KVCTXD_USERS) $(KVCTXD_BROKEN) $(KVCTXD_INPUTS) $(CRASH_FS)
TSAN_PROGS	+= $(KVCTXD_CHECKED)
CHECKS		+= check-kvctxd

$(O)/obj/tools/kvctxd/tests/%.o: OBJ_CFLAGS := -pthread -Ilibkvctx
$(KVCTXD_CLIENT): $(O)/obj/tools/kvctxd/tests/client.o $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

$(O)/obj/tools/kvctxd/tests/broken.o: OBJ_CFLAGS := $(KVE_CORE_CFLAGS)
$(KVCTXD_BROKEN): $(O)/obj/tools/kvctxd/tests/broken.o $(KVCTXD_OBJS) $(KVCTXD_SHARED) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -Wl,--wrap=kvc_index_insert -o $@ $^ \
		$(call pkglibs,$(KVCTXD_PKGS)) $(LIBKVCTX_LIBS)

.PHONY: check-kvctxd check-kvctxd-run kvctxd-programs
kvctxd-programs: $(KVCTXD_CHECKED)

check-kvctxd:
	@$(MAKE) --no-print-directory $(TSAN) kvctxd-programs
	@$(MAKE) --no-print-directory $(ASAN) TSAN_O=$(O)/tsan check-kvctxd-run

check-kvctxd-run: $(KVCTXD_CHECKED) $(KVCTXD_USERS) $(KVCTXD_BROKEN) $(KVCTXD_INPUTS) $(CRASH_FS)
	@selftests/floors tools/kvctxd/kvctxd.h $(KVCTXD_OBJS)
	@python3 tools/kvctxd/tests/run.py $(O) $(TSAN_O)

# A client of any kind, with libFuzzer; a part of `make fuzz`
KVCTXD_FUZZ	:= $(O)/test/fuzz-kvctxd
KVCTXD_FUZZED	:= $(addprefix $(O)/obj/tools/kvctxd/,tests/fuzz.o access.o sock.o memory.o signal.o session.o request.o)
$(O)/obj/tools/kvctxd/tests/fuzz.o: OBJ_CFLAGS = -pthread -Ilibkvctx -Ilibkvctx/engine -Ilibkvctx/engine/os -Ikmod/core -Ikmod
$(KVCTXD_FUZZ): CFLAGS += $(KVC_CORE_COVER)
$(KVCTXD_FUZZ): $(KVCTXD_FUZZED) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBKVCTX_LIBS)

fuzz-programs: $(KVCTXD_FUZZ)

# and what that found, in each check
$(KVCTXD_INPUTS): $(O)/obj/tools/kvctxd/tests/fuzz_main.o $(KVCTXD_FUZZED) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

.PHONY: install-kvctxd

install-kvctxd: $(KVCTXD)
	install -D -m 755 $(KVCTXD) $(DESTDIR)$(SBINDIR)/kvctxd
	install -D -m 644 tools/kvctxd/kvctxd.8 $(DESTDIR)$(PREFIX)/share/man/man8/kvctxd.8
	install -d $(DESTDIR)$(UNITDIR)
	for unit in kvctxd kvctxd-exporter; do \
		sed 's|@SBINDIR@|$(SBINDIR)|' tools/kvctxd/$$unit.service.in > $(DESTDIR)$(UNITDIR)/$$unit.service || exit; done
