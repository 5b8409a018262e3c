# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# The few files of the kernel source that the project uses but no binary package
# holds (sourced by customize.sh): the kselftest headers, checkpatch and
# kernel-doc. They are read out of the tarball in linux-source.

(cd "$work" && apt-get -q download linux-source-6.12)
mkdir -p "$work/source"
dpkg-deb --fsys-tarfile "$work"/linux-source-6.12_*.deb |
	tar -xO --wildcards './usr/src/linux-source-6.12.tar.*' |
	xz -dcT0 |
	tar -x -C "$work/source" --strip-components=1 --wildcards \
		'*/tools/testing/selftests/kselftest.h' \
		'*/tools/testing/selftests/kselftest_harness.h' \
		'*/scripts/checkpatch.pl' \
		'*/scripts/spelling.txt' \
		'*/scripts/const_structs.checkpatch' \
		'*/scripts/kernel-doc'

install -D -m 644 -t "$root/usr/local/include/kselftest" \
	"$work"/source/tools/testing/selftests/kselftest*.h
install -D -m 755 -t "$root/usr/local/share/kvctx/checkpatch" \
	"$work"/source/scripts/{checkpatch.pl,kernel-doc}
install -D -m 644 -t "$root/usr/local/share/kvctx/checkpatch" \
	"$work"/source/scripts/{spelling.txt,const_structs.checkpatch}
