# SPDX-License-Identifier: LGPL-2.1-or-later
"""The fakes of an engine's classes (tests/fakes) have what the engine itself has: agree.py lmcache|sglang|vllm

In the engine's own environment. Of a class each method and member of the fake has to be the engine's, too, with the
same parameters first, and defaults for those that the fake has not (code in C does not tell); of an enumeration each
member, with its value. Some are made in a way of their own: there all but the constructor is compared. Host pools of
SGLang's are not: prove.py has them.

Prints "ok ..." for each name, and "FAILED ..." for one that differs; status 1 when any did.
"""
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import os
import sys

FAKES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fakes")

# where the engine has what the fake has; of two places the first that has the name
PLACES = {
    "lmcache": ["lmcache.lmcache_native", "lmcache.v1.distributed.l2_adapters.base",
                "lmcache.v1.distributed.internal_api", "lmcache.v1.distributed.api", "lmcache.v1.platform",
                "lmcache.v1.memory_management"],
    "sglang": ["sglang.srt.mem_cache.hicache_storage", "sglang.srt.observability.metrics_collector"],
    "vllm": ["vllm.v1.kv_offload.base", "vllm.v1.kv_offload.tiering.base", "vllm.v1.metrics.cache_hit_source",
             "vllm.config", "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
             "vllm.distributed.kv_transfer.kv_connector.v1.base", "vllm.logger"],
}
# the tests' own
OURS = {"lmcache": {"install"}, "vllm": {"install", "HfConfig", "ModelConfig.layers", "OffloadingConnector.spec_class"},
        "sglang": {"install", "Config", "Tensor", "Indices", "indices", "torch", "HostKVCache", "MLATokenToKVPoolHost",
                   "WithoutPieces", "LogicalHostPool"}}
# made in a way of its own, or with more for the tests
MADE = {"lmcache": {"Bitmap", "MemoryObj", "EventNotifier"}, "sglang": set(),
        "vllm": {"ModelConfig", "ParallelConfig", "SpeculativeConfig", "VllmConfig", "OffloadingConnectorWorker",
                 "OffloadingConnector", "ReqContext"}}


def fake_of(engine):
    path = os.path.join(FAKES, engine, "__init__.py")
    if not os.path.exists(path):
        path = os.path.join(FAKES, engine + ".py")
    spec = importlib.util.spec_from_file_location(f"fake_{engine}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def parameters(function):
    """None: it does not tell, as one in C."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def differ(what, fake, real):
    """How parameters of functions do."""
    mine, theirs = parameters(fake), parameters(real)
    if mine is None or theirs is None:
        return []
    names = [p.name for p in mine]
    if [p.name for p in theirs][:len(names)] != names:
        return [f"{what}({', '.join(names)}) is {what}({', '.join(p.name for p in theirs)})"]
    return [f"{what} needs {p.name}" for p in theirs[len(names):] if p.default is p.empty]


def members(fake):
    """What a class of the fake has, but for what it inherits from elsewhere."""
    own = [c for c in fake.__mro__ if c.__module__ == fake.__module__]
    return {name: value for c in reversed(own) for name, value in vars(c).items() if not name.startswith("__")}


def classes_differ(engine, fake, real):
    name = fake.__name__
    if issubclass(fake, enum.Enum):
        return [f"{name}.{m.name} is {getattr(real, m.name, 'absent')!r}" for m in fake
                if getattr(real, m.name, None) is None or real[m.name].value != m.value]
    fields = [f.name for f in dataclasses.fields(real)] if dataclasses.is_dataclass(real) else []
    found = []
    for member, value in members(fake).items():
        value = getattr(value, "__func__", value)  # of class and static methods
        if f"{name}.{member}" in OURS[engine]:
            continue
        if not hasattr(real, member) and member not in fields:
            found.append(f"{name}.{member} is absent")
        elif inspect.isfunction(value):
            there = getattr(real, member)
            found += differ(f"{name}.{member}", value, getattr(there, "__func__", there))
    return found if name in MADE[engine] else found + differ(name, fake, real)


def compare(engine):
    """{name: what differs}"""
    fake, places = fake_of(engine), [importlib.import_module(place) for place in PLACES[engine]]
    found = {}
    for name, value in vars(fake).items():
        if getattr(value, "__module__", None) != fake.__name__ or name.startswith("_") or name in OURS[engine]:
            continue
        real = [getattr(place, name) for place in places if hasattr(place, name)]
        if not real:
            found[name] = ["it is nowhere"]
        else:
            found[name] = (classes_differ(engine, value, real[0]) if inspect.isclass(value)
                           else differ(name, value, real[0]))
    return found


def main():
    found = compare(sys.argv[1])
    for name, differences in found.items():
        print("\n".join(f"FAILED the fake of {sys.argv[1]}: {d}" for d in differences) or
              f"ok the fake of {sys.argv[1]}: {name}")
    return 1 if any(found.values()) or not found else 0


if __name__ == "__main__":
    sys.exit(main())
