# SPDX-License-Identifier: LGPL-2.1-or-later
"""vLLM on the CPU with an LMCache server whose L2 is kvctx: restart.py ENGINES DIR

The server is killed while it stores, restarted, fed, and restarted with an empty L1. Whatever it has then comes from L2
alone; the logprobs have to be those of vLLM without any of this.
"""
import atexit
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from kvctx.lmcache.keeper import FLUSH_S

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS, PROMPT_TOKENS, CHUNK_TOKENS = 3, 400, 64
PROMPT_CHUNKS = PROMPT_TOKENS // CHUNK_TOKENS  # whole ones
CHUNKS = PROMPTS * PROMPT_CHUNKS
START_S, STORE_S = 120, 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`lmcache server` with the pool in a folder. .port: for vLLM."""

    def __init__(self, engines, folder):
        self.port, self._http = free_port(), free_port()
        adapter = {"type": "plugin", "module_path": "kvctx.lmcache", "class_name": "KvctxL2Adapter",
                   "adapter_params": {"path": os.path.join(folder, "kv0", "default"), "max_bytes": 256 << 20}}
        self._process = subprocess.Popen(
            [os.path.join(engines, "lmcache", "bin", "lmcache"), "server", "--host", "127.0.0.1",
             "--port", str(self.port), "--http-host", "127.0.0.1", "--http-port", str(self._http),
             "--prometheus-port", str(free_port()), "--disable-observability", "--chunk-size", str(CHUNK_TOKENS),
             "--l1-size-gb", "1", "--l1-init-size-gb", "1", "--no-l1-use-lazy", "--eviction-policy", "LRU",
             "--l2-adapter", json.dumps(adapter)])
        atexit.register(self._process.kill)
        end = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.2)

    def _answers(self):
        try:
            self._get("healthcheck")
            return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def _get(self, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/{what}", timeout=10) as answer:
            return json.load(answer)

    def status(self):
        """report_status() of the adapter."""
        found = []

        def look(part):
            if isinstance(part, dict):
                if part.get("type") == "KvctxL2Adapter":
                    found.append(part)
                part = list(part.values())
            if isinstance(part, list):
                for one in part:
                    look(one)

        look(self._get("status"))
        return found[0]

    def wait_stored(self, chunks):
        """The status when so many are stored, or after STORE_S."""
        end = time.monotonic() + STORE_S
        while True:
            status = self.status()
            if status["stored_object_count"] >= chunks or time.monotonic() > end:
                return status
            time.sleep(0.1)

    def end(self, how=signal.SIGTERM):
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(60)


class Engine:
    """A vLLM in a process of its own."""

    def __init__(self, engines, model, *arguments):
        packages, = glob.glob(os.path.join(engines, "lmcache", "lib", "python3*", "site-packages"))
        self._process = subprocess.Popen(
            [os.path.join(engines, "vllm", "bin", "python"), os.path.join(HERE, "generate.py"), model,
             *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "LMCACHE_PACKAGES": packages})
        atexit.register(self._process.kill)

    def answer(self):
        """(hash, tokens not computed) of the next prompt"""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            told = re.match(r"answer (\w+) (\d+)", line)
            if told:
                print("vllm:", line, end="", flush=True)
                return told[1], int(told[2])
        raise RuntimeError("vLLM has ended")

    def answers(self):
        """([hash], [tokens not computed]) of all prompts"""
        told = [self.answer() for _ in range(PROMPTS)]
        return [h for h, _ in told], [n for _, n in told]

    def end(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)

    def kill(self):
        self._process.kill()
        self.end()


def ask(engines, model, *port):
    """As Engine.answers(), of an engine for that alone."""
    engine = Engine(engines, model, *port)
    answers = engine.answers()
    engine.end()
    return answers


def told(name, wrong):
    print(f"FAILED {name}: {wrong}" if wrong else f"ok {name}", flush=True)


def main(engines, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model = os.path.join(folder, "model")
    make = os.path.join(HERE, "..", "vllm", "model.py")
    subprocess.run([os.path.join(engines, "vllm", "bin", "python"), make, model],
                   check=True)
    truth, cached = ask(engines, model)
    told("vLLM alone computes all", any(cached))

    server = Server(engines, folder)
    engine = Engine(engines, model, server.port)
    first = engine.answer()
    server.wait_stored(PROMPT_CHUNKS)
    time.sleep(FLUSH_S + 2)
    second = engine.answer()
    server.end(signal.SIGKILL)  # the chunks of the second prompt are on their way
    engine.kill()
    told("before the kill: logprobs as without LMCache", [first[0], second[0]] != truth[:2])

    server = Server(engines, folder)
    before = server.status()
    found = before["stored_object_count"]
    engine = Engine(engines, model, server.port)
    hashes, cached = engine.answers()
    told(f"killed in mid-store, restarted: {found} of {CHUNKS} chunks are there, {cached} of {PROMPT_TOKENS} tokens "
         "come from them, logprobs as without LMCache",
         hashes != truth and f"{hashes}, not {truth}" or not PROMPT_CHUNKS <= found < CHUNKS and before)
    after = server.wait_stored(CHUNKS)
    engine.end()
    server.end()
    told(f"all {CHUNKS} chunks are stored", after["stored_object_count"] != CHUNKS and after)

    server = Server(engines, folder)
    hashes, cached = ask(engines, model, server.port)
    status = server.status()
    server.end()
    told("restarted with an empty L1: logprobs as without LMCache", hashes != truth and f"{hashes}, not {truth}")
    told(f"{cached} of {PROMPT_TOKENS} tokens each come from L2, {status['loaded_object_count']} chunks",
         (min(cached) != PROMPT_CHUNKS * CHUNK_TOKENS or status["loaded_object_count"] != CHUNKS) and status)
    bad = status["corrupt_object_count"] or status["copied_object_count"] or not status["l1_bytes_registered"]
    told("none was damaged, none copied on the way", bad and status)
    shutil.rmtree(folder)


main(*sys.argv[1:])
