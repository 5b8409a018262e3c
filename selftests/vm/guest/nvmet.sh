#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Real NVMe-oF targets inside the guest: the kernel's nvmet, set up over configfs,
# and the connections to them. To be sourced (functions nvmet_*) or run
# (nvmet.sh VERB ARGUMENT... calls nvmet_VERB).
#
# Backing devices (each prints its path below /dev):
#   nvmet_null_blk NAME MB [BLOCKSIZE [DISCARD [CACHE]]]
#                                        memory-backed null_blk, /dev/NAME; DISCARD 0:
#                                        does not discard; CACHE: MB of a volatile write
#                                        cache, lost when its power is off (configfs).
#                                        Blocks of 512: with larger ones it copies beyond its
#                                        pages when a request's memory is not aligned
#                                        to blocks (kernels 6.12 to 7.2)
#   nvmet_file NAME MB [BLOCKSIZE]       file in tmpfs behind a loop device
#   nvmet_ssd SERIAL                     emulated NVMe SSD (run --nvme: kvctx0...)
#
# Targets; TRANSPORT is tcp (127.0.0.1:4420), loop, or rdma (soft RoCE on a dummy
# network device, 192.0.2.1:4420):
#   nvmet_target TRANSPORT NAME DEVICE   export DEVICE, namespace 1 of NAME
#   nvmet_connect TRANSPORT NAME [ARG]...  connect and print the block device; ARG
#                                        goes to "nvme connect"
#   nvmet_disconnect NAME
#   nvmet_remove NAME                    disconnect, stop exporting
#   nvmet_nqn NAME, nvmet_address TRANSPORT   for other tools that connect
#   nvmet_find NAME                      print the block device of a connection
#
#   nvmet_teardown                       undo all of the above, in any state
#   nvmet_unload                         nvmet_teardown, then unload the modules
#
# Functions return 1 and say why on standard error when something fails. A
# namespace has the same UUID whenever a target of its name is made again, as
# a real array would have after a reboot.

nvmet_cfg=/sys/kernel/config/nvmet
nvmet_null_cfg=/sys/kernel/config/nullb
nvmet_run=/run/kvctx-nvmet
nvmet_netdev=kvctx-rdma
nvmet_rdma_addr=192.0.2.1
nvmet_prefix=nqn.2025-01.test.kvctx
nvmet_host_id=5e1f7e57-0000-4000-8000-000000000001

nvmet_fail() {
	echo "nvmet: $*" >&2
	return 1
}

nvmet_nqn() { echo "$nvmet_prefix:$1"; }

nvmet_address() {
	case $1 in
		tcp) echo 127.0.0.1 ;;
		rdma) echo $nvmet_rdma_addr ;;
	esac
}

# nvmet_wait SECONDS COMMAND...: until COMMAND succeeds; its output is printed
nvmet_wait() {
	local tries=$(($1 * 20))

	shift
	while ! "$@"; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 0.05
	done
}

# ---- backing devices

nvmet_null_blk() {
	local dir=$nvmet_null_cfg/$1

	modprobe null_blk nr_devices=0 || return
	mkdir -p $nvmet_run/null_blk
	mkdir "$dir" || return
	touch "$nvmet_run/null_blk/$1"
	{
		echo "$2" > "$dir/size" &&
		echo "${3:-512}" > "$dir/blocksize" &&
		echo 1 > "$dir/memory_backed" &&
		echo "${4:-1}" > "$dir/discard" &&
		echo "${5:-0}" > "$dir/cache_size" &&
		echo 1 > "$dir/power"
	} || { nvmet_fail "null_blk $1: cannot be configured"; return; }
	nvmet_wait 30 test -b "/dev/$1" || { nvmet_fail "null_blk $1: no device"; return; }
	echo "/dev/$1"
}

nvmet_file() {
	local file=$nvmet_run/file/$1

	modprobe loop || return
	mkdir -p $nvmet_run/file
	truncate -s "$2M" "$file" || return
	losetup --show --find --sector-size "${3:-512}" "$file"
}

# nvmet_namespace_of SERIAL: the block device of a local controller
nvmet_namespace_of() {
	local ctrl ns

	for ctrl in /sys/class/nvme/*; do
		[ "$(tr -d ' ' 2> /dev/null < "$ctrl/serial")" = "$1" ] || continue
		ns=$(nvmet_head_of "$ctrl") && echo "$ns" && return
	done
	return 1
}

nvmet_ssd() {
	modprobe nvme || return
	nvmet_wait 30 nvmet_namespace_of "$1" || nvmet_fail "no SSD with serial $1"
}

# nvmet_head_of CONTROLLER: its first namespace's block device. With native
# multipath the controller holds the hidden path nvme0c1n1 of the head nvme0n1.
nvmet_head_of() {
	local ns

	for ns in "$1"/nvme*n*; do
		[[ ${ns##*/} =~ ^(nvme[0-9]+)(c[0-9]+)?(n[0-9]+)$ ]] || continue
		ns=/dev/${BASH_REMATCH[1]}${BASH_REMATCH[3]}
		[ -b "$ns" ] && echo "$ns" && return
	done
	return 1
}

# ---- targets

# Soft RoCE does not work on the loopback device, on a dummy device it does.
nvmet_rdma_up() {
	[ ! -e /sys/class/infiniband/rxe_kvctx ] || return 0
	modprobe -a rdma_rxe dummy nvmet-rdma nvme-rdma || return
	{
		ip link add $nvmet_netdev type dummy &&
		ip addr add $nvmet_rdma_addr/24 dev $nvmet_netdev &&
		ip link set $nvmet_netdev up &&
		rdma link add rxe_kvctx type rxe netdev $nvmet_netdev
	} || nvmet_fail "cannot set up soft RoCE"
}

# nvmet_port TRANSPORT: make the port unless it exists; print its directory
nvmet_port() {
	local dir=$nvmet_cfg/ports

	case $1 in
		tcp) dir=$dir/1; modprobe -a nvmet-tcp nvme-tcp || return ;;
		loop) dir=$dir/2; modprobe -a nvme-loop || return ;;
		rdma) dir=$dir/3; nvmet_rdma_up || return ;;
		*) nvmet_fail "no transport '$1'"; return ;;
	esac
	if [ ! -d "$dir" ]; then
		mkdir "$dir" || return
		echo "$1" > "$dir/addr_trtype"
		if [ "$1" != loop ]; then
			echo ipv4 > "$dir/addr_adrfam"
			nvmet_address "$1" > "$dir/addr_traddr"
			echo 4420 > "$dir/addr_trsvcid"
		fi
	fi
	echo "$dir"
}

# nvmet_uuid NAME: always the same for a name
nvmet_uuid() {
	printf %s "$1" | sha256sum |
		sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/'
}

nvmet_target() {
	local transport=$1 name=$2 device=$3 nqn subsys ns port

	modprobe -a nvmet nvme-fabrics || return
	port=$(nvmet_port "$transport") || return
	nqn=$(nvmet_nqn "$name")
	subsys=$nvmet_cfg/subsystems/$nqn
	ns=$subsys/namespaces/1
	mkdir "$subsys" && mkdir "$ns" || return
	{
		echo 1 > "$subsys/attr_allow_any_host" &&
		printf %s "$device" > "$ns/device_path" &&
		nvmet_uuid "$name" > "$ns/device_uuid" &&
		echo 1 > "$ns/enable" &&
		ln -s "$subsys" "$port/subsystems/$nqn"
	} 2> /dev/null && return
	nvmet_remove "$name"
	nvmet_fail "cannot export $device over $transport"
}

nvmet_find() {
	local ctrl nqn

	nqn=$(nvmet_nqn "$1")
	for ctrl in /sys/class/nvme/*; do
		[ "$(cat "$ctrl/subsysnqn" 2> /dev/null)" = "$nqn" ] || continue
		nvmet_head_of "$ctrl" && return
	done
	return 1
}

nvmet_connect() {
	local transport=$1 name=$2 where=() message

	shift 2
	[ "$transport" = loop ] ||
		where=(--traddr="$(nvmet_address "$transport")" --trsvcid=4420)
	message=$(timeout 60 nvme connect --transport="$transport" \
		--nqn="$(nvmet_nqn "$name")" "${where[@]}" --hostid=$nvmet_host_id \
		--hostnqn=nqn.2014-08.org.nvmexpress:uuid:$nvmet_host_id "$@" 2>&1) ||
		{ nvmet_fail "connect $transport $name: $message"; return; }
	nvmet_wait 30 nvmet_find "$name" ||
		nvmet_fail "connect $transport $name: no namespace appeared"
}

nvmet_disconnect() {
	timeout 60 nvme disconnect --nqn="$(nvmet_nqn "$1")" > /dev/null
}

# ---- taking down; every step may find its work done already

nvmet_remove() {
	local nqn subsys link

	nqn=$(nvmet_nqn "$1")
	subsys=$nvmet_cfg/subsystems/$nqn
	if grep -qsx "$nqn" /sys/class/nvme/*/subsysnqn; then
		nvmet_disconnect "$1"
	fi
	[ -d "$subsys" ] || return 0
	for link in "$nvmet_cfg"/ports/*/subsystems/"$nqn"; do
		[ ! -L "$link" ] || rm "$link"
	done
	if [ -d "$subsys/namespaces/1" ]; then
		echo 0 > "$subsys/namespaces/1/enable"
		rmdir "$subsys/namespaces/1"
	fi
	rmdir "$subsys"
}

nvmet_remove_ports() {
	local port

	for port in 1 2 3; do
		[ ! -d $nvmet_cfg/ports/$port ] || rmdir $nvmet_cfg/ports/$port
	done
	[ ! -e /sys/class/infiniband/rxe_kvctx ] || rdma link del rxe_kvctx
	[ ! -e /sys/class/net/$nvmet_netdev ] || ip link del $nvmet_netdev
}

nvmet_remove_devices() {
	local item dev

	for item in "$nvmet_run"/file/*; do
		[ -e "$item" ] || continue
		dev=$(losetup --noheadings --output NAME --associated "$item")
		[ -z "$dev" ] || losetup --detach "$dev"
		rm "$item"
	done
	for item in "$nvmet_run"/null_blk/*; do
		[ -e "$item" ] || continue
		dev=$nvmet_null_cfg/${item##*/}
		[ ! -d "$dev" ] || { echo 0 > "$dev/power" && rmdir "$dev"; }
		rm "$item"
	done
}

nvmet_teardown() {
	local subsys name nqn

	# connections first, also those whose target is gone already
	for subsys in /sys/class/nvme/*/subsysnqn; do
		nqn=$(cat "$subsys" 2> /dev/null) || continue
		case $nqn in "$nvmet_prefix":*) nvmet_disconnect "${nqn#*:}" ;; esac
	done
	for subsys in "$nvmet_cfg"/subsystems/"$nvmet_prefix":*; do
		[ -d "$subsys" ] || continue
		name=${subsys##*/}
		nvmet_remove "${name#*:}"
	done
	nvmet_remove_ports
	nvmet_remove_devices
}

nvmet_unload() {
	local m

	nvmet_teardown || return
	for m in nvme_loop nvme_tcp nvme_rdma nvmet_tcp nvmet_rdma nvmet nvme_fabrics \
		rdma_rxe dummy null_blk loop; do
		[ ! -d /sys/module/$m/holders ] || modprobe -r $m || return
	done
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	case ${1-} in
		null_blk | file | ssd | target | connect | disconnect | remove | nqn | \
		address | find | teardown | unload)
			"nvmet_$1" "${@:2}" ;;
		*) sed -n '/^#   nvmet_/s/^# *nvmet_/nvmet.sh /p' "$0" >&2; exit 2 ;;
	esac
fi
