# SPDX-License-Identifier: GPL-2.0
#
# libkvctx, shared and static, its pages, and its tests.

LIBKVCTX_SONAME	:= libkvctx.so.0
LIBKVCTX_SO	:= $(O)/lib/libkvctx.so
LIBKVCTX_A	:= $(O)/lib/libkvctx.a
LIBKVCTX_SRC	:= $(wildcard libkvctx/*.c)
LIBKVCTX_OBJ	:= $(LIBKVCTX_SRC:%.c=$(O)/obj/%.o)

LIBRARIES	+= $(LIBKVCTX_SO) $(LIBKVCTX_A)
INSTALLS	+= install-lib
CHECKS		+= check-lib

$(O)/obj/libkvctx/%.o: OBJ_CFLAGS := -fPIC -Ilibkvctx

$(LIBKVCTX_SO): $(LIBKVCTX_OBJ) libkvctx/libkvctx.map
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -shared -Wl,-soname,$(LIBKVCTX_SONAME) -Wl,--version-script=libkvctx/libkvctx.map \
		$(KVCTX_LDFLAGS) $(LDFLAGS) -o $@.$(VERSION) $(LIBKVCTX_OBJ) -lpthread
	@ln -sf $(@F).$(VERSION) $(@D)/$(LIBKVCTX_SONAME)
	@ln -sf $(LIBKVCTX_SONAME) $@

$(LIBKVCTX_A): $(LIBKVCTX_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q_LD)$(AR) rcs $@ $^

# Tests: the library without its system calls, in front of a kernel in memory
LIB_TESTS	:= test_sync test_ring
LIB_TEST_PROGS	:= $(LIB_TESTS:%=$(O)/test/lib/%)
TESTPROGS	+= $(LIB_TEST_PROGS)

$(LIB_TEST_PROGS): $(O)/test/lib/%: $(O)/obj/libkvctx/tests/%.o $(O)/obj/libkvctx/tests/fake_kernel.o \
		$(filter-out %/sys.o,$(LIBKVCTX_OBJ))
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,cmocka) -lpthread

EXAMPLE		:= $(O)/test/lib/example
TESTPROGS	+= $(EXAMPLE)
$(O)/obj/Documentation/%.o: OBJ_CFLAGS := -Ilibkvctx
$(EXAMPLE): $(O)/obj/Documentation/example.o $(LIBKVCTX_SO)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $< -L$(O)/lib -lkvctx

$(O)/man/man3/kvctx_open.3: libkvctx/kvctx.h libkvctx/mkman.py
	@libkvctx/mkman.py $< $(VERSION) $(@D)

.PHONY: check-lib install-lib
check-lib:
	@$(MAKE) --no-print-directory -s O=$(O)/asan SAN=1 $(LIB_TESTS:%=$(O)/asan/test/lib/%) $(O)/asan/test/lib/example
	@$(MAKE) --no-print-directory -s $(LIBRARIES) $(O)/man/man3/kvctx_open.3
	@libkvctx/tests/run $(O)

install-lib: $(LIBRARIES) $(O)/man/man3/kvctx_open.3
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/linux \
		$(DESTDIR)$(PREFIX)/share/man/man3 $(DESTDIR)$(PREFIX)/share/man/man7
	cp -P $(O)/lib/libkvctx.so* $(LIBKVCTX_A) $(DESTDIR)$(PREFIX)/lib/
	install -m 644 libkvctx/kvctx.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 uapi/linux/kvctx.h uapi/linux/kvctx_genl.h $(DESTDIR)$(PREFIX)/include/linux/
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' libkvctx/libkvctx.pc.in \
		> $(DESTDIR)$(PREFIX)/lib/pkgconfig/libkvctx.pc
	install -m 644 $(O)/man/man3/*.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	install -m 644 libkvctx/kvctx.7 $(DESTDIR)$(PREFIX)/share/man/man7/
