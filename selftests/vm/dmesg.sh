# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What must not be in a kernel log (sourced by run).

# One alternative a line; case matters.
bad_lines='BUG
WARNING
Oops
\bpossible\b
lockdep
INFO: task .* blocked
hung.task
rcu.*stall
kmemleak
unreferenced object
memory leak
still has [0-9]+ .*allocated
Objects remaining
KASAN|UBSAN|KCSAN|KFENCE
general protection fault
Kernel panic
Call Trace
refcount_t:
list_(add|del) corruption
scheduling while atomic
sleeping function called
Bad page state
soft lockup|hard LOCKUP
\[kvctx\] enqueued on deprecated workqueue
kvctx: leak'

# Lines of every healthy boot that look like one
good_lines='ommand line:
RCU CPU stall warnings timeout set
kprobe jump-optimization is enabled
kcsan: non-strict mode configured
RCU lockdep checking is enabled
kmemleak: Kernel memory leak detector (disabled|initialized)
\] [ ?]*lockdep_[a-z_]+\+0x'

# any_of LINES: one regular expression
any_of() { paste -sd'|' <<< "$1"; }

# dmesg_findings LOG [ALLOWED]...: print the bad lines that match no ALLOWED
# regular expression.
dmesg_findings() {
	local log=$1 bad a

	shift
	bad=$(tr -d '\r' < "$log" | grep -aE "$(any_of "$bad_lines")" |
		grep -avE "$(any_of "$good_lines")") || return 0
	for a; do
		bad=$(grep -avE -e "$a" <<< "$bad") || return 0
	done
	printf '%s\n' "$bad"
}
