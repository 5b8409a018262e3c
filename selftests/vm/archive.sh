# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Packages of other suites and architectures, and of Ubuntu (sourced after lib.sh and apt.sh).
#
# apt fetches them, with directories of its own, so that this machine's sources stay as they are, and verifies them as it
# always does: Ubuntu's with the keys of Debian's package ubuntu-keyring. They are unpacked, not installed.

# of a kernel's modules what no test needs, and the larger part
drivers='*/modules/*/kernel'
without=(--exclude="$drivers/drivers/gpu" --exclude="$drivers/drivers/media" --exclude="$drivers/drivers/net/wireless"
	--exclude="$drivers/drivers/net/ethernet" --exclude="$drivers/sound" --exclude='./usr/share/doc')

# archive DIR ARCHITECTURE SOURCE-LINE: apt's directories below DIR, and the lists of that source
archive() {
	mkdir -p "$1/lists/partial" "$1/cache/archives/partial" || return
	echo "$3" > "$1/sources.list"
	apt_fetch_options > "$1/apt.conf"
	cat >> "$1/apt.conf" <<-CONF
		Dir::State "$1";
		Dir::State::status "/dev/null";
		Dir::Cache "$1/cache";
		Dir::Etc::sourcelist "$1/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		APT::Architecture "$2";
		APT::Architectures "$2";
		APT::Sandbox::User "root";
	CONF
	APT_CONFIG=$1/apt.conf apt-get -qq update
}

# debian_archive DIR ARCHITECTURE SUITE: of this machine's mirror
debian_archive() {
	local source

	apt_refresh_if_empty
	source=$(apt_sources "$3") && archive "$1" "$2" "$source"
}

# ubuntu_archive DIR ARCHITECTURE SUITE MIRROR
ubuntu_archive() {
	debian_archive "$1/keys" amd64 trixie && fetch "$1/keys" ubuntu-keyring && unpack "$1/keys" "$1/keyring" &&
		archive "$1" "$2" "deb [signed-by=$1/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg] $4 $3 main"
}

# names DIR PREFIX: of the packages that begin with it
names() { APT_CONFIG=$1/apt.conf apt-cache pkgnames "$2"; }

# fetch DIR PACKAGE...: into DIR/debs
fetch() {
	mkdir -p "$1/debs" && (cd "$1/debs" && APT_CONFIG=$1/apt.conf apt-get -qq download "${@:2}")
}

# unpack DIR TREE: what was fetched
unpack() {
	local deb

	mkdir -p "$2" || return
	for deb in "$1"/debs/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$2" "${without[@]}" || return
	done
}
