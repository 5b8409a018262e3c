# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Paths and small helpers shared by the scripts of selftests/vm (sourced).
#
# Vocabulary:
#   recipe  the files under recipe/root (or recipe/initramfs); their hash names
#           what is built from them
#   root    the Debian tree in which everything for the guest is built, and in
#           which QEMU runs; read-only for its users
#   store   the cache directory of one root: root/ itself, and beside it the
#           initramfs images and the accelerator that worked

vm_dir=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # used by those who source this
repo=$(cd -P "$vm_dir/../.." && pwd)
vm_prog=${0##*/}
# root's PATH lacks these when it comes from an unprivileged user's
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "vm/$vm_prog: $*" >&2; }

# die [-STATUS] MESSAGE...
die() {
	local status=1

	if [[ ${1-} =~ ^-[0-9]+$ ]]; then
		status=${1#-}
		shift
	fi
	say "$@"
	exit "$status"
}

need_root() {
	[ "$(id -u)" = 0 ] || die "needs to run as root"
}

# recipe_hash DIR: twelve digits that change with any file of the recipe.
recipe_hash() {
	(cd "$vm_dir/recipe/$1" && find . -type f -print0 | sort -z |
		xargs -0 sha256sum) | sha256sum | cut -c1-12
}

cache_dir() {
	printf '%s\n' "${KVCTX_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kvctx}"
}

store_dir() {
	printf '%s/rootfs-%s\n' "$(cache_dir)" "$(recipe_hash root)"
}

# Print the store of the current recipe; fail when it has not been built.
# Touching it tells the setup that this store is still in use.
need_store() {
	local store

	store=$(store_dir)
	[ -d "$store/root" ] ||
		die "no guest root file system in $store: run 'make setup' first"
	touch "$store"
	printf '%s\n' "$store"
}
