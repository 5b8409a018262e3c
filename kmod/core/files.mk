# SPDX-License-Identifier: GPL-2.0
#
# The core's sources, without folder and suffix: the module and the native library are built from this one list.

KVC_CORE_FILES	:= media/format media/format_super index/table index/entry index/bucket index/index index/domain log/segment pool log/member log/leave log/store log/load log/delete log/tomb log/summary log/discard policy/budget log/reclaim policy/request policy/value policy/victim log/recover work
