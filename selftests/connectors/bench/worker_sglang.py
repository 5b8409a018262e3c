# SPDX-License-Identifier: GPL-2.0
"""One storage backend of SGLang's HiCache, measured with SGLang's own host pool.

Options: backend, what --hicache-storage-backend is given; extra, the extra config, in which "@DIR@" is replaced by dir.
Requests: {size, pages}: so many new pages are stored, looked up and loaded, in the calls and batches of SGLang's cache
controller, with the host pool in layout page_first, and have to come back unchanged.
"""

import dataclasses
import json
import os
import uuid

import torch
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

from worker import Clock, figures, serve, transfer

BATCH = 128             # pages a call, as SGLang's controller has it
LAYERS, HEADS, DIM = 8, 8, 64
TOKEN = 2 * LAYERS * HEADS * DIM * 2    # bytes: keys and values, bfloat16
LAYOUT = "page_first"


def host_pool(page_tokens, pages):
    """The host pool of a model whose cache has nothing but @pages pages of @page_tokens tokens"""
    def device():
        return tuple(torch.zeros(page_tokens, HEADS, DIM, dtype=torch.bfloat16) for _ in range(LAYERS))

    keys, values = device(), device()
    pointers = [torch.tensor([t.data_ptr() for t in side]) for side in (keys, values)]
    buffers = KVBuffers(k=keys, v=values, k_data_ptrs=pointers[0], v_data_ptrs=pointers[1],
                        layout=next(iter(KVBufferLayout)))
    info = MHABufferInfo(buffers=buffers, page_size=page_tokens, head_num=HEADS, head_dim=DIM, v_head_dim=DIM,
                         dtype=torch.bfloat16, device=torch.device("cpu"))
    return MHATokenToKVPoolHost(info, 1.0, 0, page_tokens, LAYOUT, pin_memory=False, device="cpu",
                                device_capacity_tokens=page_tokens, start_layer=0, end_layer=LAYERS - 1,
                                host_token_capacity=page_tokens * pages)


def config(extra):
    known = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
             "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": True,
             "model_name": "bench", "extra_config": extra}
    fields = {f.name for f in dataclasses.fields(HiCacheStorageConfig)}
    return HiCacheStorageConfig(**{k: v for k, v in known.items() if k in fields})


class Side:
    def __init__(self, options):
        self.backend, self.dir = options["backend"], options["dir"]
        self.extra = json.loads(json.dumps(options["extra"]).replace("@DIR@", self.dir))
        os.makedirs(self.dir, exist_ok=True)
        for name in ("SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR", "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"):
            os.environ[name] = self.dir
        self.clock = Clock(options.get("pids", ()))
        self.shape = self.pool = self.storage = None
        self.open(1 << 16, 1)       # so that what cannot work is known at once

    def open(self, size, pages):
        if self.shape == (size, pages):
            return
        if hasattr(self.storage, "close"):
            self.storage.close()
        self.storage = None         # before the pool that it registered
        self.pool = host_pool(size // TOKEN, pages)
        self.storage = StorageBackendFactory.create_backend(self.backend, config(self.extra), self.pool)
        self.storage.register_mem_pool_host(self.pool)
        self.shape = (size, pages)

    def batches(self, keys):
        tokens = self.pool.page_size
        for first in range(0, len(keys), BATCH):
            part = keys[first:first + BATCH]
            yield part, torch.arange(first * tokens, (first + len(part)) * tokens)

    # What the controller does for backends with and without calls for whole pages in place

    def set_pages(self, keys, indices):
        if self.backend != "file":
            return all(self.storage.batch_set_v1(keys, indices))
        return self.storage.batch_set(keys, [self.pool.get_data_page(i) for i in indices[::self.pool.page_size]])

    def get_pages(self, keys, indices):
        if self.backend != "file":
            return all(self.storage.batch_get_v1(keys, indices))
        found = self.storage.batch_get(keys, [self.pool.get_dummy_flat_data_page() for _ in keys])
        for i, page in zip(indices[::self.pool.page_size], found):
            if page is None:
                return False
            self.pool.set_from_flat_data_page(i, page)
        return True

    def timed(self, what, fn, keys):
        """(wall, processor) seconds of @fn over all batches"""
        parts = list(self.batches(keys))
        start = self.clock.now()
        good = [fn(*part) for part in parts]
        end = self.clock.now()
        if not all(good):
            raise RuntimeError(f"{what}: {good.count(False)} of {len(good)} batches failed")
        return end[0] - start[0], end[1] - start[1]

    def exist(self, keys, _):
        return self.storage.batch_exists(keys) == len(keys)

    def __call__(self, request):
        size, pages = request["size"], request["pages"]
        self.open(size, pages)
        content = self.pool.kv_buffer.view(torch.int16)
        content.random_(-30000, 30000)
        kept = content.clone()
        keys = [uuid.uuid4().hex * 2 for _ in range(pages)]
        try:
            store = self.timed("store", self.set_pages, keys)
            content.zero_()
            lookup = self.timed("lookup", self.exist, keys)
            load = self.timed("load", self.get_pages, keys)
        finally:
            self.forget()
        if not torch.equal(kept, content):
            raise RuntimeError("what was loaded is not what was stored")
        return {"store": transfer(size * pages, *store), "load": transfer(size * pages, *load),
                "lookup": figures(pages, *lookup)}

    def forget(self):
        """Remove the files of a run; the directories stay."""
        for where, _, names in os.walk(self.dir):
            for name in names:
                os.unlink(os.path.join(where, name))


serve(Side)
