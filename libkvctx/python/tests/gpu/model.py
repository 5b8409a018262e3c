# SPDX-License-Identifier: LGPL-2.1-or-later
"""A model on a GPU whose KV cache goes to kvctx, and comes back to another process: model.py {store|load} TENANT SHAPE

Both make the same random Llama and the same prompt. "store" computes the prompt but for its end, has its KV cache
stored in chunks of a paged cache (blocks.py), and computes the end. "load" has them loaded into other blocks, and
computes the end with what it got. A line of JSON tells the logits of the end as a digest; seconds of what was done;
bytes.

SHAPE: small, or 8b, whose layers are as large as those of Llama 3 8B.
"""
import hashlib
import json
import sys
import time

import blocks
import torch
from test_vllm import gpu
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

TOKENS = 16  # a block
# layers, hidden size, heads, heads of K and V, their size, words of the prompt, blocks a chunk
SHAPES = {"small": (4, 512, 8, 4, 64, 1024, 4), "8b": (32, 4096, 32, 8, 128, 8192, 2)}
END = 32


def model(shape):
    layers, hidden, heads, kv_heads, size, words, per_chunk = SHAPES[shape]
    torch.manual_seed(7)
    config = LlamaConfig(hidden_size=hidden, intermediate_size=hidden * 7 // 2, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=size, vocab_size=4096,
                         max_position_embeddings=words + END, initializer_range=0.05)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = LlamaForCausalLM(config).eval()
        prompt = torch.randint(0, 4096, (1, words + END))
    block = 2 * kv_heads * TOKENS * size * 2
    return made, prompt[:, :words], prompt[:, words:], block, per_chunk


def to_blocks(cache, caches, places):
    """What attention left, into the blocks of a paged cache: (K and V, heads, tokens, size) each."""
    for layer, rows in zip(cache.layers, caches.layers):
        kv = torch.stack([layer.keys[0], layer.values[0]])
        kv = kv.unflatten(2, (-1, TOKENS)).permute(2, 0, 1, 3, 4)
        rows[places] = kv.reshape(len(places), -1).contiguous().view(torch.int8)


def from_blocks(caches, places, kv_heads, size):
    cache = DynamicCache()
    for n, rows in enumerate(caches.layers):
        kv = rows[places].contiguous().view(torch.bfloat16).view(len(places), 2, kv_heads, TOKENS, size)
        k, v = kv.permute(1, 2, 0, 3, 4).reshape(2, 1, kv_heads, -1, size)
        cache.update(k.contiguous(), v.contiguous(), n)
    return cache


def timed(what):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = what()
    torch.cuda.synchronize()
    return result, round(time.perf_counter() - start, 4)


def digest(logits):
    return hashlib.sha256(logits.float().cpu().numpy().tobytes()).hexdigest()


@torch.inference_mode()
def main(what, tenant, shape):
    llama, begin, end, block, per_chunk = model(shape)
    layers, _, _, kv_heads, size, words, _ = SHAPES[shape]
    nr = words // TOKENS
    caches = blocks.Caches(layers, 2 * nr, block)
    engine = blocks.engine(tenant, caches, per_chunk)
    names = blocks.keys(shape, nr // per_chunk)
    here, there = list(range(nr)), list(range(2 * nr - 1, nr - 1, -1))
    told = {"bytes": nr * layers * block}

    def compute(past):
        return llama(end, past_key_values=past).logits

    if what == "store":
        for _ in range(2):  # the first time kernels are chosen
            out, told["prefill_s"] = timed(lambda: llama(begin, use_cache=True, logits_to_keep=1))
        to_blocks(out.past_key_values, caches, here)
        result, told["store_s"] = timed(lambda: engine.store(names, gpu(here)))
        assert result.transfer_size == told["bytes"], result
        told["logits"] = digest(compute(from_blocks(caches, here, kv_heads, size)))
    else:
        told["blind"] = digest(compute(from_blocks(caches, there, kv_heads, size)))
        found = engine.lookup(names)
        assert set(found) == {blocks.fake.LookupResult.HIT}, found
        result, told["load_s"] = timed(lambda: engine.load(names, gpu(there)))
        assert result.transfer_size == told["bytes"] and not engine.worker.failed_loads(), result
        told["logits"] = digest(compute(from_blocks(caches, there, kv_heads, size)))
    assert caches.room_is_clean()
    engine.end()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
