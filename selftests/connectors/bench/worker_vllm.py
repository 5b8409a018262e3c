# SPDX-License-Identifier: GPL-2.0
"""vLLM on the CPU with the tiny model: milliseconds to the first token of a prompt that was seen before, and CPU time.

That is of the engine and of LMCache's server, a GiB of the prompt's keys and values.

Options: connector, {} to compute all again, or {transfer: vLLM's kv_transfer_config, l2: the adapter of an LMCache
server that is started for it, in which "@DIR@" is replaced}; engines, where LMCache's environment is.
Requests: {tokens}: a new prompt of so many is asked, for one token, and stored on the way; it takes all of vLLM's own
cache. Then the server's cache in memory is emptied and the prompt before is asked again: that is what is measured, and
its logprobs have to be the same as they were. tokens - 1 is to be a multiple of BLOCK and CHUNK.
"""

import glob
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from worker import GIB, Clock, serve

BLOCK = 32              # tokens: what vLLM on the CPU allows
MODEL_LEN = 1952        # tokens: a prompt, and its answer
TOKEN_BYTES = 2048      # of keys and values: model.py's 4 layers of 4 heads of 32 numbers of 2 bytes
CHUNK = 128             # tokens LMCache stores as one
BLOCKS = 63             # of vLLM's own cache: one prompt and no more
LEAST = 0.9             # of the prompt has to come from the cache
START_S, STORED_S = 120, 1

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  VLLM_LOGGING_LEVEL="WARNING")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """An LMCache server with one L2 adapter. It ends with this process, which leads its group."""

    def __init__(self, engines, adapter):
        self.port, self.http = free_port(), free_port()
        # pylint: disable-next=consider-using-with # it runs on
        self.process = subprocess.Popen(
            [os.path.join(engines, "lmcache", "bin", "python"), "-m", "lmcache.cli.main", "server",
             "--host", "127.0.0.1", "--port", str(self.port), "--http-host", "127.0.0.1", "--http-port", str(self.http),
             "--prometheus-port", str(free_port()), "--disable-observability", "--chunk-size", str(CHUNK),
             "--l1-size-gb", "1", "--l1-init-size-gb", "1", "--no-l1-use-lazy", "--eviction-policy", "LRU",
             "--l2-adapter", json.dumps(adapter)],
            stdin=subprocess.DEVNULL, stdout=sys.stderr)
        end = time.monotonic() + START_S
        while not self.call("GET", "/healthcheck"):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("LMCache's server did not come up; the log says why")
            time.sleep(0.2)

    def call(self, method, path):
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", method=method)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def forget(self):
        """Empty its cache in memory"""
        if not self.call("POST", "/cache/clear"):
            raise RuntimeError("LMCache's server does not clear its memory")


def with_lmcache(engines):
    """Let vLLM find LMCache, whose environment is another, behind its own packages."""
    sys.path += glob.glob(os.path.join(engines, "lmcache", "lib", "python3*", "site-packages"))
    # pylint: disable=import-outside-toplevel
    import vllm.triton_utils.dispatcher as dispatcher
    rebind = dispatcher._rebind_kernels

    def without_llvmlite(owner):
        # vLLM 0.32.0 on the CPU looks at the attributes of all modules; those of llvmlite, which LMCache loads, fail
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("llvmlite")}
        try:
            rebind(owner)
        finally:
            sys.modules.update(kept)
    dispatcher._rebind_kernels = without_llvmlite


class Side:
    def __init__(self, options):
        connector, more = options["connector"], {}
        self.server = None
        # pylint: disable=import-outside-toplevel
        from vllm import LLM
        if "transfer" in connector:
            more["kv_transfer_config"] = transfer = connector["transfer"]
            if "l2" in connector:
                with_lmcache(options["engines"])
                adapter = json.loads(json.dumps(connector["l2"]).replace("@DIR@", options["dir"]))
                self.server = Server(options["engines"], adapter)
                transfer["kv_connector_extra_config"] = {
                    "lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.server.port,
                    "lmcache.mp.mp_transfer_mode": "lmcache_driven"}
        self.cached = bool(more)
        model = os.path.join(options["dir"], "model")
        maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.py")
        subprocess.run([sys.executable, maker, model], check=True, stdout=sys.stderr)
        self.llm = LLM(model=model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
                       max_model_len=MODEL_LEN, seed=0, block_size=BLOCK, enable_prefix_caching=True,
                       num_gpu_blocks_override=BLOCKS, **more)
        self.random, self.before = random.Random(os.getpid()), None
        self.clock = Clock([self.server.process.pid] if self.server else ())

    def ask(self, prompt):
        """((wall seconds, CPU seconds), logprobs of the first token, tokens that were not computed)"""
        from vllm import SamplingParams         # pylint: disable=import-outside-toplevel
        how = SamplingParams(max_tokens=1, temperature=0, detokenize=False, logprobs=5, ignore_eos=True)
        start = self.clock.now()
        answer, = self.llm.generate([{"prompt_token_ids": prompt}], how, use_tqdm=False)
        took = [now - then for now, then in zip(self.clock.now(), start)]
        step, = answer.outputs[0].logprobs
        return took, sorted((token, p.logprob) for token, p in step.items()), answer.num_cached_tokens

    def store(self, tokens):
        """Ask for a new prompt. (prompt, logprobs)

        Where it is to come from a cache later the logprobs are those of a second answer, from vLLM's own blocks: with
        one token left to compute its kernels round otherwise, about one prompt of twenty, than when they compute all.
        """
        prompt = [self.random.randrange(3, 1000) for _ in range(tokens)]
        told = self.ask(prompt)[1]
        return prompt, self.ask(prompt)[1] if self.cached else told

    def __call__(self, request):
        if not self.before:
            self.before = self.store(request["tokens"])
        # takes all of vLLM's blocks, and lets what was before be stored in the steps of the engine
        new = self.store(request["tokens"])
        time.sleep(STORED_S)
        if self.server:
            self.server.forget()
        if not self.cached:     # a block that vLLM still has changes how its kernels round
            self.llm.reset_prefix_cache()
        prompt, computed = self.before
        self.before = new
        took, told, cached = self.ask(prompt)
        if told != computed:
            raise RuntimeError(f"the second answer is another than the first, {cached} of {len(prompt)} tokens of which "
                               f"came from the cache: {told} and {computed}")
        share = cached / len(prompt)
        if share < LEAST if self.cached else share > 1 - LEAST:
            raise RuntimeError(f"{cached} of {len(prompt)} tokens came from the cache")
        return {"first token": {"rate": took[0] * 1000, "cpu": took[1] / (len(prompt) * TOKEN_BYTES) * GIB}}


serve(Side)
