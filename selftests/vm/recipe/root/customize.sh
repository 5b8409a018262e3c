#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# mmdebstrap's customize hook: what plain packages of one release cannot give.
# usage: customize.sh ROOT     (MMDEBSTRAP_APT_CONFIG is set by mmdebstrap)
#
# apt runs outside the root, with the configuration mmdebstrap made, so that
# proxies and certificates of the host keep working; dpkg runs inside.
set -euo pipefail

here=$(cd -P "$(dirname "$0")" && pwd)
root=$1
work=$root/tmp/kvctx
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG DEBIAN_FRONTEND=noninteractive INITRD=No

say() { echo "kvctx: $*"; }

apt_install() {
	apt-get -q -y -o Dir::Bin::dpkg=env -o DPkg::Options::=--unset=TMPDIR \
		-o DPkg::Options::=dpkg -o DPkg::Chroot-Directory="$root" install "$@"
}

# add_suite TYPE SUITE: make another release known, never preferred.
add_suite() {
	grep -rh '^deb .* trixie main$' "$root/etc/apt" |
		sed "1!d; s/^deb \(.*\) trixie main/$1 \1 $2 main/" \
			> "$root/etc/apt/sources.list.d/$2.list"
	printf 'Package: *\nPin: release n=%s\nPin-Priority: 1\n' "$2" \
		> "$root/etc/apt/preferences.d/$2"
	apt-get -q update
}

drop_suite() {
	rm -f "$root/etc/apt/sources.list.d/$1.list" "$root/etc/apt/preferences.d/$1"
}

mkdir -p "$work"
# apt drops to its own user for downloads when it can
chmod 777 "$work"

for step in kernels sparse source-files fio; do
	say "step $step"
	# shellcheck source=/dev/null
	. "$here/$step.sh"
done

rm -rf "$work"
