#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Peer-to-peer DMA in the machine that p2p-boot makes: a stand-in for a GPU and three SSDs below one PCIe switch, one of
# them (p2p1) with a controller memory buffer, one (p2p2) slow; another SSD (kvctx0) beside the switch,
# and a fifth (p2p3) with a controller below and one beside it: native multipath.
#
#   p2p.sh MODEL     MODEL: the emulated processor
#
# On a kernel without peer-to-peer DMA: that it is refused.
# shellcheck disable=SC2016 # for eval
. "$(dirname "$0")/lib.sh"
# shellcheck source=selftests/kvctx/grow.sh
. "$here/grow.sh"

model=${1?}
export KVCTX_PEER KVCTX_PEER_NAME KVCTX_PATHS

# find_peer: the stand-in's PCI name
find_peer() {
	grep -lx 0x1110 /sys/bus/pci/devices/*/device | head -n 1 | cut -d/ -f6
}

# controller SERIAL: PCI name of an NVMe controller
controller() {
	local c

	for c in /sys/class/nvme/*; do
		[ "$(tr -d ' ' < "$c/serial")" = "$1" ] && cat "$c/address"
	done
}

# paths_of DEVICE: how many a multipath head has; nvme0c1n1 is one of nvme0n1
paths_of() {
	find /sys/class/nvme/nvme*/ -maxdepth 1 -name "$(basename "$1" | sed -E 's/n([0-9]+)$/c*n\1/')" | wc -l
}

# peer_is PCI-NAME
peer_is() {
	KVCTX_PEER_NAME=$1
	KVCTX_PEER=/sys/bus/pci/devices/$1/p2pmem/allocate
}

# pool DEVICE... [--segment-size SIZE]: format and attach pool t
pool() {
	local segment=16M

	case $* in *--segment-size*) segment=${!#}; set -- "${@:1:$#-2}" ;; esac

	[ ! -e /dev/kvctx/t ] || until_true 30 kvctxctl pool detach t || return
	kvctxctl pool format t "$@" --force --segment-size "$segment" && kvctxctl pool attach "$@"
}

# gone_while MODE NR COMMAND...: NR processes "peers MODE" transfer while the command takes the peer's driver away
gone_while() {
	local i mode=$1 nr=$2 pids=() failed=0 start

	shift 2
	rm -f /tmp/busy.*
	for ((i = 0; i < nr; i++)); do
		peers "$mode" > /tmp/busy.$i 2>&1 &
		pids+=($!)
	done
	for ((i = 0; i < nr; i++)); do
		until_true 120 grep -q '^busy' /tmp/busy.$i || { echo "$mode does not begin"; failed=1; }
	done
	start=$EPOCHREALTIME
	"$@" &
	until_true 20 eval "! kill -0 $!" || { echo "the driver does not come loose"; failed=1; }
	echo "# $* took $(((${EPOCHREALTIME/./} - ${start/./}) / 1000)) ms" | tee -a /tmp/times
	until_true 20 eval "! kill -0 ${pids[*]}" || { kill -9 "${pids[@]}"; failed=1; }
	for i in "${pids[@]}"; do
		wait "$i" || failed=1
	done
	cat /tmp/busy.*
	return $failed
}

unbind() {
	echo "$KVCTX_PEER_NAME" > "/sys/bus/pci/devices/$KVCTX_PEER_NAME/driver/unbind"
}

bind() {
	echo "$KVCTX_PEER_NAME" > "/sys/bus/pci/drivers/$1/bind" && until_true 60 test -e "$KVCTX_PEER"
}

# stuck WHAT PID...: what keeps these, and the first is killed
stuck() {
	local pid

	echo "$1 hangs"
	for pid in "${@:2}"; do
		cat "/proc/$pid/stack"
	done
	kill -9 "$2"
}

# register_late: while the driver leaves, and cannot before who has its memory mapped lets go of it
register_late() {
	local late driver failed=0

	peers late > /tmp/late 2>&1 & late=$!
	until_true 60 grep -q '^busy' /tmp/late || failed=1
	echo Y > /sys/module/kvctx_peer/parameters/linger
	unbind & driver=$!
	until_true 20 eval "! kill -0 $late" || { stuck "who registers" $late $driver; failed=1; }
	echo N > /sys/module/kvctx_peer/parameters/linger
	wait $late || failed=1
	until_true 20 eval "! kill -0 $driver" || { stuck "the driver" $driver; failed=1; }
	cat /tmp/late
	bind kvctx_peer && return $failed
}

# come_and_go: while others register its memory
come_and_go() {
	local i pid

	peers churn 5 > /tmp/churn 2>&1 & pid=$!
	for i in 1 2 3 4 5 6; do
		sleep 0.$((i * 7 % 10))
		unbind & until_true 20 eval "! kill -0 $!" || { stuck "round $i" $pid $!; return 1; }
		bind kvctx_peer || return
	done
	wait $pid || { cat /tmp/churn; return 1; }
	cat /tmp/churn
}

remove_device() {
	echo 1 > "/sys/bus/pci/devices/$KVCTX_PEER_NAME/remove"
}

rescan() {
	echo 1 > /sys/bus/pci/rescan && until_true 60 test -e "$KVCTX_PEER"
}

# while_they_wait FUNCTION VARIABLE: while stores from the peer wait for space on member 0, member 1 returns as the device
# that VARIABLE has once FUNCTION was called
while_they_wait() {
	local many failed=0

	peers many > /tmp/many 2>&1 & many=$!
	until_true 60 grep -q '^busy' /tmp/many || failed=1
	[ "$(bytes_on 1)" = 0 ] || { echo "member 1 took some before"; failed=1; }
	"$1" && kvctxctl pool rejoin t "${!2}" && kill -0 $many || failed=1
	until_true 120 eval "! kill -0 $many" || { kill -9 $many; failed=1; }
	wait $many || failed=1
	cat /tmp/many
	echo "$(bytes_on 1) bytes are on member 1"
	return $failed
}

# By way of NVMe/TCP it takes no peer memory
export_twin() { nvmet_target tcp twin "$cmb" && twin=$(nvmet_connect tcp twin) && test -b "$twin"; }
twin_fails() { nvmet_remove twin && until_true 60 state_is 1 failed; }

cmb_fails() { echo "$cmb_at" > /sys/bus/pci/drivers/nvme/unbind && until_true 60 state_is 1 failed; }
cmb_as_twin() {
	echo "$cmb_at" > /sys/bus/pci/drivers/nvme/bind && until_true 60 eval 'cmb=$(nvmet_ssd p2p1)' && export_twin
}

modprobe -a kvctx nvme
peer=$(find_peer)
ssd=$(nvmet_ssd p2p0)
cmb=$(nvmet_ssd p2p1) cmb_at=$(controller p2p1)
slow=$(nvmet_ssd p2p2)
beside=$(nvmet_ssd kvctx0)
twice=$(nvmet_ssd p2p3)
check "there is a peer, there are SSDs" test -n "$peer" -a -b "$ssd" -a -b "$cmb" -a \
	-b "$slow" -a -b "$beside" -a -b "$twice"
check "one SSD has two paths" test "$(paths_of "$twice")" = 2
modprobe kvctx_peer
check "memory of a device that nobody can pin is refused" eval 'pool "$ssd" &&
	peers refused "/sys/bus/pci/devices/$peer/resource2"'

if [ ! -e "/sys/bus/pci/devices/$peer/p2pmem" ]; then
	check "this kernel has no peer-to-peer DMA" bash -c '! grep -q pci_p2pdma_add_resource /proc/kallsyms'
	check "and pool show, too" prints 'peer memory: this kernel has no PCI peer-to-peer DMA' kvctxctl pool show t
	check "and INFO says so" prints 'p2p: 0' peers refused "/sys/bus/pci/devices/$peer/resource2"
	until_true 30 kvctxctl pool detach t
	finish
	exit
fi

peer_is "$peer"
far=0
[ "$model" = EPYC ] || far=2	# no route
null=$(nvmet_null_blk peer0 256)
backing=$(nvmet_null_blk peer1 256)
tcp=$(nvmet_target tcp peer "$backing" && nvmet_connect tcp peer)

check "a pool of all kinds of members" pool "$ssd" "$beside" "$null" "$tcp" "$twice"
show=$(kvctxctl pool show t)
echo "$show" | sed 's/^/# /'
route='[0-9]+'
[ $far = 0 ] || route='no route'
head=$route far_head=$far
# what multipath makes of two paths takes no peer memory in Linux 7.0; in 7.2 it does
printf '%s\n' 7.2 "$(uname -r)" | sort -VC || { head='no queue' far_head=1; }
check "pool show has the matrix of paths" grep -qE "^$peer +[1-9][0-9]* +$route +no queue +no queue +$head\$" <<< "$show"
check "and why members take no peer memory" grep -qx "${tcp#/dev/}: NVMe/TCP takes no peer memory" <<< "$show"
check "for a null_blk device as well" grep -qx "${null#/dev/}: takes no peer memory" <<< "$show"
[ $far = 0 ] ||
	check "and which have no switch in common" grep -qx "$peer: no common switch with ${beside#/dev/}" <<< "$show"
KVCTX_PATHS="0 $far 1 1 $far_head"
kind=$model
program p2p
if [ $far != 0 ]; then
	until_true 30 kvctxctl pool detach t
	nvmet_teardown
	finish
	exit
fi
check "unbinding while DMA runs" gone_while busy 3 unbind
check "the driver comes back" bind kvctx_peer

check "a pool below the switch" pool "$ssd" "$cmb"
KVCTX_PATHS="0 0"
before=$(stat_of bounced_blocks)
kind="below the switch"
program p2p -r p2p.many_at_once -r p2p.members_without_a_path -r p2p.store_without_crcs
check "no block was bounced" test "$(stat_of bounced_blocks)" = "$before"
check "unloading the driver while DMA runs" gone_while busy 3 modprobe -r kvctx_peer
modprobe kvctx_peer
check "the device goes while DMA runs" gone_while busy 3 remove_device
check "and comes back" rescan
check "peer memory works again" p2p -r p2p.many_at_once

check "pages without CRCs, in use, survive reclaim" eval 'pool "$ssd" && peers hot'
check "they were moved, $(stat_of moved_pages) times" test "$(stat_of moved_pages)" -ge 16
check "and not found bad" test "$(stat_of bad_pages)" = 0
check "a tenant that requires verified pages" eval 'peers unchecked &&
	kvctxctl tenant set t default --require-verified && peers strict &&
	kvctxctl tenant set t default --allow-unverified'
check "registering while the driver leaves, and waits for who registers" register_late
check "registering while the driver comes and goes" come_and_go
check "stores that wait for space when the driver leaves" eval 'pool "$slow" --segment-size 256K &&
	gone_while wait 1 unbind'
check "and the driver comes back" bind kvctx_peer

check "a pool of a slow member and one by way of NVMe/TCP" eval 'export_twin &&
	pool "$slow" "$twin" --segment-size 256K'
check "it returns as a device that takes peer memory" while_they_wait twin_fails cmb
check "stores that waited are on it" test "$(bytes_on 1)" -gt 1000000
check "a pool whose other member is lost" eval 'pool "$slow" "$cmb" --segment-size 256K && cmb_fails'
check "it returns as a device that takes none" while_they_wait cmb_as_twin twin
check "no store that waited is on it" test "$(bytes_on 1)" = 0
check "the pool goes" eval 'until_true 30 kvctxctl pool detach t && nvmet_remove twin'

peer_is "$(controller p2p1)"
check "a pool beside the controller memory buffer" pool "$ssd"
KVCTX_PATHS=0
# shellcheck disable=SC2034 # for program
kind="controller memory buffer"
program p2p
check "unbinding the buffer's driver while DMA runs" gone_while busy 3 unbind
check "and again with its SSD a member" eval 'bind nvme && cmb=$(nvmet_ssd p2p1) && pool "$ssd" "$cmb" &&
	gone_while busy 3 unbind'

peer_is "$peer"
check "a pool for a look from outside" pool "$ssd"
outside=$(peers leave 77 1048576 /tmp/left)
check "a page lies in the peer's memory" test -n "$outside"
echo "@bar $outside $(sha256sum < /tmp/left | cut -d' ' -f1)"

check "detach" until_true 30 kvctxctl pool detach t
cat /tmp/times
check "unload" until_true 60 kvctxctl unload
nvmet_teardown
finish
