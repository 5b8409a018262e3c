# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# Starting QEMU (sourced by run): the machine, and whether KVM can be used.
#
# KVM is used only where a guest has really booted with it: /dev/kvm may exist and
# still be useless, as it is inside many virtual machines.

# Emulated, the guest is an AMD EPYC: the kernel trusts the host bridges of that
# family for peer-to-peer DMA. The features taken away are those TCG lacks.
tcg_cpu=EPYC,-fxsr-opt,-misalignsse,-osvw,-topoext,-nrip-save,-xsavec

# machine_args ACCEL CPUS MEM
machine_args() {
	case $1 in
		kvm) printf '%s\n' -accel kvm -cpu host ;;
		tcg) printf '%s\n' -accel tcg,thread=multi -cpu "$tcg_cpu" ;;
	esac
	printf '%s\n' -machine q35 -smp "$2" -m "$3" -nodefaults -no-user-config \
		-no-reboot -display none -monitor none
}

# console_args DIR: kernel log, exit status and output of the command. The output
# goes to a named pipe: QEMU's stdio would make our own output non-blocking,
# and hang up on the guest when there is no input.
console_args() {
	printf '%s\n' -serial "file:$1/console.log" \
		-device virtio-serial-pci \
		-chardev "file,id=output,path=$1/output" \
		-device virtserialport,chardev=output,name=output \
		-chardev "file,id=status,path=$1/status" \
		-device virtserialport,chardev=status,name=status
}

# The kernel log goes to the console whole, so that a guest that dies or hangs
# leaves it behind.
kernel_args='console=ttyS0 loglevel=7 panic=-1 nokaslr mitigations=off'

# An emulated CPU may stand still for seconds on a busy machine. Without these the
# kernel then finds its timer or its TSC broken at boot (and panics, warns, or lets
# time run too fast), or takes the pause for a lockup. The TSC's frequency is
# measured outside (tsc-khz.c) and follows.
tcg_kernel_args='no_timer_check tsc=reliable watchdog_thresh=60'
tcg_kernel_args+=' workqueue.watchdog_thresh=120'
tcg_kernel_args+=' rcupdate.rcu_cpu_stall_timeout=60 tsc_early_khz='

# probe_kvm STORE DIR: does a guest boot, and report back, with KVM?
probe_kvm() {
	local version base args

	version=$(kernel_version "$1" 7.2)
	base=$(base_initramfs "$1" "$version")
	mkdir "$2/probe"
	: > "$2/probe/output"
	mapfile -t args < <(machine_args kvm 1 512M; console_args "$2/probe")
	timeout -k 2 10 "$vm_dir/inroot" --bind "$1" qemu-system-x86_64 \
		"${args[@]}" -kernel "$(kernel_image "$1" "$version")" \
		-initrd "$base.cpio" -append "$kernel_args" \
		< /dev/null > /dev/null 2>&1 || return 1
	[ "$(cat "$2/probe/status" 2> /dev/null)" = 0 ]
}

# measure_tsc DIR: kHz
# shellcheck disable=SC2016 # for the inner shell
measure_tsc() {
	"$vm_dir/inroot" sh -ec 'gcc -O2 -o "$2" "$1" && exec "$2"' sh \
		"$vm_dir/tsc-khz.c" "$1/tsc-khz"
}

# accelerator STORE DIR: print "kvm" or "tcg" and, with tcg, the TSC's kHz.
# Neither can change before this machine boots again.
accelerator() {
	local cached=$1/accelerator boot_id answer was

	boot_id=$(cat /proc/sys/kernel/random/boot_id)
	if read -r was answer 2> /dev/null < "$cached" && [ "$was" = "$boot_id" ]; then
		echo "$answer"
		return
	fi
	if [ -w /dev/kvm ] && probe_kvm "$1" "$2"; then
		answer=kvm
	else
		answer="tcg $(measure_tsc "$2")" || return
	fi
	echo "$boot_id $answer" > "$cached.$$"
	mv "$cached.$$" "$cached"
	say "guests run with ${answer% *} on this machine"
	echo "$answer"
}
