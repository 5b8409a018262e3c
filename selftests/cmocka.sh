# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts that run programs of cmocka: to be sourced.

# cmocka_counts OUTPUT STATUS: sets p, f and s to how many of a program's tests passed, failed and were skipped
# shellcheck disable=SC2034
cmocka_counts() {
	local told

	p=$(grep -c '^\[       OK \]' <<< "$1")
	# those that did not pass are told twice: when they end, and in a list at the end, by name
	told=$(grep -c '^\[  FAILED  \] [a-z]' <<< "$1")
	f=$(((told + 1) / 2))
	told=$(grep -c '^\[  SKIPPED \] [a-z]' <<< "$1")
	s=$(((told + 1) / 2))
	# a crash, a sanitizer's finding, a hang, or nothing at all
	if [ "$f" = 0 ] && { [ "$2" != 0 ] || [ $((p + s)) = 0 ]; }; then
		f=1
	fi
}
