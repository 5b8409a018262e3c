# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The engine in the process: $(KVE_OBJS), the core with it. For the library, and for tests of its own.

KVE_SRC		:= log fork huge os/os device attend member super worker recover grow rejoin attach pool resize format file \
		   create cipher transfer ring_uring ring_threads ring mem cq op wait io reap store load events slots submit match \
		   session server
KVE_OBJS	:= $(KVE_SRC:%=$(O)/obj/libkvctx/engine/%.o)
KVE_CORE	:= $(KVC_CORE_FILES:%=$(O)/obj/libkvctx/core/%.o) $(O)/obj/libkvctx/core/os-native/crc.o \
		   $(KVCTX_SESSION:%=$(O)/obj/libkvctx/core/session/%.o)
KVE_CORE_CFLAGS	:= -fPIC -pthread -fvisibility=hidden -Ilibkvctx/engine/os -Ikmod/core -Ikmod
KVE_CFLAGS	:= -Ilibkvctx -Ilibkvctx/engine $(KVE_CORE_CFLAGS)
KVE_LIBS	:= -luring -lisal -lcrypto -lpthread

$(O)/obj/libkvctx/engine/%.o: OBJ_CFLAGS := $(KVE_CFLAGS)
$(O)/obj/libkvctx/core/%.o: OBJ_CFLAGS := $(KVE_CORE_CFLAGS)
$(O)/obj/libkvctx/core/session/%.o: kmod/session/%.c Makefile
	@mkdir -p $(@D)
	$(Q_CC)$(CC) $(KVCTX_CFLAGS) $(OBJ_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(O)/obj/libkvctx/core/%.o: kmod/core/%.c Makefile
	@mkdir -p $(@D)
	$(Q_CC)$(CC) $(KVCTX_CFLAGS) $(OBJ_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The engine's own tests: pools without sessions, and what the tests of the contract cannot see of sessions
KVE_TEST	:= $(O)/test/engine
KVE_TESTS	:= pool own create grow rejoin broken session pace stuck encrypted
KVE_TESTPROGS	:= $(KVE_TESTS:%=$(KVE_TEST)/test_%)
KVE_WRAPPED	:= preadv64v2 pwritev64v2 fdatasync io_uring_peek_batch_cqe \
		   io_uring_submit io_uring_wait_cqes kve_touch

$(KVE_TEST)/test_create: KVE_WRAPPED += open64 fallocate64 pwrite64 fsync linkat
$(KVE_TEST)/test_session: KVE_WRAPPED += kvc_store_begin
$(KVE_TEST)/test_encrypted: KVE_WRAPPED += kve_cipher_run
$(KVE_TEST)/test_stuck: KVE_WRAPPED += pthread_cond_timedwait
$(KVE_TEST)/test_grow: KVE_WRAPPED += symlink unlink linkat kve_thread_start
$(KVE_TESTPROGS): $(KVE_TEST)/%: $(O)/obj/libkvctx/engine/tests/%.o $(O)/obj/libkvctx/engine/tests/rig.o $(KVE_OBJS) $(KVE_CORE)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) $(KVE_WRAPPED:%=-Wl,--wrap=%) -o $@ $^ $(KVE_LIBS) $(call pkglibs,cmocka)

TESTPROGS	+= $(KVE_TESTPROGS)
