# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The NIXL plugin. It shares C++ classes with the agent that loads it, so it is built against the source tree of that
# NIXL's release, of which only headers are used; none are shipped here:
#   make nixl-plugin NIXL_SRC=DIRECTORY [NIXL_NAME=OBJ]     leaves $(O)/nixl/libplugin_NAME.so

NIXL_SRC	?=
NIXL_NAME	?= KVCTX
NIXL_PLUGIN	:= $(O)/nixl/libplugin_$(NIXL_NAME).so
NIXL_OBJ	:= $(patsubst tools/nixl/%.cpp,$(O)/obj/tools/nixl/$(NIXL_NAME)/%.o,$(wildcard tools/nixl/*.cpp))
CXXFLAGS	?= -O2 -g

# The library's flags that C++ has, too. Our nixl_log.h stands before theirs; what theirs are warned of is not our matter
NIXL_CXXFLAGS	:= -std=c++20 -fPIC -pthread $(filter-out -std=% -Wstrict-prototypes -Wmissing-prototypes,$(KVCTX_CFLAGS)) \
		   -Ilibkvctx -Itools/nixl -Itools/nixl/shim
NIXL_THEIRS	:= -isystem $(NIXL_SRC)/src/api/cpp -isystem $(NIXL_SRC)/src/utils -isystem $(NIXL_SRC)/src/core/telemetry

# Another tree is another class layout: objects know which one they were built against
NIXL_STAMP	:= $(O)/obj/tools/nixl/$(NIXL_NAME)/source

.PHONY: nixl-plugin nixl-source nixl-again install-nixl
nixl-plugin: nixl-source $(NIXL_PLUGIN)

nixl-source:
	@test -n "$(NIXL_SRC)" -a -e "$(NIXL_SRC)/src/api/cpp/backend/backend_plugin.h" || { \
		echo "No NIXL source tree. Give NIXL_SRC=DIRECTORY, of the release of the NIXL that shall load the plugin:" >&2; \
		echo "no package of NIXL has the headers of a plugin, and none are part of kvctx." >&2; \
		exit 1; }

$(NIXL_STAMP): nixl-again
	@mkdir -p $(@D)
	@echo '$(NIXL_SRC)' | cmp -s - $@ || echo '$(NIXL_SRC)' > $@

$(O)/obj/tools/nixl/$(NIXL_NAME)/%.o: tools/nixl/%.cpp Makefile tools/nixl/build.mk $(NIXL_STAMP)
	@mkdir -p $(@D)
	$(Q_CC)$(CXX) $(NIXL_CXXFLAGS) $(NIXL_THEIRS) -DKVCTX_NIXL_NAME='"$(NIXL_NAME)"' $(CXXFLAGS) -MD -MP -c -o $@ $<

$(NIXL_PLUGIN): $(NIXL_OBJ)
$(NIXL_PLUGIN) $(O)/test/nixl/libplugin_KVCTX.so: $(LIBKVCTX_A) tools/nixl/plugin.map
	@mkdir -p $(@D)
	$(Q_LD)$(CXX) -shared -pthread -Wl,--version-script=tools/nixl/plugin.map $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ \
		$(filter %.o,$^) $(LIBKVCTX_A) $(LIBKVCTX_LIBS)

# Beside the plugins that NIXL has, or in a folder of its own that NIXL_PLUGIN_DIR names
NIXL_PLUGINS	?= $(LIBDIR)/kvctx-nixl
install-nixl: nixl-plugin
	install -D -m 644 $(NIXL_PLUGIN) $(DESTDIR)$(NIXL_PLUGINS)/$(notdir $(NIXL_PLUGIN))

# The same sources built with fakes of NIXL's classes, and what an agent takes for granted of them
NIXL_FAKED	:= $(O)/test/nixl/libplugin_KVCTX.so
NIXL_CONTRACT	:= $(O)/test/nixl/contract
NIXL_FAKED_OBJ	:= $(patsubst tools/nixl/%.cpp,$(O)/obj/tools/nixl/tests/faked/%.o,$(wildcard tools/nixl/*.cpp))
NIXL_CHECKED	:= $(NIXL_FAKED) $(NIXL_CONTRACT) $(CTL) $(KVCTXD) $(CRASH_FS)
ASAN_PROGS	+= $(NIXL_FAKED) $(NIXL_CONTRACT)
CHECKS		+= check-nixl

$(O)/obj/tools/nixl/tests/faked/%.o: tools/nixl/%.cpp Makefile tools/nixl/build.mk
	@mkdir -p $(@D)
	$(Q_CC)$(CXX) $(NIXL_CXXFLAGS) -Itools/nixl/tests/fakes -DKVCTX_NIXL_NAME='"KVCTX"' $(CFLAGS) -MD -MP -c -o $@ $<

$(O)/obj/tools/nixl/tests/contract.o: tools/nixl/tests/contract.cpp Makefile tools/nixl/build.mk
	@mkdir -p $(@D)
	$(Q_CC)$(CXX) $(NIXL_CXXFLAGS) -Itools/nixl/tests/fakes $(CFLAGS) -MD -MP -c -o $@ $<

$(NIXL_FAKED): $(NIXL_FAKED_OBJ)
$(NIXL_CONTRACT): $(O)/obj/tools/nixl/tests/contract.o
	@mkdir -p $(@D)
	$(Q_LD)$(CXX) -pthread $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $^ -ldl

.PHONY: check-nixl check-nixl-run
check-nixl:
	@$(MAKE) --no-print-directory $(ASAN) check-nixl-run

check-nixl-run: $(NIXL_CHECKED)
	@tools/nixl/tests/run-fakes $(O)
