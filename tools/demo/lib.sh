# SPDX-License-Identifier: GPL-2.0
#
# What the demonstrations share: the requests to replay, how much room their pages need, and whether the two reports are
# what they have to be. Sourced, in the top folder, by a script that sets $name and defines usage().

kernel=7.2 trace='' requests=400 page_size=256K

die() { echo "$name: $*" >&2; exit 1; }
say() { printf '\n== %s\n' "$*"; }

# Options, in the variables above; $bytes is the page size as a number
demo_options() {
	while [ $# -gt 0 ]; do
		case $1 in
			--kernel) kernel=${2?}; shift 2 ;;
			--trace) trace=${2?}; shift 2 ;;
			--requests) requests=${2?}; shift 2 ;;
			--page-size) page_size=${2?}; shift 2 ;;
			-h | --help) usage; exit ;;
			*) usage >&2; exit 2 ;;
		esac
	done
	[[ $requests =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
	[[ $page_size =~ ^([1-9][0-9]*)([KM]?)$ ]] || { usage >&2; exit 2; }
	bytes=${BASH_REMATCH[1]}
	case ${BASH_REMATCH[2]} in K) bytes=$((bytes << 10)) ;; M) bytes=$((bytes << 20)) ;; esac
	[ -z "$trace" ] || [ -r "$trace" ] || die "cannot read $trace"
}

# $1/trace.jsonl: the first requests of $trace, or generated ones. $2...: how to call kvctx-replay
demo_trace() {
	local out=$1
	shift
	if [ -n "$trace" ]; then
		head -n "$requests" "$trace" > "$out/trace.jsonl"
	else
		"$@" --generate "$requests" --dump-trace "$out/trace.jsonl"
	fi
}

# GiB with room for every page of the trace even if none were shared, and a quarter more
demo_gib() {
	local pages
	pages=$(awk -F'"hash_ids":' '{ sub(/\].*/, "", $2); n += gsub(/,/, ",", $2) + 1 } END { print n }' "$1/trace.jsonl")
	echo $(((pages * ((bytes + 4095) / 4096 * 4096) * 5 / 4 >> 30) + 2))
}

# $1/report.json, of first.json and second.json there. The first replay must have hit what a cache without bounds hits:
# for each request the leading blocks that an earlier one had
demo_report() {
	local out=$1 f want got
	for f in "$out/first.json" "$out/second.json"; do
		[ -s "$f" ] || die "no $f was left"
	done
	printf '{"replays": [\n%s,\n%s]}\n' "$(cat "$out/first.json")" "$(cat "$out/second.json")" > "$out/report.json"
	want=$(awk -F'"hash_ids": *\\[' '{
		sub(/\].*/, "", $2)
		n = split($2, id, / *, */)
		for (i = 1; i <= n && (id[i] in seen); i++)
			hits++
		for (i = 1; i <= n; i++)
			seen[id[i]] = 1
	} END { print hits + 0 }' "$out/trace.jsonl")
	got=$(grep -o '"pages_hit": *[0-9]*' "$out/first.json" | grep -o '[0-9]*$')
	say "hits of the first replay: $got; of a cache without bounds: $want"
	[ "$got" = "$want" ] || die "they differ"
	say "report: $out/report.json"
}
