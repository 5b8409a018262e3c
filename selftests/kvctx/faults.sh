#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Failures of allocations, copies and transfers, wherever the module meets them: on the debug kernel, with two SSDs.
#
#   faults.sh commands      each failure alone, one after the other, of every command (fail_nth.c)
#   faults.sh operations    and of every operation (faults.c); then many at random, also in the module's own threads;
#                           then transfers that fail
. "$(dirname "$0")/lib.sh"

debugfs=/sys/kernel/debug
kind=faults
part=${1?}

# Only what happens below functions of modules fails: neither the programs' own memory nor the rest of the kernel.
# (That is where x86-64 puts modules.)
select_failures() {
	local f

	for f in "$debugfs"/fail*; do
		[ -e "$f/require-start" ] || continue
		echo 0xffffffffa0000000 > "$f/require-start"
		echo 0xffffffffff000000 > "$f/require-end"
		echo 0 > "$f/verbose"
		[ ! -e "$f/ignore-gfp-wait" ] || echo N > "$f/ignore-gfp-wait"
		[ ! -e "$f/min-order" ] || echo 0 > "$f/min-order"
	done
}

# at_random PERCENT NAME...: these fail so often
at_random() {
	local percent=$1 f

	shift
	for f; do
		echo -1 > "$debugfs/$f/times"
		echo "$percent" > "$debugfs/$f/probability"
	done
}

# sweep WHAT AFTER COMMAND...: see fail_nth.c
sweep() {
	local met

	check "$1: every failure is survived" run_sweep "${@:2}"
	sed -n 's/^failures=/# &/p' /tmp/sweep.out
	met=$(sed -n 's/^failures=\([0-9]*\).*/\1/p' /tmp/sweep.out)
	failures=$((failures + ${met:-0}))
}
run_sweep() {
	fail_nth "$@" 2>&1 | tee /tmp/sweep.out
	return "${PIPESTATUS[0]}"
}
failures=0

all_right='right=20 wrong=0 bad=0 missing=0 gone=0 errors=0'
export all_right
# shellcheck disable=SC2016 # expanded by fail_nth's shell
holds='[ "$(pages load 0 20 100000)" = "$all_right" ]'
no_tenant='! kvctxctl tenant list t | grep -qw x || kvctxctl tenant remove t x'
a_tenant='kvctxctl tenant list t | grep -qw x || kvctxctl tenant add t x'

a=$(nvmet_ssd kvctx0)
b=$(nvmet_ssd kvctx1)
check "two SSDs" test -b "$a" -a -b "$b"
select_failures

# /tmp/lose: have the member on the second SSD lost, whose transfers all fail for a while; unless it is
lose_script() {
	cat > /tmp/lose << LOSE
#!/bin/bash
lost() { kvctxctl pool show t | grep -q 'failed.*$b'; }
lost && exit 0
# some that a summary has to take
pages store 1000 40 100000 > /dev/null
echo 1 > /sys/class/block/${b##*/}/make-it-fail
echo -1 > $debugfs/fail_make_request/times
echo 100 > $debugfs/fail_make_request/probability
for _ in \$(seq 100); do
	pages flush > /dev/null
	lost && break
	sleep 0.1
done
echo 0 > $debugfs/fail_make_request/probability
echo 0 > /sys/class/block/${b##*/}/make-it-fail
pages delete 1000 40 > /dev/null
lost
LOSE
	chmod +x /tmp/lose
}

commands() {
	modprobe kvctx && rmmod kvctx	# what it depends on stays
	sweep "load" '! grep -q "^kvctx " /proc/modules || rmmod kvctx' insmod "$(modinfo -n kvctx)"
	modprobe kvctx
	check "format and attach" make_pool "$a" --segment-size 4M
	check "store 20 pages" prints 'stored=20' pages store 0 20 100000
	check "detach" kvctxctl pool detach t
	sweep "attach" "! kvctxctl pool show t > /dev/null 2>&1 || { $holds && kvctxctl pool detach t; }" \
		kvctxctl pool attach "$a"
	check "attach" kvctxctl pool attach "$a"
	sweep "tenant add" "$no_tenant" kvctxctl tenant add t x
	check "add a tenant" kvctxctl tenant add t x
	sweep "tenant set" true kvctxctl tenant set t x --require-verified
	sweep "tenant remove" "$a_tenant" kvctxctl tenant remove t x
	sweep "pool set" true kvctxctl pool set t --discard 2M
	for what in "pool list" "pool show t" "tenant list" "stat t"; do
		# shellcheck disable=SC2086 # words
		sweep "$what" true kvctxctl $what
	done
	sweep "pool add" "$holds && { ! kvctxctl pool show t | grep -q 'online.*$b' || kvctxctl pool remove t $b; }" \
		kvctxctl pool add t "$b"
	check "add a member" kvctxctl pool add t "$b"
	check "store on both" prints 'stored=20' pages store 100 20 100000
	check "flush" prints flushed pages flush
	echo 0 > /sys/module/kvctx/parameters/member_patience
	lose_script
	check "a member is lost" /tmp/lose
	sweep "pool rejoin" "$holds && /tmp/lose" kvctxctl pool rejoin t "$b"
	check "it returns" kvctxctl pool rejoin t "$b"
	check "with its pages" prints "$all_right" pages load 100 20 100000
	sweep "pool remove" "$holds && { kvctxctl pool show t | grep -q 'online.*$b' || kvctxctl pool add t $b; }" \
		kvctxctl pool remove t "$b"
	check "the pages are right" prints "$all_right" pages load 0 20 100000
	sweep "detach" "kvctxctl pool show t > /dev/null 2>&1 || kvctxctl pool attach $a $b" kvctxctl pool detach t
	check "the pages are right" prints "$all_right" pages load 0 20 100000
	check "so are those on both" prints "$all_right" pages load 100 20 100000
	sweep "unload" 'grep -q "^kvctx " /proc/modules || modprobe kvctx' bash -c 'kvctxctl pool detach t; exec rmmod kvctx'
	check "attach both again" kvctxctl pool attach "$a" "$b"
	check "failures were met ($failures)" test $failures -gt 200
}

# some of everything, with what it says kept
work() {
	local i what status

	echo > /tmp/work.out
	for i in $(seq "$1"); do
		for what in "store $((i * 100)) 60 100000" "load $((i * 100)) 60 100000" "load 0 20 100000" \
			"delete $((i * 100)) 30" flush; do
			# shellcheck disable=SC2086 # words
			timeout 300 pages $what
			status=$?
			[ $status -le 1 ] || echo "died: $status"
		done
		kvctxctl tenant add t y
		kvctxctl tenant remove t y
	done
} >> /tmp/work.out 2>&1
nothing_wrong() {
	tail -n 40 /tmp/work.out
	grep -qE 'Cannot allocate|Bad address|again=[1-9]|errors=[1-9]|gone=[1-9]' /tmp/work.out || return
	! grep -qE 'wrong=[1-9]|bad=[1-9]|died' /tmp/work.out
}
# again_right: what was flushed before is there after an attach
again_right() {
	kvctxctl pool detach t && kvctxctl pool attach "$a" "$b" > /dev/null &&
		prints "$all_right" pages load 0 20 100000
}

operations() {
	modprobe kvctx
	check "format" kvctxctl pool format t "$a" "$b" --force --segment-size 4M
	check "attach" kvctxctl pool attach "$a" "$b"
	check "store 20 pages" prints 'stored=20' pages store 0 20 100000
	program faults
	sed -n 's/^# .*:\([a-z_]*: failures=\)/# \1/p' /tmp/faults.out
	check "every operation met failures" test "$(grep -cE 'failures=[1-9]' /tmp/faults.out)" -ge 10
	check "no page failed verification" test "$(stat_of bad_pages)" = 0
	check "the pages are right" prints "$all_right" pages load 0 20 100000

	# At random, whoever it is that works: the module's own threads too
	check "flush" prints flushed pages flush
	for what in failslab fail_page_alloc fail_usercopy; do
		at_random 10 "$what"
		work 4
		at_random 0 "$what"
		check "one in ten of $what: nothing is wrong" nothing_wrong
		check "and everything was flushed is there again" again_right
	done
	at_random 20 failslab fail_page_alloc
	for _ in $(seq 20); do
		timeout 300 kvctxctl pool detach t
		timeout 300 kvctxctl pool attach "$a" "$b"
	done > /dev/null 2>&1
	at_random 0 failslab fail_page_alloc
	kvctxctl pool show t > /dev/null 2>&1 || kvctxctl pool attach "$a" "$b"
	check "attaches and detaches that fail: everything is there again" again_right

	# Transfers that fail. Members may be lost by that.
	for dev in "$a" "$b"; do
		echo 1 > "/sys/class/block/${dev##*/}/make-it-fail"
	done
	at_random 10 fail_make_request
	work 3
	at_random 0 fail_make_request
	check "one in ten transfers is not sent: nothing is wrong" nothing_wrong
	check "and what was flushed is there again" again_right

	for inject in "$debugfs"/nvme*n*/fault_inject; do
		echo 0x281 > "$inject/status"
		echo 1 > "$inject/dont_retry"
		echo 0 > "$inject/verbose"
		at_random 10 "${inject#"$debugfs/"}"
	done
	work 3
	for inject in "$debugfs"/nvme*n*/fault_inject; do
		at_random 0 "${inject#"$debugfs/"}"
	done
	check "the SSDs fail one in ten: nothing is wrong" nothing_wrong
	check "and what was flushed is there again" again_right
}

$part
check "detach" until_true 20 kvctxctl pool detach t
check "unload" until_true 60 rmmod kvctx
check "no node is left" bash -c '! ls -d /dev/kvctx /dev/t'
check "nothing is left" bash -c '! grep -qE "kvctx|kvc_" /proc/vmallocinfo /proc/slabinfo /proc/devices'
if grep -q kmemleak=on /proc/cmdline; then
	# what two scans, some seconds apart, find no reference to; the detector refuses when it has given up
	sleep 6
	check "scan for leaks" bash -c "echo scan > $debugfs/kmemleak"
	sleep 6
	check "and again" bash -c "echo scan > $debugfs/kmemleak"
	cat $debugfs/kmemleak > /tmp/leaks
	check "no memory has leaked" bash -c 'head -n 60 /tmp/leaks; [ ! -s /tmp/leaks ]'
fi
nvmet_teardown
finish
