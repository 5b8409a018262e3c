#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What README tells an operator to type, on devices, files and sizes that are here. What builds or installs is run elsewhere,
# see selftests/readme/run.
. "$(dirname "$0")/lib.sh"

readme=/kvctx/README.md
dev=$(nvmet_null_blk readme 1536)

# commands SECTION: of README, one a line, without comments, as they can be run here
commands() {
	awk -v section="## $1" '
		/^## / { here = $0 == section }
		here && sub(/^    /, "") { if (sub(/\\$/, "")) line = line $0; else { print line $0; line = "" } }' $readme |
		grep -vE '^(make|apt|depmod|build/bin/kvctx-simulate|tools/simulate/)' |
		sed -E -e 's/[[:space:]]+#.*//' -e "s,/dev/nvme1n1,$dev," -e 's/--size 200G/--size 96M --segment-size 4M/' -e 's/--size=1g/--size=16m/' \
			-e 's,build/lib/kvctx-fio.so,/usr/lib/kvctx-fio.so,'
}

# The daemon runs on, and has the pools of files for itself
daemon=
while read -r command; do
	case $command in
	kvctxd*) daemon=$command ;;
	*) check "$command" bash -c "$command" ;;
	esac
done < <(commands "Install it on a GPU host")
while read -r command; do
	check "$command" timeout -k 5 120 bash -c "$command"
done < <(commands "Measure it")
check "there were as many commands as there are" test $test_no = 8
$daemon 2> /tmp/readme.kvctxd &
pid=$!
check "$daemon" until_true 60 test -S /run/kvctx/kv0/default
check "one opens what it names" env KVCTX_NODE=/run/kvctx/kv0/default bash -c "pages store 0 5 1000 | grep -q 'stored=5 '"
command=$(commands "Measure it" | grep -e --path=)
check "the fio engine does" timeout -k 5 120 bash -c "${command/var\/lib/run}"
kill $pid
wait $pid
check "it ends" test $? = 0
check "detach" kvctxctl pool detach kv0
check "unload" rmmod kvctx
rm -r /var/lib/kvctx/kv0
nvmet_teardown
finish
