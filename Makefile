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
PKG_CONFIG	?= pkg-config
CFLAGS		?= -O2 -g
SAN		?=

KVCTX_CFLAGS	:= -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wstrict-prototypes -Wmissing-prototypes \
		   -fno-strict-aliasing -Iuapi -DKVCTX_VERSION='"$(VERSION)"'
ifneq ($(SAN),)
KVCTX_CFLAGS	+= -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
KVCTX_LDFLAGS	+= -fsanitize=address,undefined
endif

# What build.mk files add to:
PROGRAMS	:=	# paths of programs that users get
LIBRARIES	:=	# paths of libraries that users get
TESTPROGS	:=	# paths of test programs of rings 1 and 2
GUESTPROGS	:=	# paths of programs that only run in the guest
CHECKS		:=	# phony targets that `make check` runs; each ends with a line "N passed, N failed, N skipped"
INSTALLS	:=	# phony targets that `make install` runs

.DEFAULT_GOAL	:= all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS	+= --no-builtin-rules

# $(call pkg,NAME...): compile flags; $(call pkglibs,NAME...): link flags
pkg		= $(shell $(PKG_CONFIG) --cflags $(1))
pkglibs		= $(shell $(PKG_CONFIG) --libs $(1))

include $(sort $(wildcard kmod/core/build.mk kmod/build.mk libkvctx/build.mk tools/*/build.mk selftests/*/build.mk))

# One rule for every object; a target may add -D and -I through OBJ_CFLAGS of its own
$(O)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q_CC)$(CC) $(KVCTX_CFLAGS) $(OBJ_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

V ?= 0
ifeq ($(V),0)
Q_CC	= @echo "  CC      $@";
Q_LD	= @echo "  LD      $@";
endif

-include $(shell find $(O)/obj -name '*.d' 2>/dev/null)

.PHONY: all programs
all: programs
programs: $(LIBRARIES) $(PROGRAMS)
