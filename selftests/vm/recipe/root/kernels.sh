# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# Install the newest point release of each supported kernel with its headers
# (sourced by customize.sh) and record it in /etc/kvctx/kernels:
#   SERIES FULL-VERSION HEADERS-DIRECTORY
#
# Versions are looked up, never fixed: the archive drops old point releases.
# 6.12 comes as one linux-image package; from 7.2 on Debian splits it into
# linux-binary (vmlinuz) and linux-modules, and only these install on trixie.

# newest_version PREFIX SERIES: newest version that has package PREFIX-VERSION.
newest_version() {
	apt-cache pkgnames "$1-$2." | sed -n "s/^$1-//p" |
		grep -E "^${2//./\\.}\.[0-9]+\+deb13-amd64\$" | sort -V | tail -1
}

install_kernel() {
	local series=$1 image=$2 version

	shift
	version=$(newest_version "$image" "$series")
	[ -n "$version" ] || { say "no $image-$series.* in the archive"; exit 1; }
	say "kernel $version"
	apt_install "${@/%/-$version}" "linux-headers-$version"
	chroot "$root" depmod "$version"
	echo "$series $version /usr/src/linux-headers-$version" \
		>> "$root/etc/kvctx/kernels"
}

mkdir -p "$root/etc/kvctx"
: > "$root/etc/kvctx/kernels"
install_kernel 6.12 linux-image
install_kernel 7.2 linux-binary linux-modules
