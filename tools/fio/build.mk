# SPDX-License-Identifier: GPL-2.0
#
# The fio engine, its manual page and the check of that. An external engine must match the fio that loads it, so it is built against that fio's source tree:
#   make fio-engine FIO_SRC=DIRECTORY     leaves $(O)/lib/kvctx-fio.so
# The guest root holds such a tree beside its fio, and `make guest` builds it there.

FIO_SRC		?= $(wildcard /usr/local/src/fio)
FIO_ENGINE	:= $(O)/lib/kvctx-fio.so
FIO_OBJ		:= $(patsubst %.c,$(O)/obj/%.o,$(wildcard tools/fio/*.c))

# fio's headers are not written for every warning that ours asks for
$(O)/obj/tools/fio/%.o: OBJ_CFLAGS := -include $(FIO_SRC)/config-host.h -isystem $(FIO_SRC) -Ilibkvctx -fPIC \
	-Wno-missing-prototypes -Wno-unused-parameter -Wno-sign-compare

.PHONY: fio-engine fio-engine-source install-fio
fio-engine-source:
	@test -n "$(FIO_SRC)" -a -e "$(FIO_SRC)/config-host.h" || { \
		echo "No configured fio source tree. Give FIO_SRC=DIRECTORY, that of the fio which shall load the engine," >&2; \
		echo "after ./configure in it." >&2; \
		exit 1; }

fio-engine: fio-engine-source $(FIO_ENGINE)

$(FIO_ENGINE): $(FIO_OBJ) $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -shared -rdynamic $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $(FIO_OBJ) $(LIBKVCTX_A) -luring $(LIBKVCTX_LIBS)

ifneq ($(FIO_SRC),)
GUESTPROGS	+= $(FIO_ENGINE)
endif

# Where there is a fio to build for, the engine is installed with the rest
ifneq ($(FIO_SRC),)
INSTALLS	+= install-fio
endif

# The page and the table of options say the same
CHECKS		+= check-fio
.PHONY: check-fio
check-fio:
	@tools/fio/tests/run

install-fio: fio-engine
	install -D -m 644 $(FIO_ENGINE) $(DESTDIR)$(PREFIX)/lib/fio/kvctx-fio.so
	install -D -m 644 tools/fio/kvctx-fio.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvctx-fio.1
