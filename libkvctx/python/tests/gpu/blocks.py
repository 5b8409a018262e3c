# SPDX-License-Identifier: LGPL-2.1-or-later
"""A paged KV cache in a GPU's memory, as vLLM hands it to kvctx.vllm, and a worker and a manager that move its chunks.

vLLM is not needed: the fakes of it, and the engine made of them, are those of test_vllm.py.
"""
import hashlib
import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import test_vllm  # noqa: E402
import torch  # noqa: E402
from test_vllm import fake  # noqa: E402

ROOM = 64  # bytes behind each block, which nobody may touch


class Caches:
    """Tensors of the GPU, one a layer: int8 (blocks, nbytes of a block), with ROOM behind each block."""

    def __init__(self, layers, blocks, nbytes):
        self.storages = [torch.zeros(blocks, nbytes + ROOM, dtype=torch.int8, device="cuda") for _ in range(layers)]
        self.layers = [s[:, :nbytes] for s in self.storages]
        self.tensors = [SimpleNamespace(tensor=layer) for layer in self.layers]
        self.group_data_refs = [[SimpleNamespace(tensor_idx=n, page_size_bytes=nbytes) for n in range(layers)]]

    def room_is_clean(self):
        return not any(s[:, -ROOM:].any().item() for s in self.storages)


def engine(path, caches, per_chunk, **extra):
    """test_vllm.Engine for these caches: chunks of per_chunk blocks of 16 tokens."""
    return test_vllm.Engine(path, caches=caches, extra=extra,
                            worker_kv_bytes_per_block=sum(layer.shape[1] for layer in caches.layers),
                            cache=SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=per_chunk))


def keys(what, nr):
    """Names of a prompt's chunks."""
    return [fake.make_offload_key(hashlib.sha256(f"{what} {n}".encode()).digest(), 0) for n in range(nr)]
