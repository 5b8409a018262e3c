# SPDX-License-Identifier: GPL-2.0
#
# Native tests of the engine: `make check-core`; `make sim SEED=n`, `make fuzz`, `make mutate`, `make bench-core`.

CORE_T		:= selftests/core
CORE_HARNESS	:= $(addprefix $(O)/obj/$(CORE_T)/,dev.o page.o)
CORE_SIM_OBJS	:= $(addprefix $(O)/obj/$(CORE_T)/sim_,main.o model.o ops.o work.o life.o)

CORE_UNIT_OBJS	:= $(addprefix $(O)/obj/$(CORE_T)/,unit.o rig.o media.o golden.o test_super.o test_extent.o test_store.o \
		   test_keys.o test_delete.o test_reclaim.o test_recover.o test_sweep.o)

TESTPROGS	+= $(O)/test/sim $(O)/test/core-unit

$(O)/obj/$(CORE_T)/%.o: OBJ_CFLAGS := $(KVC_CORE_CFLAGS)

$(O)/test/sim: $(CORE_SIM_OBJS) $(CORE_HARNESS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(KVC_CORE_LIBS)

$(O)/test/core-unit: $(CORE_UNIT_OBJS) $(CORE_HARNESS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ $(KVC_CORE_LIBS) -lcmocka
