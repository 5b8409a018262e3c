# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# Kernel and initramfs images of a run (sourced by run).

# kernel_lines STORE SERIES: its line of the lists of kernels, of which what was put there later has others
kernel_lines() {
	awk -v s="$2" '$1 == s' "$1"/root/etc/kvctx/kernels*
}

# kernel_version STORE SERIES
kernel_version() { kernel_lines "$1" "$2" | cut -d' ' -f2; }

# kernel_image STORE VERSION: path inside the root
kernel_image() {
	local image=/boot/vmlinuz-$2

	[ -e "$1/root$image" ] || image=/usr/lib/modules/$2/vmlinuz
	printf '%s\n' "$image"
}

# Base images of other recipes that no run has used for an hour
remove_old_initramfs() {
	local old

	find "$1" -maxdepth 1 -name 'initramfs-*.cpio' -mmin +60 |
		while read -r old; do
			rm -rf "$old" "${old%.cpio}.tree"
		done
}

# base_initramfs STORE VERSION: make the base initramfs unless it is there; print
# its name without suffix.
base_initramfs() {
	local store=$1 base lock

	base=$store/initramfs-$2-$(recipe_hash initramfs)
	if [ ! -e "$base.cpio" ]; then
		exec {lock}> "$store/.initramfs.lock"
		flock "$lock"
		if [ ! -e "$base.cpio" ]; then
			say "making the base initramfs of $2"
			remove_old_initramfs "$store"
			"$vm_dir/inroot" --bind "$store" \
				"$vm_dir/recipe/initramfs/build.sh" "$2" "$base.new"
			mv "$base.new.tree" "$base.tree"
			mv "$base.new.cpio" "$base.cpio"
		fi
		exec {lock}>&-
	fi
	touch "$base.cpio"
	printf '%s\n' "$base"
}
