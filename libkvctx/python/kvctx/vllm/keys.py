# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of pages, from what vLLM calls chunks.

A key of vLLM is the hash of a chunk's tokens and all before them, and 4 bytes with the number of its group. The page's
key is that hash and, as qualifier, group, rank and generation. What else tells one cache from another (model, dtype,
layout, parallel shape) is the session's keyspace, so that an engine with another layout finds nothing.

Of a pipeline's stages none knows the others' layers, so there the keyspace has what all know equally (shape_of()), and
workers compare lengths besides.

Everything here is immutable or a function of its arguments, and of the environment that vLLM gives all its processes.
"""
from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import Any, Dict, List, Sequence

from vllm.v1.kv_offload.base import LoadStoreSpec

from ..keys import Key, Keys

SHAPE = "kvctx_shape"  # where KvctxConnector leaves shape_of() for its spec: in vLLM's kv_connector_extra_config
_FORMAT = 1  # of a page: its blocks in order, of each the layers in the group's order
_GROUP_BYTES = 4
_DIGEST_BYTES = 32
_RANK_SHIFT, RANK_BITS = 16, 0xffff << 16  # of a qualifier: group, rank, and generation in the upper half


class Pages(LoadStoreSpec):
    """What a manager tells the workers of a transfer: vLLM's keys, in the order of the blocks.

    depths: position of each chunk in its prefix, from 1; 0: unknown. generation: see page_keys().
    """

    def __init__(self, keys: Sequence[bytes], depths: Sequence[int], generation: int) -> None:
        self.keys, self.depths, self.generation = list(keys), list(depths), generation

    def __repr__(self) -> str:
        return f"<Pages: {len(self.keys)}>"


def group_of(key: bytes) -> int:
    """The group's number in a key of vLLM."""
    return int.from_bytes(key[-_GROUP_BYTES:], "big")


def page_keys(keys: Sequence[bytes], ranks: Sequence[int], generation: int = 0) -> Keys:
    """Keys of the pages of chunks: of each chunk one a rank, in this order.

    ranks: numbers of the workers, below 2**16. generation: below 2**32; an engine takes another one when it has to
    forget what it has stored. A hash that is no digest of 32 bytes is hashed to one.
    """
    packed: List[Key] = []
    for key in keys:
        digest = key[:-_GROUP_BYTES]
        if len(digest) != _DIGEST_BYTES:
            digest = sha256(digest).digest()
        qualifier = generation << 32 | group_of(key)
        packed += [Key(digest, qualifier | rank << _RANK_SHIFT) for rank in ranks]
    return Keys(packed)


def shape_of(vllm_config: Any) -> Dict[str, Any]:
    """Of a VllmConfig, what an OffloadingConfig does not tell and all processes of an engine know equally."""
    model, shape = vllm_config.model_config, {}  # type: Any, Dict[str, Any]
    if model.hf_overrides:
        shape["hf_overrides"] = _overrides(model)
    if model.quantization:
        shape["quantization"] = str(model.quantization)
    if model.revision and model.revision != "main":  # "main": also where none was given
        shape["revision"] = str(model.revision)
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        shape["layers"] = model.get_total_num_hidden_layers()
        shape["speculative"] = _draft(vllm_config.speculative_config)
    return shape


def _draft(speculative: Any) -> Any:
    draft = speculative.draft_model_config if speculative else None
    return speculative and [speculative.method, speculative.kv_cache_dtype,
                            draft and [draft.model, draft.get_total_num_hidden_layers()]]


def _overrides(model: Any) -> str:
    """What they are; of a function, which nothing tells from another by that name, what the model's config became."""
    try:
        return json.dumps(model.hf_overrides, sort_keys=True)
    except TypeError:
        return sha256(model.hf_config.to_json_string(use_diff=False).encode()).hexdigest()


def describe(config: Any, more: str = "", **others: Any) -> str:
    """What a session's keyspace is made of, as JSON.

    config: vLLM's OffloadingConfig. more: the user's option "keyspace". others: what else tells layouts apart.

    The scheduler and all workers of an engine have to come to the same text. With pipeline parallelism each worker has
    other layers, which rank, model, pp_size and shape_of() tell, and the partition that the user may have given to all.
    With vLLM's own connector there is no shape_of().
    """
    parallel, shape = config.parallel, config.extra_config.get(SHAPE)
    one_stage = parallel.pp_size == 1
    return json.dumps({
        "format": _FORMAT,
        "engine": "vllm",
        "model": config.model.name,
        "dtype": config.model.dtype,
        "layout": config.kv_cache_layout,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "groups": [[g.group_id, g.tokens_per_block, list(g.layer_names) if one_stage else None]
                   for g in config.groups],
        "block_bytes": config.worker_kv_bytes_per_block if one_stage else None,
        "parallel": [parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size],
        "replicated": config.replicated_layout,
        **({} if one_stage else {"partition": os.environ.get("VLLM_PP_LAYER_PARTITION")}),
        **({"shape": shape} if shape else {}),
        "more": more,
        **others,
    }, sort_keys=True)
