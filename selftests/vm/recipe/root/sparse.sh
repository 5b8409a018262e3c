# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# A sparse that really checks on every kernel (sourced by customize.sh).
#
# trixie's sparse 0.6.4 cannot parse headers of Linux 7.x, so a newer one is
# unpacked, not installed. And Debian's headers from 7.2 on lack the script
# with which kbuild asks whether sparse works; without it C=1 and C=2 check
# nothing and say so only in a warning.

add_suite deb forky
(cd "$work" && apt-get -q download sparse/forky)
mkdir -p "$work/sparse"
dpkg-deb -x "$work"/sparse_*.deb "$work/sparse"
install -m 755 -t "$root/usr/local/bin" \
	"$work/sparse/usr/bin/sparse" "$work/sparse/usr/bin/cgcc"
drop_suite forky

for common in "$root"/usr/src/linux-headers-*-common; do
	valid=$common/scripts/checker-valid.sh
	[ ! -e "$valid" ] || continue
	mkdir -p "${valid%/*}"
	# shellcheck disable=SC2016 # written as it stands
	printf '#!/bin/sh\ncommand -v "$1" > /dev/null && echo 1\n' > "$valid"
	chmod 755 "$valid"
done
