# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
#
# For scripts that try the plugin, to be sourced: what they count, and their pools, below $work, with what is built in $O.

disks=()
daemon_pid=
passed=0 failed=0 skipped=0

# step WHAT COMMAND...: one thing that has to succeed
# shellcheck disable=SC2154
step() {
	local what=$1

	shift
	if "$@" > "$work/log" 2>&1; then
		echo "ok $what"
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not ok $what"
		tail -n 30 "$work/log"
		return 1
	fi
}

finish() {
	echo "nixl: $passed passed, $failed failed, $skipped skipped"
	exit $((failed > 0))
}

# exports PLUGIN: what an agent looks for, and nothing else
exports() {
	[ "$(nm -D --defined-only --format=posix "$1" | cut -d' ' -f1 | sort | tr '\n' ' ')" = \
		"nixl_plugin_fini nixl_plugin_init " ]
}

# pool [FOLDER/]NAME SIZE
# shellcheck disable=SC2154
pool() {
	mkdir -p "$work/$1" &&
		"$O/bin/kvctxctl" pool format --size "$2" --segment-size 8M "${1##*/}" "$work/$1/member0"
}

# root mounts without a helper
can_mount() { [ -w /dev/fuse ] && { [ "$(id -u)" = 0 ] || command -v fusermount3 > /dev/null; }; }

# disk [FOLDER/]NAME SIZE: a pool on a disk that can be held; the files "pid" and "said" of $work/NAME.disk are for tests
disk() {
	local files=$work/${1##*/}.disk i

	pool "$1" "$2" || return
	mkdir -p "$files/mount"
	mv "$work/$1/member0" "$files/image"
	ln -s "$files/mount/disk" "$work/$1/member0"
	"$O/test/volatile_fs" "$files/image" 1 4096 "$files/cut" 0 "$files/mount" > "$files/said" 2> "$files/errors" &
	disks+=($!)
	echo $! > "$files/pid"
	for ((i = 0; i < 100; i++)); do
		! grep -q mounted "$files/said" || return 0
		sleep 0.1
	done
	cat "$files/errors"
	return 1
}

let_go() {
	local disk

	for disk in "${disks[@]}"; do
		kill -USR2 "$disk" 2> /dev/null
	done
}

end_disks() {
	local disk

	for disk in "${disks[@]}"; do
		while kill "$disk" 2> /dev/null; do	# its loop may miss one
			sleep 0.1
		done
	done
}

# serve: the pools below $work/served, by a kvctxd with its sockets in $sockets
# shellcheck disable=SC2154
serve() {
	local i

	"$O/bin/kvctxd" --pools "$work/served" --run "$sockets" > "$work/daemon.log" 2>&1 &
	daemon_pid=$!
	for ((i = 0; i < 100; i++)); do
		[ -S "$sockets/d/default" ] && return
		sleep 0.1
	done
	cat "$work/daemon.log"
	return 1
}

# It may be stopped
end_daemon() {
	[ -z "$daemon_pid" ] || { kill "$daemon_pid" && kill -CONT "$daemon_pid" && wait "$daemon_pid"; } 2> /dev/null
}
