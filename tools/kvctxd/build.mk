# SPDX-License-Identifier: GPL-2.0
#
# kvctxd, and its tests.

KVCTXD_SRC	:= access sock memory session request pools conn report attach control main
KVCTXD_OBJS	:= $(KVCTXD_SRC:%=$(O)/obj/tools/kvctxd/%.o)
KVCTXD_PKGS	:= libnl-genl-3.0 libnl-3.0 liburing
KVCTXD		:= $(O)/bin/kvctxd

PROGRAMS	+= $(KVCTXD)

$(O)/obj/tools/kvctxd/%.o: OBJ_CFLAGS = -pthread -Ilibkvctx -Ilibkvctx/engine -Ilibkvctx/engine/os -Ikmod/core -Ikmod \
					$(call pkg,$(KVCTXD_PKGS))

$(KVCTXD): $(KVCTXD_OBJS) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,$(KVCTXD_PKGS)) $(LIBKVCTX_LIBS)
