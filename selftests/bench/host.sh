# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Boots of the bench (sourced at the top of the repository).

bench_kernel=7.2
bench_guest=/kvctx/selftests/bench/guest

# Prints "kvm" or "tcg": what guests run with on this machine
bench_accelerator() {
	(
		# shellcheck source=selftests/vm/lib.sh
		. selftests/vm/lib.sh
		# shellcheck source=selftests/vm/images.sh
		. selftests/vm/images.sh
		# shellcheck source=selftests/vm/qemu.sh
		. selftests/vm/qemu.sh
		tmp=$(mktemp -d build/accelerator.XXXXXX)
		accelerator "$(need_store)" "$PWD/$tmp" | cut -d' ' -f1
		rm -rf "$tmp"
	)
}

counts_instructions() {
	[ "$(bench_accelerator)" = tcg ]
}

# boot_counting DIR ARGUMENTS [OPTION]...: guest/insn.sh with one virtual CPU and the plugin; leaves counts, kallsyms and
# cases in DIR
boot_counting() {
	local dir=$1 arguments=$2

	shift 2
	rm -rf "$dir"
	mkdir -p "$dir"
	selftests/vm/run --kernel $bench_kernel --cpus 1 --mem 6G --timeout 900 --share "$dir" "$@" \
		--qemu -plugin --qemu "$PWD/build/guest/bench/count.so,out=$PWD/$dir/counts" \
		-- $bench_guest/insn.sh $arguments > "$dir/cases"
}

# boot_timed DIR SCOPE PAIRS TARGET...: guest/bench.sh with two virtual CPUs; leaves its results in DIR
boot_timed() {
	local dir=$1

	shift
	rm -rf "$dir"
	mkdir -p "$dir"
	selftests/vm/run --kernel $bench_kernel --cpus 2 --mem 10G --timeout 3600 --nvme 1G --nvme 1G --share "$dir" \
		-- $bench_guest/bench.sh "$@"
}
