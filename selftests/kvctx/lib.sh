# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the test scripts that run in the guest (sourced): TAP output, the pool "t"
# on a device, comparison of what a command printed.
#
# A script is a row of `check "what is promised" COMMAND...`; `finish` prints the
# plan and sets the exit status.

here=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=selftests/vm/guest/nvmet.sh
. "$here/../vm/guest/nvmet.sh"
PATH=$here/..:$PATH	# the test programs lie beside this folder

test_no=0 test_failed=0 kind=${kind-}

# check DESCRIPTION COMMAND...: one test; the output of a failed command is shown
check() {
	local what=$1 out status

	shift
	test_no=$((test_no + 1))
	out=$("$@" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		echo "ok $test_no $what"
	else
		test_failed=$((test_failed + 1))
		echo "not ok $test_no $what"
		printf '# status %s of: %s\n' "$status" "$*"
		printf '%s\n' "$out" | tail -n 20 | sed 's/^/# /'
	fi
}

# check_growth DESCRIPTION COMMAND...: the same about memory in use; skipped where KASAN keeps what was freed, with the
# stacks of who did
check_growth() {
	if grep -q ' kasan_report$' /proc/kallsyms; then
		test_no=$((test_no + 1))
		echo "ok $test_no $1 # SKIP KASAN keeps what was freed"
	else
		check "$@"
	fi
}

# prints EXTENDED-REGEX COMMAND...: succeeds and its output matches
prints() {
	local re=$1 out status

	shift
	out=$("$@" 2>&1)
	status=$?
	printf '%s\n' "$out"
	[ $status = 0 ] && [[ $out =~ $re ]]
}

# fails EXTENDED-REGEX COMMAND...: whatever the status is, the sentence counts
fails() {
	local re=$1 out

	shift
	out=$("$@" 2>&1) && return 1
	printf '%s\n' "$out"
	[[ $out =~ $re ]]
}

# refuses STATUS EXTENDED-REGEX COMMAND...: ends with that status and says why
refuses() {
	local want=$1 re=$2 out status

	shift 2
	out=$("$@" 2>&1)
	status=$?
	printf '%s\nstatus %s\n' "$out" "$status"
	[ $status = "$want" ] && [[ $out =~ $re ]]
}

# program NAME [ARGUMENT]...: run a test program; each of its tests counts as one here. $kind says
# what it runs over
program() {
	local out=/tmp/$1.out line results=0 began=$SECONDS

	"$@" > "$out" 2>&1
	echo "# $1: $((SECONDS - began)) s"
	while IFS= read -r line; do
		case $line in
			'ok '* | 'not ok '*) ;;
			*) continue ;;
		esac
		results=$((results + 1))
		test_no=$((test_no + 1))
		if [[ $line = not* ]]; then
			test_failed=$((test_failed + 1))
			echo "not ok $test_no $kind: ${line#not ok * }"
			grep -E '^#' "$out" | grep -vE '^# +(RUN|OK) ' | tail -n 20
		else
			echo "ok $test_no $kind: ${line#ok * }"
		fi
	done < "$out"
	# what it has to tell
	grep -E '^# [^ ]*:[0-9]+:.*(reason [0-9]|a GiB)' "$out" | cut -d: -f4- | sed 's/^/# /'
	# a program that died did not print its totals
	check "$kind: $1 ran $results tests to the end" grep -q '^# Totals:' "$out"
}

finish() {
	echo "1..$test_no"
	[ $test_failed = 0 ]
}

# stat_of NAME: one counter of pool t
stat_of() {
	kvctxctl stat t -o json | tr -d ' \t\n' | grep -oE "\"$1\":[0-9]+" | head -n 1 | cut -d: -f2
}

# make_pool DEVICE [FORMAT-OPTION]...: format and attach pool t
make_pool() {
	local dev=$1

	shift
	kvctxctl pool format t "$dev" --force "$@" && kvctxctl pool attach "$dev"
}

# A guest whose processors are emulated is slower, and may stand still for seconds: its kernel's arguments tell
# (selftests/vm/qemu.sh, selftests/arm64/guest). A kernel that checks itself is slower still
patience=1
grep -qE 'tsc_early_khz=|emulated=yes' /proc/cmdline && patience=3
grep -qE ' (kasan_report|__tsan_func_entry)$' /proc/kallsyms && patience=5
export KVCTX_PATIENCE=$patience		# of the programs too

# until_true SECONDS COMMAND...: repeat until it succeeds
until_true() {
	local end=$((SECONDS + $1 * patience))

	shift
	until "$@" > /dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
