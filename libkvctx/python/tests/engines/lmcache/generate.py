# SPDX-License-Identifier: LGPL-2.1-or-later
"""vLLM on the CPU answers three prompts: generate.py MODEL [PORT]

With PORT it goes through the LMCache server there. For each prompt it waits for a line, and says "answer HASH CACHED":
of tokens and logprobs, and how many tokens of the prompt were not computed. One more line ends it.
"""
import hashlib
import os
import random
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", LMCACHE_TRACK_USAGE="false",
                  VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                  VLLM_LOGGING_LEVEL="ERROR")
# LMCache is in another environment than vLLM: what vLLM's has comes first
sys.path.append(os.environ["LMCACHE_PACKAGES"])

import vllm.triton_utils.dispatcher as dispatcher  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

_rebind = dispatcher._rebind_kernels


def _rebind_without_llvmlite(where):
    """vLLM 0.32.0 looks into every module and trips over llvmlite's, which LMCache imports."""
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("llvmlite")}
    try:
        _rebind(where)
    finally:
        sys.modules.update(aside)


dispatcher._rebind_kernels = _rebind_without_llvmlite


def main(model, port=None):
    transfer = None
    if port is not None:
        extra = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": int(port),
                 "lmcache.mp.mp_transfer_mode": "lmcache_driven"}
        transfer = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    llm = LLM(model=model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=1024, seed=0,
              block_size=32, enable_prefix_caching=True, num_gpu_blocks_override=128, kv_transfer_config=transfer)
    random.seed(1)
    for prompt in [[random.randrange(3, 1000) for _ in range(400)] for _ in range(3)]:
        sys.stdin.readline()
        how = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=5, ignore_eos=True)
        answer = llm.generate([{"prompt_token_ids": prompt}], how, use_tqdm=False)[0]
        logprobs = repr([sorted((k, v.logprob) for k, v in step.items()) for step in answer.outputs[0].logprobs])
        print("answer", hashlib.sha256(logprobs.encode()).hexdigest()[:12], answer.num_cached_tokens, flush=True)
    sys.stdin.readline()
    os._exit(0)  # a server that is gone does not hold up the end


main(*sys.argv[1:])
