# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real engines for cases.py: each in a process of its own, forked from one that has imported vLLM, which takes long.

start(work, **arguments) runs work(engine, say) there, for an engine made of the arguments; its result, with what the
worker counted, comes back by Run.result(). Nothing of torch may run in the parent.
"""
import hashlib
import logging
import multiprocessing
import os
import random
import time
import traceback

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                  VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", VLLM_LOGGING_LEVEL="WARNING",
                  VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES="0")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import msgspec  # noqa: E402
import vllm.v1.engine.llm_engine  # noqa: E402,F401
import vllm.v1.worker.cpu_worker  # noqa: E402,F401
import zmq  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.distributed.kv_events import BlockStored, KVEventBatch  # noqa: E402

import kvctx.vllm.connector  # noqa: E402
import kvctx.vllm.finder  # noqa: E402
import kvctx.vllm.link  # noqa: E402
import kvctx.vllm.spec  # noqa: E402,F401
import kvctx.vllm.worker  # noqa: E402

# on a busy machine an answer may take long, and what it is about would be computed anew
kvctx.vllm.finder._PATIENCE_S = 60.0
kvctx.vllm.link.logger.setLevel(logging.INFO)
random.seed(1)
PROMPTS = [[random.randrange(3, 1000) for _ in range(400)] for _ in range(3)]
START_S = 240
_fork = multiprocessing.get_context("fork")


def connector(path, chunk=0, name="KvctxConnector", **options):
    """What a user configures."""
    extra = dict(options, path=path)
    if chunk:
        extra["block_size"] = chunk
    config = {"kv_connector": name, "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
              "kv_connector_extra_config": extra}
    if name == "KvctxConnector":
        config["kv_connector_module_path"] = "kvctx.vllm"
    else:
        extra.update(spec_name="KvctxOffloadingSpec", spec_module_path="kvctx.vllm")
    return config


class Engine:
    """An LLM on the CPU with the model in $KVCTX_MODEL."""

    def __init__(self, block=32, blocks=128, **arguments):
        self.llm = LLM(model=os.environ["KVCTX_MODEL"], skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
                       max_model_len=1024, seed=0, block_size=block, enable_prefix_caching=True,
                       num_gpu_blocks_override=blocks, **arguments)

    def ask(self, prompt, tokens=12):
        """(hash of tokens and logprobs, prompt tokens that were not computed)"""
        how = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False, logprobs=5, ignore_eos=True)
        answer = self.llm.generate([{"prompt_token_ids": prompt}], how, use_tqdm=False)[0]
        logprobs = repr([sorted((k, v.logprob) for k, v in step.items()) for step in answer.outputs[0].logprobs])
        return hashlib.sha256(logprobs.encode()).hexdigest()[:12], answer.num_cached_tokens

    def round(self, prompts=PROMPTS):
        """Ask all, of an engine that has nothing in its own prefix cache. (hashes, cached tokens)"""
        self.llm.reset_prefix_cache()
        answers = [self.ask(p) for p in prompts]
        return [a[0] for a in answers], [a[1] for a in answers]

    def connector(self):
        """The worker's half of the connector, where engine and worker are in this process."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group
        return get_kv_transfer_group().connector_worker

    def scheduler(self):
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    def worker(self):
        return self.connector().worker

    def end(self):
        self.llm.llm_engine.engine_core.shutdown()


class Router:
    """Hears an engine's events of the medium STORAGE, as routers do: by ZeroMQ, where its kv_events_config says.

    stored: the events of that kind. here: hashes of the blocks that it believes to be there. gone: how many it was told
    of that are not there any more.
    """

    def __init__(self, engine):
        publisher = engine.scheduler().kv_event_publisher
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.connect(publisher.get_publisher_config().endpoint)
        self._socket.subscribe(b"")
        self.stored, self.here, self.gone = [], set(), 0
        for _ in range(600):
            publisher.publish(KVEventBatch(ts=0.0, events=[]))
            if self._socket.poll(100):
                return
        raise AssertionError("the router hears nothing")

    def hear(self):
        while self._socket.poll(300):
            batch = msgspec.msgpack.decode(self._socket.recv_multipart()[2], type=KVEventBatch)
            for event in batch.events:
                if getattr(event, "medium", None) != "STORAGE":
                    continue
                if isinstance(event, BlockStored):
                    self.stored.append(event)
                    self.here.update(event.block_hashes)
                else:
                    assert self.here.issuperset(event.block_hashes), "never told"
                    self.here.difference_update(event.block_hashes)
                    self.gone += len(event.block_hashes)

    def close(self):
        self._socket.close()


class Run:
    """A process, mostly with an engine."""

    def __init__(self, work, arguments, main):
        self._mine, theirs = _fork.Pipe()
        self._process = _fork.Process(target=main, args=(work, arguments, theirs))
        self._process.start()
        theirs.close()

    def hear(self):
        """What the work says next."""
        if not self._mine.poll(START_S):
            raise AssertionError("the engine says nothing")
        try:
            kind, what = self._mine.recv()
        except EOFError:
            self._process.join()
            raise AssertionError(f"the engine has died ({self._process.exitcode})") from None
        if kind == "raised":
            raise AssertionError(what)
        return what

    def tell(self, what):
        self._mine.send(what)

    def result(self):
        what = self.hear()
        self._process.join(60)
        assert self._process.exitcode == 0, f"exit status {self._process.exitcode}"
        return what

    def stop(self):
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _apart(work, arguments, pipe):
    try:
        pipe.send(("result", work(*arguments)))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


def apart(work, *arguments):
    """work(*arguments) in a process of its own. The parent must not serve a pool itself: its children could not."""
    return Run(work, arguments, _apart).result()


def _main(work, arguments, pipe):
    try:
        engine = Engine(**arguments)
        result = work(engine, pipe)
        if "kv_transfer_config" in arguments and os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0" and \
           "distributed_executor_backend" not in arguments:
            moved = engine.worker()._transfers
            time.sleep(0.1)
            engine.end()
            result = dict(result, loaded=moved.loaded.pages, stored=moved.stored.pages, failed=moved.loaded.failed)
        else:
            engine.end()
        pipe.send(("result", result))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))
        raise


def start(work, **arguments):
    return Run(work, arguments, _main)


def run(work, **arguments):
    return start(work, **arguments).result()
