# SPDX-License-Identifier: GPL-2.0
"""A tiny Llama with random weights, for an engine on the CPU: model.py DIR

The spread of the weights makes the logits of one prompt differ from those of another; vLLM's own dummy weights give
nearly uniform ones, from which a wrong cache would not be told.
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
          "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1024, "max_position_embeddings": 2048,
          "initializer_range": 0.2, "dtype": "bfloat16"}


def make(path):
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).to(torch.bfloat16).save_pretrained(path)


if __name__ == "__main__":
    make(sys.argv[1])
