# SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
#
# The core's sources, without folder and suffix: the module and the native library are built from this one list.
# By floors, see engine.h.

KVC_CORE_FILES	:= media/format media/format_super index/table index/bucket policy/value index/event base \
		   index/domain policy/budget policy/quota index/index \
		   index/entry policy/request tenant \
		   log/segment \
		   log/tomb log/lease log/discard log/own \
		   log/room log/memory log/load policy/victim \
		   log/member log/store log/delete \
		   log/summary pool \
		   log/reclaim log/recover log/leave log/return work
