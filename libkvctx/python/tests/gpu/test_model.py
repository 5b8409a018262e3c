# SPDX-License-Identifier: LGPL-2.1-or-later
"""A model's KV cache: stored from a GPU by one process, loaded by another, which computes the same logits."""
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="no torch here")
pytest.importorskip("transformers", reason="no transformers here")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

import kvctx  # noqa: E402


def run(what, tenant, shape):
    script = os.path.join(os.path.dirname(__file__), "model.py")
    done = subprocess.run([sys.executable, script, what, tenant, shape], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("shape,nbytes,memory", [("small", 256 << 20, 1 << 30), ("8b", 2 << 30, 24 << 30)])
def test_another_process_computes_the_same_logits(tmp_path, shape, nbytes, memory):
    if torch.cuda.mem_get_info()[0] < memory:
        pytest.skip(f"{memory >> 30} GiB of a GPU's memory are not free")
    tenant = os.path.join(kvctx.create_pool(tmp_path / "kv0", nbytes).path, "default")
    stored = run("store", tenant, shape)
    loaded = run("load", tenant, shape)
    assert loaded["logits"] == stored["logits"] != loaded["blind"]
    size, stored_s, loaded_s = stored["bytes"], stored["store_s"], loaded["load_s"]
    print(f"\n{shape}: {size / 1e6:.0f} MB of KV: computed in {stored['prefill_s']} s; stored in {stored_s} s, "
          f"{size / stored_s / 1e9:.2f} GB/s; loaded in {loaded_s} s, {size / loaded_s / 1e9:.2f} GB/s")
