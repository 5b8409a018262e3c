#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Make the initramfs of one run: the base and, appended to it, what the build has
# produced for the guest; runs inside the guest root.
# usage: overlay.sh BASE VERSION REPO BUILD COMMAND OUT
#   BASE     as made by build.sh (BASE.cpio and BASE.tree)
#   COMMAND  file with the script to run in the guest
# A product that has not been built is left out.
set -euo pipefail
shopt -s nullglob
trap 'echo "overlay.sh: failed at line $LINENO" >&2' ERR

base=$1 version=$2 repo=$3 build=$4 command=$5 out=$6
tree=$out.tree
mods=$tree/usr/lib/modules/$version
rm -rf "$tree"
mkdir -p "$tree/usr/bin" "$tree/usr/lib" "$tree/kvctx/selftests/vm"

# copy_into DIR FILE...: nothing to do without files; DIR is made
copy_into() {
	local dir=$1

	shift
	[ $# -gt 0 ] || return 0
	mkdir -p "$dir"
	cp -a "$@" "$dir/"
}

put_products() {
	copy_into "$tree/usr/bin" "$build"/bin/*
	copy_into "$tree/usr/lib" "$build"/lib/*.so*
	copy_into "$tree/kvctx/selftests" "$build"/selftests/*
	copy_into "$tree/kvctx/selftests/vm" "$repo/selftests/vm/guest"
	put_scripts
	install -m 755 "$command" "$tree/kvctx/command"
}

# What these folders hold beside sources: scripts and their data
put_scripts() {
	local f

	cd "$repo"
	find README.md selftests/kvctx selftests/bench selftests/fuzz tools/fio/examples libkvctx/python -type f ! -name '*.[cho]' ! -name '*.mk' \
			! -name '*.pyc' |
		while read -r f; do
			mkdir -p "$(dirname "$tree/kvctx/$f")"
			cp -a "$f" "$tree/kvctx/$f"
		done
	cd - > /dev/null
}

# Shared libraries that our programs need and the base does not have
put_libraries() {
	local lib programs

	programs=$(find "$tree" -type f -perm /111 -size +4k)
	[ -n "$programs" ] || return 0
	# Scripts among the programs make ldd fail and need no library: what it
	# prints is enough.
	# shellcheck disable=SC2086 # one argument a program
	{ LD_LIBRARY_PATH="$build/lib" ldd $programs 2> /dev/null || :; } |
		sed -nE 's/.*[[:space:]](\/[^ ]*\.so[^ ]*).*/\1/p' | sort -u |
		while read -r lib; do
			case $lib in
				"$build"/*) continue ;;
				# a directory here would replace the base's link /lib -> usr/lib
				/lib*) lib=/usr$lib ;;
			esac
			[ -e "$base.tree$lib" ] || install -D -m 755 "$lib" "$tree/usr${lib#/usr}"
		done
}

# A module of ours may need one of the kernel's that the base lacks
put_dependencies() {
	local dep

	for dep in $(modinfo -F depends "$1" | tr ',' ' '); do
		modprobe -S "$version" --show-depends "$dep" 2> /dev/null || :
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		while read -r dep; do
			to=kernel/${dep#*/kernel/}
			to=${to%.xz}
			[ ! -e "$base.tree/usr/lib/modules/$version/$to" ] || continue
			mkdir -p "$mods/${to%/*}"
			xz -dcf "$dep" > "$mods/$to"
		done
}

# depmod wants to see every module, so it works on the base's tree, copied
put_modules() {
	local all=$out.mods ko found=

	for ko in "$build/kmod/$version"/*.ko; do
		found=yes
		mkdir -p "$mods/updates"
		cp "$ko" "$mods/updates/"
		put_dependencies "$ko"
	done
	[ -n "$found" ] || return 0
	rm -rf "$all"
	mkdir -p "$all/usr/lib/modules"
	ln -s usr/lib "$all/lib"
	cp -a "$base.tree/usr/lib/modules/$version" "$all/usr/lib/modules/"
	cp -a "$mods/." "$all/usr/lib/modules/$version/"
	depmod -b "$all" "$version"
	cp "$all/usr/lib/modules/$version"/modules.* "$mods/"
	rm -rf "$all"
}

# What debuggers want is most of it, and nobody has one there: less to unpack at each boot, and to read at each modprobe.
# Only ours: modules of the kernel's would lose their signatures.
strip_products() {
	local f magic

	{ find "$tree"/usr/bin "$tree"/usr/lib/*.so* "$tree"/kvctx/selftests "$mods"/updates -type f -size +4k 2> /dev/null || :; } |
		while read -r f; do
			read -r -n 4 magic < "$f" 2> /dev/null || :
			[ "$magic" != $'\177ELF' ] || strip -g "$f"
		done
}

put_products
put_libraries
put_modules
strip_products
{
	cat "$base.cpio"
	(cd "$tree" && find . -mindepth 1 | sort | cpio -o -H newc --quiet)
} > "$out"
rm -rf "$tree"
