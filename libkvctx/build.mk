# SPDX-License-Identifier: LGPL-2.1-or-later
#
# libkvctx, shared and static, its pages, its example, and its tests.

LIBKVCTX_SONAME	:= libkvctx.so.0
LIBKVCTX_SO	:= $(O)/lib/libkvctx.so
LIBKVCTX_A	:= $(O)/lib/libkvctx.a
LIBKVCTX_MAP	:= libkvctx/libkvctx.map
LIBKVCTX_PARTS	:= $(addprefix libkvctx/kvctx_,session.h queue.h stage.h)
LIBKVCTX_H	:= libkvctx/kvctx.h $(LIBKVCTX_PARTS) libkvctx/kvctx_uring.h
LIBKVCTX_SRC	:= handle mem ring wait queue sync batch slots stage paths crc copy keys text inline
LIBKVCTX_SERVERS := sys sys_kernel
LIBKVCTX_ABOVE	:= $(LIBKVCTX_SRC:%=$(O)/obj/libkvctx/%.o)
LIBKVCTX_OWN	:= $(LIBKVCTX_ABOVE) $(LIBKVCTX_SERVERS:%=$(O)/obj/libkvctx/%.o)
LIBKVCTX_MAN3	:= $(O)/share/man/man3
LIBDIR		?= $(PREFIX)/lib

LIBRARIES	+= $(LIBKVCTX_SO) $(LIBKVCTX_A)
CHECKS		+= check-lib
INSTALLS	+= install-lib

$(O)/obj/libkvctx/%.o: OBJ_CFLAGS := -fPIC -pthread -Ilibkvctx

include libkvctx/engine/build.mk
KVS_OBJS	:= $(addprefix $(O)/obj/libkvctx/socket/,wire.o mem.o ring.o wait.o submit.o server.o)
$(KVS_OBJS): OBJ_CFLAGS := $(KVE_CFLAGS)
LIBKVCTX_OBJ	:= $(LIBKVCTX_OWN) $(KVS_OBJS) $(KVE_OBJS) $(KVE_CORE)
LIBKVCTX_KEYS	:= -lcrypto
LIBKVCTX_LIBS	:= $(KVE_LIBS) $(LIBKVCTX_KEYS)	# what who links the archive needs beside it
include libkvctx/python/build.mk

$(LIBKVCTX_SO): $(LIBKVCTX_OBJ) $(LIBKVCTX_MAP)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -shared -pthread -Wl,-soname,$(LIBKVCTX_SONAME) -Wl,--version-script=$(LIBKVCTX_MAP) \
		$(KVCTX_LDFLAGS) $(LDFLAGS) -o $@.$(VERSION) $(LIBKVCTX_OBJ) $(LIBKVCTX_LIBS)
	@ln -sf $(@F).$(VERSION) $(@D)/$(LIBKVCTX_SONAME)
	@ln -sf $(LIBKVCTX_SONAME) $@

$(LIBKVCTX_A): $(LIBKVCTX_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q_LD)$(AR) rcs $@ $^

# A page for each function, and each structure of theirs, from the headers; the first of them stands for all
$(LIBKVCTX_MAN3)/kvctx_open.3: libkvctx/man/mkman.py $(LIBKVCTX_H) uapi/linux/kvctx.h
	@libkvctx/man/mkman.py $(VERSION) $(@D) $(filter %.h,$^)

# The example, with the library, and over the kernel in memory that the tests use
LIB_TEST	:= $(O)/test/lib
LIB_EXAMPLE	:= $(O)/obj/Documentation/examples/prefix.o
LIB_FAKE	:= $(O)/obj/libkvctx/tests/fake_kernel.o $(O)/obj/libkvctx/tests/fake_pages.o
LIB_FAKED	:= $(LIBKVCTX_ABOVE) $(O)/obj/libkvctx/core/os-native/crc.o $(LIB_FAKE)
LIB_FAKED_LIBS	:= -lisal $(LIBKVCTX_KEYS)

$(O)/obj/Documentation/examples/%.o: OBJ_CFLAGS := -Ilibkvctx

$(LIB_TEST)/example: $(LIB_EXAMPLE) $(LIBKVCTX_SO)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $< -L$(O)/lib -lkvctx

$(LIB_TEST)/example-fake: $(LIB_EXAMPLE) $(O)/obj/libkvctx/tests/fake_example.o $(LIB_FAKED)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIB_FAKED_LIBS)

# The example of a GPU's memory, over that kernel and a CUDA runtime in host memory; and as it is, where nvcc is
LIB_CUDA_FAKE	:= $(LIB_TEST)/cuda-fake

$(O)/obj/Documentation/examples/cuda.o: OBJ_CFLAGS := -Ilibkvctx -Ilibkvctx/tests/cuda
$(LIB_CUDA_FAKE): $(O)/obj/Documentation/examples/cuda.o $(O)/obj/libkvctx/tests/fake_example.o $(LIB_FAKED)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIB_FAKED_LIBS)

NVCC		?= nvcc
.PHONY: cuda check-gpu
ifneq ($(shell command -v $(NVCC) 2> /dev/null),)
cuda: $(LIBKVCTX_SO)
	@mkdir -p $(O)/cuda
	$(NVCC) -O3 -o $(O)/cuda/gpu-crc Documentation/gpu-crc.cu
	$(NVCC) -O2 -Iuapi -Ilibkvctx -o $(O)/cuda/cuda Documentation/examples/cuda.c -L$(O)/lib -lkvctx
else
cuda:
	@echo "cuda: skipped, there is no $(NVCC) on this machine"
endif

# GPU=speed: figures, too
check-gpu: programs python-lib
	@PYTHON='$(PYTHON)' NVCC='$(NVCC)' libkvctx/python/tests/gpu/run $(O) $(GPU)

# The tests: what is above the seam, over that kernel
LIB_TESTS	:= open sync ring threads batch stage away slots crc gpu_crc uring
LIB_TESTPROGS	:= $(LIB_TESTS:%=$(LIB_TEST)/test_%)

$(O)/obj/libkvctx/tests/test_gpu_crc.o: OBJ_CFLAGS := -Ilibkvctx -IDocumentation
$(LIB_TEST)/test_open: LIB_LDFLAGS := -Wl,--wrap=calloc,--wrap=malloc
$(LIB_TESTPROGS): $(LIB_TEST)/%: $(O)/obj/libkvctx/tests/%.o $(LIB_FAKED)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) $(LIB_LDFLAGS) -o $@ $^ $(LIB_FAKED_LIBS) $(call pkglibs,cmocka)

# Who serves a path: the whole library
LIB_WHOLE	:= $(addprefix $(LIB_TEST)/whole/test_,paths socket info)
$(LIB_WHOLE): $(LIB_TEST)/whole/%: $(O)/obj/libkvctx/tests/%.o $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS) $(call pkglibs,cmocka)

# As it is without sanitizers
LIB_PLAIN	:= $(LIB_TEST)/plain/test_copy
$(LIB_PLAIN): $(O)/obj/libkvctx/tests/test_copy.o $(O)/obj/libkvctx/copy.o
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(call pkglibs,cmocka)

# What a batch costs, for `make bench-native`
LIB_COST	:= $(LIB_TEST)/cost
$(LIB_COST): $(O)/obj/libkvctx/tests/cost.o $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBKVCTX_LIBS)

TESTPROGS	+= $(LIB_TESTPROGS) $(LIB_PLAIN) $(LIB_WHOLE) $(LIB_COST) $(LIB_TEST)/example $(LIB_TEST)/example-fake

# The library's own test of whoever serves, one of those of the contract; and the example, for the guest
LIB_LIVE	:= $(O)/selftests/library $(O)/selftests/example
GUESTPROGS	+= $(LIB_LIVE)

$(O)/obj/libkvctx/tests/live.o: OBJ_CFLAGS := -pthread -Ilibkvctx -Iselftests/kvctx -Wno-sign-compare
$(O)/selftests/library: $(O)/obj/libkvctx/tests/live.o $(O)/obj/selftests/kvctx/harness.o $(O)/obj/selftests/kvctx/excused.o
$(O)/selftests/library: LIB_LIBS := -luring
$(O)/selftests/example: $(LIB_EXAMPLE)
$(LIB_LIVE): $(LIBKVCTX_A)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBKVCTX_A) $(LIB_LIBS) $(LIBKVCTX_LIBS)

.PHONY: check-lib lib-asan lib-tsan install-lib
LIB_ASAN	:= $(LIB_TESTPROGS) $(KVE_TESTPROGS) $(LIB_WHOLE) $(LIB_TEST)/example $(LIB_TEST)/example-fake $(LIB_CUDA_FAKE)
LIB_TSAN	:= $(LIB_TESTPROGS) $(KVE_TESTPROGS)
ASAN_PROGS	+= $(LIB_ASAN)
TSAN_PROGS	+= $(LIB_TSAN)
lib-asan: $(LIB_ASAN)
lib-tsan: $(LIB_TSAN)

TESTPROGS	+= $(LIBKVCTX_MAN3)/kvctx_open.3

check-lib: $(LIBKVCTX_SO) $(LIBKVCTX_A) $(LIB_PLAIN) $(LIBKVCTX_MAN3)/kvctx_open.3
	@$(MAKE) --no-print-directory -s $(ASAN) lib-asan
	@$(MAKE) --no-print-directory -s $(TSAN) lib-tsan
	@CC='$(CC)' MAKE='$(MAKE)' libkvctx/tests/run $(O)

install-lib: $(LIBKVCTX_SO) $(LIBKVCTX_A) $(LIBKVCTX_MAN3)/kvctx_open.3
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/linux \
		$(DESTDIR)$(PREFIX)/share/man/man3 $(DESTDIR)$(PREFIX)/share/man/man7 \
		$(DESTDIR)$(PREFIX)/share/doc/kvctx/examples
	install -m 644 $(LIBKVCTX_SO).$(VERSION) $(LIBKVCTX_A) $(DESTDIR)$(LIBDIR)/
	ln -sf libkvctx.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(LIBKVCTX_SONAME)
	ln -sf $(LIBKVCTX_SONAME) $(DESTDIR)$(LIBDIR)/libkvctx.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
		libkvctx/libkvctx.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/libkvctx.pc
	install -m 644 $(LIBKVCTX_H) $(DESTDIR)$(PREFIX)/include/
	install -m 644 uapi/linux/kvctx.h uapi/linux/kvctx_genl.h $(DESTDIR)$(PREFIX)/include/linux/
	install -m 644 $(LIBKVCTX_MAN3)/*.3* $(DESTDIR)$(PREFIX)/share/man/man3/
	install -m 644 libkvctx/man/kvctx.7 $(DESTDIR)$(PREFIX)/share/man/man7/
	install -m 644 Documentation/examples/*.c Documentation/gpu-crc.cu Documentation/gpu-crc.h \
		$(DESTDIR)$(PREFIX)/share/doc/kvctx/examples/
