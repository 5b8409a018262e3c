# SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
#
# The sources here, without suffix: the module, the library and the tests are built from this one list.

KVCTX_SESSION	:= sqe call tree queue park turn pace tally slots lease match watch
