#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# mmdebstrap's customize hook of the debug kernel: fetch the source, configure, build.
# usage: build.sh ROOT     (MMDEBSTRAP_APT_CONFIG is set by mmdebstrap)
# In the environment:
#   KVCTX_DEBUG_BASE     version of the kernel to be built, e.g. 7.2.12; its newest point release when it is gone
#   KVCTX_DEBUG_KIND     debug, or kcsan: config.kcsan over config
#   KVCTX_DEBUG_SUFFIX   what is appended to its version
#   KVCTX_DEBUG_OUT      directory outside of ROOT that gets version, modules/ (with vmlinuz) and headers/
#
# apt runs outside of the root, with the configuration mmdebstrap made; the compiler runs inside.
set -euo pipefail
trap 'echo "build.sh: failed at line $LINENO" >&2' ERR

here=$(cd -P "$(dirname "$0")" && pwd)
root=$1 out=$KVCTX_DEBUG_OUT
series=${KVCTX_DEBUG_BASE%.*}
package=linux-source-$series
src=$root/usr/src/linux
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG

say() { echo "kvctx: $*"; }

# The archive drops old point releases
source_version() {
	local versions base=${KVCTX_DEBUG_BASE//./\\.}

	versions=$(apt-cache madison "$package" | awk -F'|' '{ gsub(/ /, "", $2); print $2 }')
	[ -n "$versions" ] || { say "no $package in the archive" >&2; exit 1; }
	grep -m 1 -E "^$base-" <<< "$versions" || head -n 1 <<< "$versions"
}

fetch_source() {
	local version

	version=$(source_version)
	say "source $package $version"
	mkdir -p "$root/download" "$src"
	chmod 777 "$root/download"
	(cd "$root/download" && apt-get -q download "$package=$version")
	dpkg-deb --fsys-tarfile "$root/download/$package"_*.deb |
		tar -xO --wildcards "./usr/src/$package.tar.*" | xz -dcT0 |
		tar -x -C "$src" --strip-components=1
	rm -rf "$root/download"
}

inside() { chroot "$root" env -C /usr/src/linux "$@"; }

# Every line of ours holds, or a dependency is missing
compare_config() {
	local line name bad=0

	while read -r line; do
		case $line in
			CONFIG_*) grep -qxF "$line" "$src/.config" ;;
			'# CONFIG_'*' is not set')
				name=${line#\# }
				! grep -q "^${name%% *}=" "$src/.config" ;;
			*) true ;;
		esac || { bad=1; say "config does not hold: $line" >&2; }
	done < "$src/kvctx.config"
	return $bad
}

# Of two lines about the same the later one holds
configure() {
	local over=$here/config.$KVCTX_DEBUG_KIND

	[ -e "$over" ] || over=/dev/null
	tac "$over" "$here/config" | awk 'match($0, /CONFIG_[A-Z0-9_]+/) && !seen[substr($0, RSTART, RLENGTH)]++' \
		> "$src/kvctx.config"
	echo "CONFIG_LOCALVERSION=\"$KVCTX_DEBUG_SUFFIX\"" >> "$src/kvctx.config"
	inside make -s tinyconfig
	inside scripts/kconfig/merge_config.sh -m .config kvctx.config > "$src/merge.log"
	inside make -s olddefconfig
	compare_config
}

# The kernel's own races are not ours: KCSAN watches what modules are built later
build() {
	inside make -s -j"$(nproc)" KCSAN_SANITIZE=n bzImage modules
}

# What the guest needs, and what modules are built against
take_results() {
	local version

	version=$(inside make -s kernelrelease)
	mkdir -p "$out"
	inside make -s INSTALL_MOD_PATH=/result INSTALL_MOD_STRIP=1 modules_install
	rm -f "$root/result/lib/modules/$version"/{build,source}
	mv "$root/result/lib/modules/$version" "$out/modules"
	cp "$src/arch/x86/boot/bzImage" "$out/modules/vmlinuz"
	inside make -s run-command \
		KBUILD_RUN_COMMAND="scripts/package/install-extmod-build /result/headers"
	mv "$root/result/headers" "$out/headers"
	echo "$version" > "$out/version"
}

fetch_source
say "configuring"
configure
say "building (about 20 minutes of CPU time)"
build
say "taking the results"
take_results
