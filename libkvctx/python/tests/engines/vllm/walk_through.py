# SPDX-License-Identifier: LGPL-2.1-or-later
"""The walk-through of Documentation/vllm.rst does what it says: its own lines, from the pool in step 3 on.

The environment of step 1 and the wheel of step 2 are there. pytest runs it; KVCTX_BIN is the folder with kvctxd.
"""
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 5))
# kvctxd ends with the shell, and nothing else takes for ever
BEGIN = """set -em
trap 'kill %1 2> /dev/null || :' EXIT
python() { timeout 600 "$PYTHON" "$@"; }
"""


def steps():
    """The literal blocks of each numbered step, as they stand."""
    with open(os.path.join(ROOT, "Documentation", "vllm.rst")) as f:
        _, rest = f.read().split("\nTen minutes, from nothing to pages loaded from kvctx\n", 1)
    found = re.split(r"^\d\. ", rest.split("\nAn environment of your own", 1)[0], flags=re.M)
    blocks = [re.findall(r"::\n\n((?: {7}.*\n|\n)+)", step) for step in found]
    return [[textwrap.dedent(block).strip("\n") + "\n" for block in step] for step in blocks]


@pytest.fixture
def folder():
    """In place of /tmp, with as short a name as sockets need."""
    with tempfile.TemporaryDirectory(prefix="kvctx-") as name:
        yield Path(name)


def test_the_walk_through(folder):
    _, _, (_, self_test), (pool,), (model, walk), (twice, printed, logged), (end,) = steps()

    def here(text):
        return text.replace("/tmp/", f"{folder}/").replace("build/bin", os.environ["KVCTX_BIN"])

    (folder / "walk.py").write_text(here(walk))
    script = "\n".join([BEGIN, "python -m kvctx", *map(here, (pool, model, f"cp /tmp/walk.py .\n{twice}", end))])
    # cases.py has set vLLM another way
    env = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    env["PYTHON"] = sys.executable
    (folder / "root").mkdir()
    (folder / "root" / "libkvctx").symlink_to(os.path.join(ROOT, "libkvctx"))
    r = subprocess.run(["bash", "-c", script], cwd=folder / "root", env=env, text=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert r.returncode == 0, r.stdout
    for line in self_test, printed, logged:
        assert line.strip() in r.stdout, r.stdout
    tokens = re.findall(r"^\[[\d, ]+\]$", r.stdout, re.M)
    assert len(tokens) == 2 and tokens[0] == tokens[1], r.stdout
    assert re.findall(r"tokens that were not computed: (\d+)", r.stdout) == ["0", "384"], r.stdout
    assert not os.path.exists(folder / "kv0") and not os.path.exists(folder / "root" / "walk.py")
    for what in "stores", "loads":
        assert re.search(rf"^ *{what}\W+12$", r.stdout, re.M), r.stdout
