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

# boot_p2p DIR: the same with guest/p2p.sh: a peer's memory, in a file of this machine, and an SSD below one PCIe switch
boot_p2p() {
	local dir=$1 arg args=()

	rm -rf "$dir"
	mkdir -p "$dir"
	truncate -s 64M "$dir/bar"
	truncate -s 1G "$dir/ssd"
	for arg in -device pcie-root-port,id=root0,chassis=1,slot=1 -device x3130-upstream,id=up0,bus=root0 \
			-device xio3130-downstream,id=down0,bus=up0,chassis=2,slot=0 \
			-device xio3130-downstream,id=down1,bus=up0,chassis=3,slot=1 \
			-object "memory-backend-file,id=bar,size=64M,mem-path=$PWD/$dir/bar,share=on" \
			-device ivshmem-plain,memdev=bar,bus=down0 \
			-drive "if=none,id=ssd0,file=$PWD/$dir/ssd,format=raw,cache=unsafe" \
			-device nvme,serial=p2p0,drive=ssd0,bus=down1 \
			-plugin "$PWD/build/guest/bench/count.so,out=$PWD/$dir/counts"; do
		args+=(--qemu "$arg")
	done
	selftests/vm/run --kernel $bench_kernel --cpus 1 --mem 3G --timeout 300 --share "$dir" "${args[@]}" \
		-- $bench_guest/p2p.sh > "$dir/cases"
	local status=$?

	rm -f "$dir/bar" "$dir/ssd"
	return $status
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
