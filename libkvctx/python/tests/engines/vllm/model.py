# SPDX-License-Identifier: LGPL-2.1-or-later
"""Save a small random Llama, whose logits differ enough to tell one wrong byte of its KV cache: model.py DIR"""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(7)
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
                     num_key_value_heads=4, head_dim=32, vocab_size=1024, max_position_embeddings=2048,
                     initializer_range=0.2, dtype="bfloat16")
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
