# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What kvctxctl does with pools and tenants: the same for the module and for kvctxd, whoever KVCTX_SOCKET and KVCTX_NODE say.
#
# Sourced behind lib.sh. pool_and_tenant_verbs takes the paths of two devices of 64 MiB and of one of 32 MiB, which hold no
# pool; no pool t is attached before and behind it. ctl_admin.sh does that in the guest, the tests of kvctxd do it with files.
# Verbs of members are in grow.sh.

nodes=${KVCTX_NODE:-/dev/kvctx/t/default}
nodes=${nodes%/*}

again() { kvctxctl pool detach t && kvctxctl pool attach "$@"; }
session_of() { env KVCTX_NODE="$nodes/$1" pages "${@:2}"; }
json() { kvctxctl "$@" -o json | tr -d ' \t\n'; }

# hold TENANT: a session of it is open until let_go
hold() {
	KVCTX_NODE=$nodes/$1 pages hold 300 > /tmp/verbs-held.$$ 2>&1 &
	holder=$!
	until_true 60 grep -q holding /tmp/verbs-held.$$
}
let_go() {
	kill $holder
	wait $holder 2> /dev/null
	rm -f /tmp/verbs-held.$$
	until_true 60 bash -c "kvctxctl tenant show t $1 -o json | tr -d ' \t\n' | grep -q '\"sessions\":0'"
}

# What is no pool, or not the one that was meant
verbs_attach() {
	check "a blank device" fails "$a: no (kvctx superblock|member of a pool)" kvctxctl pool attach "$a"
	check "a path without anything" fails '/nothing: (no such device node|No such file)' kvctxctl pool attach /nothing
	check "no pool of this name" refuses 3 'no pool named t' kvctxctl pool show t
	check "format" prints 'Pool t formatted: 2 members' kvctxctl pool format t "$a" "$b" --force --segment-size 1M
	check "a scan finds it" prints 'state +complete' kvctxctl pool scan "$a" "$b"
	check "one member of two" fails 'member 1 of 2 is missing' kvctxctl pool attach "$a"
	check "the same device twice" fails "$a: given twice" kvctxctl pool attach "$a" "$a"
	ln -sf "$a" /tmp/verbs-link.$$
	check "the same device by another path" fails "/tmp/verbs-link.$$: given twice" \
		kvctxctl pool attach "$a" "$b" /tmp/verbs-link.$$
	rm -f /tmp/verbs-link.$$
	kvctxctl pool format u "$s" --force --segment-size 1M > /dev/null
	check "a member of another pool" fails "$s: of another pool, u" kvctxctl pool attach "$a" "$s"
	check "nothing came of it" refuses 3 'no pool named t' kvctxctl pool show t
	check "both, in any order" kvctxctl pool attach "$b" "$a"
	check "members keep their place" prints "1 .*$b" kvctxctl pool show t
	check "a scan knows who has it" prints "state +attached.* 0 +there .*$a.* 1 +there .*$b" \
		kvctxctl pool scan "$a" "$b"
	check "they are in use" fails 'in use' kvctxctl pool attach "$a" "$b"
	check "a pool in use is not formatted" fails 'in use' kvctxctl pool format x "$a" --force
	check "nor destroyed" fails 'in use|attached' kvctxctl pool destroy --force "$a"
	hold default
	check "a session keeps it" fails 'sessions? of pool t (is|are) open|in use|busy' kvctxctl pool detach t
	let_go default
	check "detach" kvctxctl pool detach t
	check "its nodes go along" test ! -e "$nodes"
	check "and nobody has it" prints 'state +complete' kvctxctl pool scan "$a" "$b"
	check "no such pool any more" refuses 3 'no pool named t' kvctxctl pool detach t
	check "degraded, where one asks for it" prints 'degraded' kvctxctl pool attach "$a" --degraded
	check "detach" kvctxctl pool detach t
	check "all of it again" prints 'state +online' kvctxctl pool attach "$a" "$b"
	check "detach" kvctxctl pool detach t
	check "destroy" kvctxctl pool destroy --force "$a" "$b"
	check "what was destroyed is no pool" fails "no (kvctx superblock|member of a pool)" kvctxctl pool attach "$a" "$b"
	kvctxctl pool destroy --force "$s" > /dev/null
}

verbs_settings() {
	kvctxctl pool format t "$a" --force --segment-size 1M > /dev/null
	check "attach" kvctxctl pool attach "$a"
	check "list" prints 't +online' kvctxctl pool list
	check "set" kvctxctl pool set t --discard off --write-budget 3G
	check "shown" prints '"discard_rate":0,' json pool show t
	check "that too" prints "\"write_budget\":$((3 << 30))\\b" json pool show t
	check "a rate out of range" fails 'discard rate: 1M to 1T|1M' kvctxctl pool set t --discard 1K
	check "nothing to set" refuses 2 'give --discard' kvctxctl pool set t
	check "kept on media" again "$a"
	check "as it was set" prints "\"write_budget\":$((3 << 30))\\b" json pool show t
	check "set back" kvctxctl pool set t --write-budget off
	check "no such pool" refuses 3 'no pool named nothing' kvctxctl pool set nothing --discard off
}

verbs_names() {
	check "add" kvctxctl tenant add t alice --uid 65534 --gid 65533 --mode 0640
	check "it has a node" test -e "$nodes/alice"
	check "with its owner and group" test "$(stat -c '%u %g' "$nodes/alice")" = "65534 65533"
	check "and its mode" prints "\"mode\":$((0640))," json tenant show t alice
	check "twice" fails 'tenant alice.*(already|there)|there (already|is)' kvctxctl tenant add t alice
	check "a name of 31 characters" kvctxctl tenant add t abcdefghijklmnopqrstuvwxyz01234
	check "one of 32" refuses 2 'a name has 1 to 31' kvctxctl tenant add t abcdefghijklmnopqrstuvwxyz012345
	check "one that is a path" refuses 2 'a name has 1 to 31' kvctxctl tenant add t ../x
	check "no such pool" refuses 3 'no pool named nothing' kvctxctl tenant add nothing bob
	check "list" prints 'alice' kvctxctl tenant list t
	hold alice
	check "an open session keeps it" fails 'sessions? of tenant alice (is|are) open' kvctxctl tenant remove t alice
	let_go alice
	check "its pages" prints 'stored=20' session_of alice store 0 20 1000
	check "are its own" prints 'right=0 wrong=0 bad=0 missing=20' pages load 0 20 1000
	check "remove" kvctxctl tenant remove t alice
	check "its node goes along" test ! -e "$nodes/alice"
	check "no such tenant any more" refuses 3 'no tenant.* alice' kvctxctl tenant remove t alice
	check "add it again" kvctxctl tenant add t alice
	check "its pages went with it" prints 'right=0 wrong=0 bad=0 missing=20' session_of alice load 0 20 1000
	check "remove default: it comes back with the next attach" bash -c "
		kvctxctl tenant remove t default && test ! -e $nodes/default &&
		kvctxctl pool detach t && kvctxctl pool attach $a > /dev/null && test -e $nodes/default"
	check "the others are kept" test -e "$nodes/alice"
	check "remove it" kvctxctl tenant remove t alice
}

required() { json tenant show t "$1" | grep -q "\"require_verified\":$2"; }

verbs_required() {
	check "add a tenant that requires verified pages" kvctxctl tenant add t strict --require-verified
	check "it is shown" required strict true
	check "others do not" required default false
	check "a session sees it" prints 'tenant_flags=1' session_of strict info
	hold strict
	check "it is not changed under an open session" fails 'sessions of tenant strict are open' \
		kvctxctl tenant set t strict --allow-unverified
	let_go strict
	check "set it for another" kvctxctl tenant set t default --require-verified
	check "and take it back from the first" kvctxctl tenant set t strict --allow-unverified
	check "both are kept on media" again "$a"
	check "required" required default true
	check "not required" required strict false
	check "sessions see it again" prints 'tenant_flags=1' pages info
	check "and here it is gone" prints 'tenant_flags=0' session_of strict info
}

limits() { kvctxctl tenant show t "$1" | awk '/^(quota|reserve|write budget|max|bandwidth|weight|urgent)/ { printf("%s ", ($NF == "GiB" || $NF == "MiB") ? ($(NF - 1) $NF) : $NF) }'; }

verbs_limits() {
	check "a tenant has no limits" test "$(limits strict)" = "off off off off off off off off 100 yes "
	check "add one with some" kvctxctl tenant add t limited --quota 3G --reserve 1M --max-keyspaces 7 --no-urgent \
		--bandwidth 4M --max-inflight 9 --weight 250
	check "it has them" test "$(limits limited)" = "3.0GiB 1.0MiB off off off 7 4.0MiB 9 250 no "
	hold strict
	check "set others under an open session" \
		kvctxctl tenant set t strict --write-budget 2M --max-pinned 5G --max-leased 6M
	check "but not flags" fails 'sessions of tenant strict are open' \
		kvctxctl tenant set t strict --write-budget 3M --require-verified
	check "nor what is said with them" test "$(limits strict)" = "off off 2.0MiB 5.0GiB 6.0MiB off off off 100 yes "
	let_go strict
	check "a reserve above the quota is refused" fails 'reserve: at most the quota' kvctxctl tenant set t limited --reserve 4G
	check "one that the pool does not have, too" fails 'cannot keep all reserves' \
		kvctxctl tenant set t limited --quota off --reserve 1T --require-verified
	check "with all that is said with it" prints '"require_verified":false.*"quota":3221225472' json tenant show t limited
	check "and what is not given stays" kvctxctl tenant set t limited --reserve off --urgent --max-inflight off
	check "a session sees the quota" prints "tenant_limit=$((3 << 30))" session_of limited info
	check "limits are kept on media" again "$a"
	check "those that were set" test "$(limits strict)" = "off off 2.0MiB 5.0GiB 6.0MiB off off off 100 yes "
	check "those that were left" test "$(limits limited)" = "3.0GiB off off off off 7 4.0MiB off 250 yes "
	check "who gets the slot next has none" bash -c 'kvctxctl tenant remove t limited && kvctxctl tenant add t limited'
	check "none" test "$(limits limited)" = "off off off off off off off off 100 yes "
}

verbs_counters() {
	kvctxctl tenant set t default --allow-unverified > /dev/null
	check "store" prints 'stored=30' session_of limited store 0 30 1000
	check "load" prints 'right=30 wrong=0' session_of limited load 0 30 1000
	check "counted by pool" prints '"stores":30,' json stat t
	check "and by tenant" prints '"tenant":"limited".*"pages":30' json tenant list t
	check "what its operations came to" prints '"tenant":"limited"' json tenant stat t limited
	check "for people" prints 'limited' kvctxctl tenant stat t limited
	check "no such tenant" refuses 3 'no tenant' kvctxctl tenant stat t nobody
	check "detach" kvctxctl pool detach t
	check "nothing is attached" refuses 3 'no pool named t' kvctxctl pool show t
}
pool_and_tenant_verbs() {
	local a=$1 b=$2 s=$3 holder

	verbs_attach
	verbs_settings
	verbs_names
	verbs_required
	verbs_limits
	verbs_counters
}
