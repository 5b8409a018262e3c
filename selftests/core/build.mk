# SPDX-License-Identifier: GPL-2.0
#
# Native tests of the engine. README says what is what; `make check-core` runs them, `make sim SECONDS=n` simulates and
# `make sim SEED=n` repeats what failed, `make fuzz`, `make mutate` and `make bench-core` do what their names say.

CORE_T		:= selftests/core
CORE_T_OBJ	= $(addprefix $(O)/obj/$(CORE_T)/,$(addsuffix .o,$(1)))
CORE_TESTS	:= sim core-unit core-fuzz core-threads core-bench core-image
CORE_UNITS	:= super history extent store replace keys keyspaces memory index delete stays reclaim prefix recover tenant members leave grow sweep \
		   flash events lease quota encrypted return

CORE_SIM_OBJS	:= $(call CORE_T_OBJ,dev disk page sim_main sim_model sim_ops sim_read sim_admin sim_work sim_recover sim_format sim_life sim_grow sim_window sim_image sim_super sim_budget sim_shape sim_settle sim_listen sim_lease sim_quota sim_hot sim_return)
CORE_UNIT_OBJS	:= $(call CORE_T_OBJ,dev disk page rig media golden unit $(CORE_UNITS:%=test_%))
CORE_FUZZ_PARTS	:= $(call CORE_T_OBJ,dev disk page rig media fuzz_mutate fuzz_media fuzz_image fuzz_pool)
CORE_FUZZ_OBJS	:= $(call CORE_T_OBJ,fuzz) $(CORE_FUZZ_PARTS)
CORE_THR_OBJS	:= $(call CORE_T_OBJ,page threads threads_index)
CORE_BENCH_OBJS	:= $(call CORE_T_OBJ,page bench)
CORE_IMAGE_OBJS	:= $(call CORE_T_OBJ,page image)

TESTPROGS	+= $(CORE_TESTS:%=$(O)/test/%)
ASAN_PROGS	+= $(CORE_TESTS:%=$(O)/test/%)
TSAN_PROGS	+= $(O)/test/core-threads
CHECKS		+= check-core

$(O)/obj/$(CORE_T)/%.o: OBJ_CFLAGS := $(KVC_CORE_CFLAGS)

$(O)/test/sim: $(CORE_SIM_OBJS)
$(O)/test/core-unit: $(CORE_UNIT_OBJS)
$(O)/test/core-unit: CORE_T_LIBS := -lcmocka
$(O)/test/core-fuzz: $(CORE_FUZZ_OBJS)
$(O)/test/core-threads: $(CORE_THR_OBJS)
$(O)/test/core-bench: $(CORE_BENCH_OBJS)
$(O)/test/core-image: $(CORE_IMAGE_OBJS)
$(CORE_TESTS:%=$(O)/test/%): $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(KVC_CORE_LIB) $(KVC_CORE_LIBS) $(CORE_T_LIBS)

SECONDS		?=
SEED		?=
FUZZ_TARGETS	:= kvctxd super header extent image

# The fuzz targets with libFuzzer, which needs clang. Only the engine is watched: how the input was made is no news. That
# of kvctxd is tools/kvctxd's.
FUZZ_PROGS	:= $(patsubst %,$(O)/test/fuzz-%,$(filter-out kvctxd,$(FUZZ_TARGETS)))
$(O)/obj/$(CORE_T)/fuzz_lib-%.o: $(CORE_T)/fuzz_lib.c
	@mkdir -p $(@D)
	$(Q_CC)$(CC) $(KVCTX_CFLAGS) $(OBJ_CFLAGS) -DFUZZ_TARGET=fuzz_$* $(CFLAGS) -MMD -MP -c -o $@ $<

$(FUZZ_PROGS): $(O)/test/fuzz-%: $(O)/obj/$(CORE_T)/fuzz_lib-%.o $(CORE_FUZZ_PARTS) $(KVC_CORE_LIB)
	@mkdir -p $(@D)
	$(Q_LD)$(CC) $(KVCTX_LDFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(KVC_CORE_LIB) $(KVC_CORE_LIBS)

.PHONY: check-core core-asan core-tsan sim fuzz fuzz-build fuzz-programs fuzz-keep mutate mutate-sim bench-core
fuzz-programs: $(FUZZ_PROGS)

fuzz-build:
	@selftests/deps fuzz
	@$(MAKE) --no-print-directory O=$(O)/fuzz SAN=1 CC=clang KVC_CORE_COVER=-fsanitize=fuzzer-no-link fuzz-programs

# The largest takes 6 GiB of memory and some minutes; BENCH_PAGES=65536,16777216 leaves it out.
BENCH_PAGES	?= 65536,16777216,67108864

core-asan:
	@$(MAKE) --no-print-directory $(ASAN) $(CORE_TESTS:%=$(O)/asan/test/%)

core-tsan:
	@$(MAKE) --no-print-directory $(TSAN) $(O)/tsan/test/core-threads

check-core: core-asan core-tsan $(KVC_CORE_LIB) $(O)/test/sim
	@$(CORE_T)/run $(O)/asan $(O)/tsan $(O) $(KVC_CORE_FILES:%=$(O)/obj/kmod/core/%.o)

# SEED alone repeats one history; with SECONDS it is the first of many.
sim: $(O)/test/sim
	@$(O)/test/sim $(if $(or $(SECONDS),$(if $(SEED),,60)),--seconds $(or $(SECONDS),60) --seed-base \
		$(or $(SEED),random),--seed $(SEED)) $(if $(VERBOSE),--verbose)

fuzz: fuzz-build
	@$(CORE_T)/fuzz run $(O)/fuzz $(FUZZ_TARGETS)

fuzz-keep: fuzz-build
	@$(CORE_T)/fuzz keep $(O)/fuzz $(FUZZ_TARGETS)

mutate:
	@$(CORE_T)/mutate.sh

mutate-sim:
	@$(CORE_T)/mutate.sh --sim

bench-core: $(O)/test/core-bench
	@GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(O)/test/core-bench --pages $(BENCH_PAGES) --json $(O)/bench-core.json
