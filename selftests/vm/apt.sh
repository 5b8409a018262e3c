# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the machine's own apt configuration says about where Debian packages
# come from (sourced by setup). Nothing here names a host: the mirrors are those
# from which this machine already takes its packages, and every option that
# concerns fetching them (proxies, certificates, date checks, retries) is
# handed on as it is.

# mirror_of LABEL: base address of the first archive with that Release label.
# Both one-line and deb822 sources appear here, with variables expanded.
mirror_of() {
	# shellcheck disable=SC2016 # apt's own placeholders
	apt-get indextargets --format '$(LABEL)|$(COMPONENT)|$(REPO_URI)' \
		'Created-By: Packages' 2>/dev/null |
		awk -F'|' -v want="$1" '$1 == want && $2 == "main" &&
			$3 !~ /^cdrom:/ { sub("/$", "", $3); print $3; exit }'
}

# Lists are needed to know the labels; a fresh image has none.
apt_refresh_if_empty() {
	[ -n "$(mirror_of Debian)" ] && return
	say "reading the package lists (apt-get update)"
	apt-get -qq update || die "apt-get update failed"
}

# apt_sources SUITE...: one-line sources for the suites, on this machine's mirrors.
# A machine without a mirror of the security archive gets none inside either.
apt_sources() {
	local main security suite base
	local key=/usr/share/keyrings/debian-archive-keyring.gpg

	main=${KVCTX_MIRROR:-$(mirror_of Debian)}
	security=${KVCTX_SECURITY_MIRROR:-$(mirror_of Debian-Security)}
	[ -n "$main" ] || die "apt knows no Debian archive on this machine:" \
		"set KVCTX_MIRROR (and KVCTX_SECURITY_MIRROR) to its address"
	for suite; do
		base=$main
		case $suite in *-security) base=$security ;; esac
		[ -z "$base" ] || echo "deb [signed-by=$key] $base $suite main"
	done
}

# The fetch options in apt.conf syntax.
apt_fetch_options() {
	apt-config dump | grep -E '^Acquire::((http|https|ftp|tor)\b|Check-|Max-|Min-|Retries|Force|Proxy|Queue|Send-URI|AllowInsecure|AllowWeak)' || :
}

# host_packages FILE: install those of its packages that this host lacks.
host_packages() {
	local missing=() p

	while read -r p _; do
		case $p in '' | '#'*) continue ;; esac
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
			grep -q '^install ok installed$' || missing+=("$p")
	done < "$1"
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing on this host: ${missing[*]}"
	install_quietly "${missing[@]}" && return
	say "refreshing the package lists and trying again"
	apt-get -qq update || die "apt-get update failed"
	install_quietly "${missing[@]}" || die "could not install ${missing[*]}"
}

install_quietly() {
	local log

	log=$(mktemp)
	if DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
		--no-install-recommends install "$@" > "$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	tail -5 "$log" >&2
	rm -f "$log"
	return 1
}
