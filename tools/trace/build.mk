# SPDX-License-Identifier: GPL-2.0
#
# Scripts for bpftrace; nothing to build.

INSTALLS	+= install-trace

.PHONY: install-trace
install-trace:
	install -d $(DESTDIR)$(PREFIX)/share/kvctx/trace
	install -m 755 tools/trace/latency tools/trace/latency.bt $(DESTDIR)$(PREFIX)/share/kvctx/trace/
