#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The device-mapper device "slow", which test programs make stuck, slow or broken.
#
#   slow.sh create DEVICE     over DEVICE; prints its path
#   slow.sh stuck | resume    hold back every transfer | let go
#   slow.sh delay MS          each transfer takes that long; 0: none
#   slow.sh error             every transfer fails
#   slow.sh reads             how many were read so far
#   slow.sh delayed           how many reads a delay holds back now
#   slow.sh remove
set -eu

# table TARGET...: another table, at once
table() {
	local sectors

	sectors=$(dmsetup table slow | cut -d' ' -f2)
	dmsetup suspend --noflush slow
	dmsetup load slow --table "0 $sectors $*"
	dmsetup resume slow
}

backing() { cat /run/slow.backing; }

case $1 in
	create)
		modprobe -a dm-mod dm-delay
		echo "$2" > /run/slow.backing
		dmsetup create slow --table "0 $(cat "/sys/class/block/${2##*/}/size") linear $2 0"
		[ -b /dev/mapper/slow ] || dmsetup mknodes
		echo /dev/mapper/slow
		;;
	stuck) dmsetup suspend --noflush slow ;;
	resume) dmsetup resume slow ;;
	delay)
		if [ "$2" = 0 ]; then
			table linear "$(backing)" 0
		else
			table delay "$(backing)" 0 "$2"
		fi
		;;
	error) table error ;;
	reads)
		dm=$(dmsetup info -c --noheadings --separator : -o major,minor slow)
		awk '{ print $1 }' "/sys/dev/block/$dm/stat"
		;;
	delayed) dmsetup status slow | awk '{ print $4 }' ;;
	remove) dmsetup remove slow ;;
esac
