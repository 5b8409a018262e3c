# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The Python package: its wheel, with the library inside, and its tests.
#
# The library of the wheel needs nothing but libc: liburing and libcrypto are linked into it, and libisal, of which Debian
# has no archive, lies beside it. PYTHON is the interpreter that makes the environments in $(O)/python.

PYTHON		?= python3
PY_LIB		:= $(O)/python/lib
PY_STATIC	:= -Wl,-Bstatic -luring -lcrypto -Wl,-Bdynamic -lisal -lpthread
PY_COPYING	:= libisal-dev libssl-dev liburing-dev	# whose code is inside

CHECKS		+= check-python

$(PY_LIB)/libkvctx.so.0: $(LIBKVCTX_OBJ) $(LIBKVCTX_MAP) libkvctx/python/build.mk
	@rm -rf $(PY_LIB)
	@mkdir -p $(PY_LIB)
	$(Q_LD)$(CC) -shared -pthread -s -Wl,-soname,$(LIBKVCTX_SONAME) -Wl,--version-script=$(LIBKVCTX_MAP) \
		-Wl,--gc-sections -Wl,-rpath,'$$ORIGIN' $(KVCTX_LDFLAGS) $(LDFLAGS) -o $@ $(LIBKVCTX_OBJ) $(PY_STATIC)
	@set -e; isal=$$($(CC) -print-file-name=libisal.so); \
	cp "$$isal" $(PY_LIB)/$$(LC_ALL=C readelf -d "$$isal" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'); \
	for p in $(PY_COPYING); do \
		[ ! -f /usr/share/doc/$$p/copyright ] || cp /usr/share/doc/$$p/copyright $(PY_LIB)/$$p.copyright; \
	done

.PHONY: python-lib wheel check-python install-python
python-lib: $(PY_LIB)/libkvctx.so.0

# For packages of distributions, beside the library that they install; everybody else takes the wheel
PYTHONDIR	?= $(PREFIX)/lib/python3/dist-packages
install-python:
	@set -e; cd libkvctx/python; for f in $$(find kvctx -name '*.py' -o -name py.typed); do \
		install -D -m 644 $$f $(DESTDIR)$(PYTHONDIR)/$$f; \
	done

wheel:
	@PYTHON='$(PYTHON)' libkvctx/python/mkwheel $(O)

check-python: programs
	@PYTHON='$(PYTHON)' CC='$(CC)' libkvctx/python/tests/run $(O)
