#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Let torch's package for GPUs be imported without NVIDIA's libraries.

    stubs.py TORCH_LIB [PRESENT]...

TORCH_LIB is the directory lib of an installed torch. Its libraries name others of CUDA, 1.9 GiB of packages, that
arithmetic on the CPU never calls. For each of those that is neither there nor PRESENT (a soname that another package
brings) a library is compiled that has the functions that torch's ask for; each of them aborts. A function without a
version belongs to the library whose prefix its name has.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

CUDA = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvJitLink)")
SYSTEM = re.compile(r"GLIBC|GCC|CXXABI|GOMP|OMP|LIB")       # versions of what every system has
# prefix of unversioned functions: name of their library up to ".so"
UNVERSIONED = {"nccl": "libnccl", "cusparseLt": "libcusparseLt", "curand": "libcurand", "cuFile": "libcufile"}


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed_by(path):
    """Sonames of CUDA that a library names."""
    found = (re.search(r"NEEDED.*\[(.+)\]", line) for line in lines_of("readelf", "--dynamic", "--wide", path))
    return {m[1] for m in found if m and CUDA.match(m[1])}


def wanted_by(path):
    """[(function, version or "")] that a library leaves to others."""
    for line in lines_of("nm", "--dynamic", "--undefined-only", path):
        name, _, version = line.split()[-1].partition("@")
        if not SYSTEM.match(version):
            yield name, version.lstrip("@")


def version_of(soname, versions):
    """Version that the functions of a library carry, or "": its soname mostly, of NVSHMEM another word."""
    if soname in versions:
        return soname
    return "NVSHMEM" if "nvshmem" in soname and "NVSHMEM" in versions else ""


def compile_stub(path, soname, functions, version):
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/stub.c", "w", encoding="ascii") as f:
            f.write("#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in functions))
            f.write("void kvctx_stub(void) { }\n")
        with open(f"{tmp}/stub.map", "w", encoding="ascii") as f:
            f.write(f"{version} {{ global: *; }};\n")
        subprocess.run(["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", path, f"{tmp}/stub.c",
                        f"-Wl,-soname,{soname}", f"-Wl,--version-script={tmp}/stub.map"], check=True)


def main():
    lib, present = sys.argv[1], set(sys.argv[2:])
    names = [name for name in os.listdir(lib) if ".so" in name]
    needed, by_version, plain = set(), collections.defaultdict(set), collections.defaultdict(set)
    for path in (os.path.join(lib, name) for name in names):
        needed |= needed_by(path)
        for name, version in wanted_by(path):
            if version:
                by_version[version].add(name)
            else:
                for prefix, library in UNVERSIONED.items():
                    if name.startswith(prefix):
                        plain[library].add(name)
    for soname in sorted(needed - present - set(names)):
        version = version_of(soname, by_version)
        functions = sorted(by_version.get(version, set()) | plain.get(soname.partition(".so")[0], set()))
        compile_stub(os.path.join(lib, soname), soname, functions, version)
        print(f"{soname}: {len(functions)} functions")


if __name__ == "__main__":
    main()
