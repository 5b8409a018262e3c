# SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
#
# The core as a native library: $(O)/lib/libkvccore.a, for tests and tools. Users link with $(KVC_CORE_LIBS).

include kmod/core/files.mk
include kmod/session/files.mk

KVC_CORE_LIB	:= $(O)/lib/libkvccore.a
KVC_CORE_CFLAGS	:= -Ikmod/core/os-native -Ikmod/core
KVC_CORE_LIBS	:= -lisal -lpthread
KVC_CORE_OBJS	:= $(KVC_CORE_FILES:%=$(O)/obj/kmod/core/%.o) $(addprefix $(O)/obj/kmod/core/os-native/,os.o crc.o)

$(O)/obj/kmod/core/%.o: OBJ_CFLAGS := $(KVC_CORE_CFLAGS) $(KVC_CORE_COVER)

$(KVC_CORE_LIB): $(KVC_CORE_OBJS)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q_LD)$(AR) rcs $@ $^
