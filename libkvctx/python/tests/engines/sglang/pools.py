# SPDX-License-Identifier: LGPL-2.1-or-later
"""Host pools of SGLang's own classes on a machine without a GPU, filled with noise, and storages for them."""
import os

import torch
from sglang.srt.mem_cache.device_pool_info import (KVBufferLayout, KVBuffers, MambaStateBufferInfo, MHABufferInfo,
                                                   MLABufferInfo)
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
LAYERS, HEADS, WIDTH, TOKENS, PAGES = 4, 4, 32, 64, 128
CPU = torch.device("cpu")


def mha(layout, dtype=torch.bfloat16, pages=PAGES):
    """K and V of LAYERS layers: pages of 128 KiB (bfloat16)."""
    k, v = (tuple(torch.zeros(TOKENS * 8, HEADS, WIDTH, dtype=dtype) for _ in range(LAYERS)) for _ in "kv")
    buffers = KVBuffers(k=k, v=v, k_data_ptrs=torch.tensor([x.data_ptr() for x in k]),
                        v_data_ptrs=torch.tensor([x.data_ptr() for x in v]), layout=list(KVBufferLayout)[0])
    info = MHABufferInfo(buffers=buffers, page_size=TOKENS, head_num=HEADS, head_dim=WIDTH, v_head_dim=WIDTH,
                         dtype=dtype, device=CPU)
    return MHATokenToKVPoolHost(info, 1.0, 0, TOKENS, layout, pin_memory=False, device="cpu",
                                device_capacity_tokens=TOKENS * 8, start_layer=0, end_layer=LAYERS - 1,
                                host_token_capacity=TOKENS * pages)


def mla(layout, pages=PAGES):
    """Latent KV, the same on all ranks."""
    rows = tuple(torch.zeros(TOKENS * 8, 1, 72, dtype=torch.bfloat16) for _ in range(LAYERS))
    info = MLABufferInfo(buffers=rows, data_ptrs=torch.tensor([x.data_ptr() for x in rows]),
                         layer_indices=tuple(range(LAYERS)), device_layer_num=LAYERS, page_size=TOKENS, kv_lora_rank=64,
                         qk_rope_head_dim=8, kv_cache_dim=72, dtype=torch.bfloat16, device=CPU)
    return MLATokenToKVPoolHost(info, 1.0, 0, TOKENS, layout, pin_memory=False, device="cpu",
                                device_capacity_tokens=TOKENS * 8, start_layer=0, end_layer=LAYERS - 1,
                                target_layer_num=LAYERS, host_token_capacity=TOKENS * pages)


def mamba(pages=PAGES):
    """States of a hybrid model: one index a page, a temporal and a convolutional state."""
    info = MambaStateBufferInfo(temporal=torch.zeros(LAYERS, pages, 2, 48, dtype=torch.float32),
                                conv=(torch.zeros(LAYERS, pages, 40, 3, dtype=torch.bfloat16),))
    return MambaPoolHost(info, 1.0, 0, device_capacity=pages, pin_memory=False, device="cpu", layout="page_first")


def tensors(pool):
    if isinstance(pool, MambaPoolHost):
        return [pool.temporal_buffer, *pool.conv_buffer]
    return [pool.kv_buffer]


def as_bytes(pool):
    """The pool's memory as it is, one tensor of bytes for each of its own."""
    return [t.view(-1).view(torch.uint8) for t in tensors(pool)]


def fill(pool):
    """Noise into the pool. A copy of it, as same() takes it."""
    for t in as_bytes(pool):
        t.random_(0, 256)
    return [t.clone() for t in as_bytes(pool)]


def wipe(pool):
    for t in as_bytes(pool):
        t.zero_()


def same(pool, copy):
    return all(torch.equal(a, b) for a, b in zip(as_bytes(pool), copy))


def page_of(pool, n):
    """The bytes of page n, as the pool's own copying path has them."""
    return pool.get_data_page(n * pool.page_size, flat=True).contiguous().view(torch.uint8).clone()


def indices(pool, first, count):
    return torch.arange(first * pool.page_size, (first + count) * pool.page_size)


def names(count):
    return [os.urandom(32).hex() for _ in range(count)]


def storage(path, pool, *, others=(), v1=1, **how):
    """A storage as SGLang makes it: by its factory, with its fault injection where the environment asks for that.

    others: (name, pool) of a hybrid model's. how: fields of the configuration, and options of ours.
    """
    ours = {k: how.pop(k) for k in ("keyspace", "timeout", "max_bytes") if k in how}
    config = dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                  enable_storage_metrics=True, is_page_first_layout=pool.layout == "page_first",
                  model_name="tiny/llama")
    extra = {"backend_name": "kvctx", "module_path": "kvctx.sglang", "class_name": "KvctxHiCache", "interface_v1": v1,
             "path": path, **ours}
    config = HiCacheStorageConfig(**{**config, **how}, extra_config=extra)
    made = StorageBackendFactory.create_backend("dynamic", config, pool)
    made.register_mem_pool_host(pool)
    for name, other in others:
        made.register_mem_host_pool_v2(other, name)
    made.on_host_pools_registered()
    return made


def ours(made):
    """Our object, below SGLang's fault injection."""
    return getattr(made, "_backend", made)
