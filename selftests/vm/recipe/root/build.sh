#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Build the guest root with mmdebstrap.
# usage: build.sh ROOT SOURCES OPTIONS
#   ROOT     directory to create
#   SOURCES  file of one-line apt sources
#   OPTIONS  file of apt options
# Man pages, translations and the drivers of graphics, sound, wireless and media
# are left out: no test needs them and they are half of the size.
set -euo pipefail

here=$(cd -P "$(dirname "$0")" && pwd)
root=$1 sources=$2 options=$3
drivers='path-exclude=/usr/lib/modules/*/kernel'

# kernel packages must not try to build an initramfs or links in /
# shellcheck disable=SC2016 # $1 is expanded by the hook
quiet_kernels='mkdir -p "$1/etc/initramfs-tools" &&
	echo update_initramfs=no > "$1/etc/initramfs-tools/update-initramfs.conf" &&
	echo do_symlinks=no > "$1/etc/kernel-img.conf"'

packages=$(sed 's/#.*//' "$here/packages" | xargs | tr ' ' ',')

exec mmdebstrap --mode=root --variant=apt --format=directory \
	--aptopt="$options" \
	--aptopt='APT::Install-Recommends "false"' \
	--aptopt='Acquire::Languages "none"' \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt="$drivers/drivers/gpu/*" \
	--dpkgopt="$drivers/drivers/media/*" \
	--dpkgopt="$drivers/drivers/net/wireless/*" \
	--dpkgopt="$drivers/sound/*" \
	--dpkgopt=force-confold --dpkgopt=force-unsafe-io \
	--include="$packages" \
	--essential-hook="$quiet_kernels" \
	--customize-hook="$here/customize.sh" \
	trixie "$root" "$sources"
