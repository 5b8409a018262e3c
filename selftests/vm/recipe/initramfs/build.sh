#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Make the base initramfs of one kernel; runs inside the guest root.
# usage: build.sh KERNEL-VERSION OUT
# Leaves OUT.cpio (uncompressed: unpacking it in the guest must be cheap) and
# OUT.tree, the same files on disk, which overlay.sh compares against.
#
# Modules are unpacked and stripped here, once: an emulated CPU takes seconds
# for that. The kernel runs /sbin/modprobe by itself to load what a module asks
# for, so kmod's own is there rather than busybox's applet.
set -euo pipefail
trap 'echo "build.sh: failed at line $LINENO" >&2' ERR

here=$(cd -P "$(dirname "$0")" && pwd)
version=$1 out=$2
tree=$out.tree
mods=$tree/usr/lib/modules/$version

list() { sed 's/#.*//' "$here/$1" | xargs -n1; }

make_skeleton() {
	local d applet

	rm -rf "$tree"
	mkdir -p "$tree"/usr/{bin,lib,lib64} "$tree"/{proc,sys,dev,tmp,run,root,kvctx} \
		"$tree"/mnt/{host,rootfs} "$tree/etc/nvme" "$tree/etc/modprobe.d"
	ln -s bin "$tree/usr/sbin"
	for d in bin sbin lib lib64; do
		ln -s "usr/$d" "$tree/$d"
	done
	for applet in $(busybox --list); do
		ln -s busybox "$tree/usr/bin/$applet"
	done
	cp --remove-destination /usr/bin/busybox "$tree/usr/bin/"
	printf '%s\n' root:x:0:0:root:/root:/bin/bash \
		nobody:x:65534:65534:nobody:/tmp:/bin/sh > "$tree/etc/passwd"
	printf '%s\n' root:x:0: nogroup:x:65534: > "$tree/etc/group"
	echo '127.0.0.1 localhost kvctx-guest' > "$tree/etc/hosts"
	install -m 755 "$here/init" "$tree/init"
}

# put_libraries FILE...: the shared libraries these need, at their own paths
put_libraries() {
	local lib

	ldd "$@" 2> /dev/null | grep -oE '/[^ ]*\.so[^ ]*' | sort -u |
		while read -r lib; do
			install -D -m 755 "$lib" "$tree$lib"
		done
}

put_programs() {
	local p path paths=()

	for p in $(list programs); do
		path=$(command -v "$p") || { echo "no program $p in the root" >&2; exit 1; }
		rm -f "$tree/usr/bin/$p"
		cp -L "$path" "$tree/usr/bin/$p"
		paths+=("$path")
	done
	put_libraries "${paths[@]}"
}

put_module() {
	local to=$mods/${1#*/modules/"$version"/}

	to=${to%.xz}
	to=${to%.zst}
	mkdir -p "${to%/*}"
	case $1 in
		*.xz) xz -dc "$1" > "$to" ;;
		*.zst) zstd -qdc "$1" > "$to" ;;
		*) cp "$1" "$to" ;;
	esac
	strip --strip-debug "$to"
}

put_modules() {
	local m path

	mkdir -p "$mods"
	for m in $(list modules); do
		modprobe -S "$version" --show-depends "$m" 2> /dev/null || :
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		while read -r path; do
			put_module "$path"
		done
	cp "/usr/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$mods/"
	depmod -b "$tree" "$version"
}

make_skeleton
put_programs
put_modules
(cd "$tree" && find . | sort | cpio -o -H newc --quiet) > "$out.cpio"
