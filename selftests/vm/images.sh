# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# Kernel and initramfs images of a run (sourced by run).

# kernel_version STORE SERIES
kernel_version() {
	awk -v s="$2" '$1 == s { print $2 }' "$1/root/etc/kvctx/kernels"
}

# kernel_image STORE VERSION: path inside the root
kernel_image() {
	local image=/boot/vmlinuz-$2

	[ -e "$1/root$image" ] || image=/usr/lib/modules/$2/vmlinuz
	printf '%s\n' "$image"
}

# base_initramfs STORE VERSION: make the base initramfs unless it is there; print
# its name without suffix. Those of older recipes go.
base_initramfs() {
	local store=$1 base lock

	base=$store/initramfs-$2-$(recipe_hash initramfs)
	if [ ! -e "$base.cpio" ]; then
		exec {lock}> "$store/.initramfs.lock"
		flock "$lock"
		if [ ! -e "$base.cpio" ]; then
			say "making the base initramfs of $2"
			rm -rf "$store/initramfs-$2-"*
			"$vm_dir/inroot" --bind "$store" \
				"$vm_dir/recipe/initramfs/build.sh" "$2" "$base.new"
			mv "$base.new.tree" "$base.tree"
			mv "$base.new.cpio" "$base.cpio"
		fi
		exec {lock}>&-
	fi
	printf '%s\n' "$base"
}
