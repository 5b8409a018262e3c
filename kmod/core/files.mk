# SPDX-License-Identifier: GPL-2.0
#
# The core's sources, without folder and suffix: the module and the native library are built from this one list.

KVC_CORE_FILES	:= format format_super table entry bucket index domain segment pool member leave store load delete tomb \
		   summary discard budget reclaim request value victim recover work
