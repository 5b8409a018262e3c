# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154,SC2016
#
# A small fio (sourced by customize.sh). Debian's own depends on 40 MB of
# network storage clients, so it is built from Debian's source without them.
# The source of trixie's version is missing from the archive at times; the first
# release that has one is taken. The built tree's headers stay in
# /usr/local/src/fio, because an external engine must match the fio it is
# loaded into.

for suite in bookworm trixie forky; do
	add_suite deb-src "$suite" || { drop_suite "$suite"; continue; }
	(cd "$work" && apt-get -q source --tar-only fio) && found=1 || found=
	drop_suite "$suite"
	[ -z "$found" ] || break
done
tarball=$(find "$work" -maxdepth 1 -name 'fio_*.orig.tar.*' | head -1)
[ -n "$tarball" ] || { say "no source of fio in the archive"; exit 1; }

fio_src=$root/usr/local/src/fio
mkdir -p "$fio_src"
tar -x -f "$tarball" -C "$fio_src" --strip-components=1
say "building $(basename "$tarball")"
chroot "$root" sh -ec 'cd /usr/local/src/fio
	./configure --disable-native --disable-rdma --disable-rados --disable-rbd \
		--disable-http --disable-gfapi --disable-pmem > configure.log
	make -j"$(nproc)" fio > build.log
	strip -o /usr/local/bin/fio fio
	find . -type f ! -name "*.h" ! -name FIO-VERSION-FILE -delete
	find . -type d -empty -delete'
chroot "$root" fio --version
