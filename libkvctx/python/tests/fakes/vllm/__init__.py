# SPDX-License-Identifier: LGPL-2.1-or-later
"""What kvctx.vllm needs of vLLM 0.32.0, as small as it can be: names, signatures and rules that were read there.

install() puts it in the place of vLLM; the modules that kvctx.vllm imports are made of this one file.
"""
import enum
import json
import logging
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Optional


class LoadStoreSpec:
    pass


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class CacheHitSource(str, enum.Enum):
    DISK = "disk"


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


class OffloadPolicy(enum.Enum):
    CHUNK_LEVEL = "chunk_level"


@dataclass
class RequestOffloadingContext:
    policy: OffloadPolicy = OffloadPolicy.CHUNK_LEVEL


@dataclass
class PrepareStoreOutput:
    keys_to_store: list
    store_spec: LoadStoreSpec
    evicted_keys: list


@dataclass
class OffloadingEvent:
    keys: list
    medium: Medium
    removed: bool
    locality: Optional[Locality] = None
    ownership: Optional[str] = None
    removal_expected: bool = False


@dataclass
class TransferResult:
    job_id: int
    success: bool
    transfer_size: Optional[int] = None
    transfer_time: Optional[float] = None


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Any = None
    transfer_time: Optional[float] = None
    transfer_bytes: Optional[int] = None


@dataclass
class TransferJob:
    job_id: int
    keys: list
    chunk_ids: Any
    is_promotion: bool
    req_context: Any


@dataclass
class ReqContext:
    req_id: str
    ends: dict = field(default_factory=dict)

    def get_offload_key_position(self, key):
        return self.ends.get(key)


class OffloadingManager(ABC):
    @abstractmethod
    def lookup(self, key, req_context): ...

    @abstractmethod
    def prepare_load(self, keys, req_context): ...

    @abstractmethod
    def prepare_store(self, keys, req_context): ...

    @abstractmethod
    def on_new_request(self, req_context): ...


class OffloadingWorker(ABC):
    @abstractmethod
    def submit_store(self, job_id, src_spec, dst_spec): ...

    @abstractmethod
    def submit_load(self, job_id, src_spec, dst_spec): ...

    @abstractmethod
    def get_finished(self): ...

    @abstractmethod
    def wait(self, job_ids): ...


class OffloadingSpec(ABC):
    def __init__(self, config):
        self.config, self.extra_config, self.replicated_layout = config, config.extra_config, False
        self.kv_events_config = types.SimpleNamespace(enable_kv_cache_events=config.enable_kv_cache_events)

    @abstractmethod
    def get_manager(self): ...

    @abstractmethod
    def get_worker(self, kv_caches): ...


class SecondaryTierManager(ABC):
    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        self._primary_kv_view, self.tier_type, self.locality = primary_kv_view, tier_type, None
        self.block_size_bytes = primary_kv_view.strides[0]

    @abstractmethod
    def lookup(self, key, req_context): ...

    @abstractmethod
    def submit_store(self, job_metadata): ...

    @abstractmethod
    def submit_load(self, job_metadata): ...

    @abstractmethod
    def get_finished_jobs(self): ...

    @abstractmethod
    def on_new_request(self, req_context): ...

    @abstractmethod
    def drain_jobs(self): ...


@dataclass
class ModelConfig:
    model: str = "m"
    layers: int = 4  # in the real one's model_arch_config
    hf_overrides: Any = field(default_factory=dict)
    quantization: Any = None
    revision: Any = None

    def get_total_num_hidden_layers(self):
        return self.layers

    @property
    def hf_config(self):
        config = HfConfig({"num_hidden_layers": self.layers})
        if callable(self.hf_overrides):
            return self.hf_overrides(config)
        config.values.update(self.hf_overrides)
        return config


@dataclass
class HfConfig:
    """Of transformers: PretrainedConfig."""
    values: dict

    def to_json_string(self, use_diff=True):
        return json.dumps(self.values, sort_keys=True)


@dataclass
class ParallelConfig:
    pipeline_parallel_size: int = 1


@dataclass
class SpeculativeConfig:
    """draft_model_config: a ModelConfig; None for methods without a model, as suffix."""
    method: str
    draft_model_config: Optional[ModelConfig] = None
    kv_cache_dtype: Optional[str] = None


@dataclass
class VllmConfig:
    kv_transfer_config: Any
    model_config: ModelConfig = field(default_factory=ModelConfig)
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    speculative_config: Optional[SpeculativeConfig] = None


@dataclass
class KVConnectorTransferResults:
    finished_sending: set = field(default_factory=set)
    finished_recving: set = field(default_factory=set)
    failed_recving: set = field(default_factory=set)


class OffloadingConnectorWorker:
    """Asserts that transfers succeed, as the real one does."""

    def __init__(self, spec):
        self.spec, self.worker, self._load_jobs = spec, None, {}

    def get_finished(self, finished_req_ids):
        done = set()
        for result in self.worker.get_finished():
            assert result.success
            if result.job_id in self._load_jobs:
                done.add(self._load_jobs.pop(result.job_id))
        return set(), done


class OffloadingConnector:
    spec_class: Any = None  # set by a test

    def __init__(self, vllm_config, role, kv_cache_config):
        self.connector_worker = OffloadingConnectorWorker(self.spec_class)
        self._connector_metadata = None

    def register_kv_caches(self, kv_caches):
        self.connector_worker.worker = self.connector_worker.spec.get_worker(kv_caches)

    def start_load_kv(self, forward_context, **kwargs):
        for job_id, job in self._connector_metadata.load_jobs.items():
            self.connector_worker._load_jobs[job_id] = job.req_id
            assert self.connector_worker.worker.submit_load(job_id, job.src_spec, job.dst_spec)

    def get_transfer_results(self, finished_req_ids):
        sent, received = self.connector_worker.get_finished(finished_req_ids)
        return KVConnectorTransferResults(sent, received)

    def get_block_ids_with_load_errors(self):
        return set()


def make_offload_key(block_hash, group_idx):
    return block_hash + group_idx.to_bytes(4, "big", signed=False)


def init_logger(name):
    return logging.getLogger(name)


_MODULES = ("vllm.v1", "vllm.v1.kv_offload", "vllm.v1.kv_offload.base", "vllm.v1.kv_offload.tiering",
            "vllm.v1.kv_offload.tiering.base", "vllm.v1.metrics", "vllm.v1.metrics.cache_hit_source", "vllm.logger",
            "vllm.distributed", "vllm.distributed.kv_transfer", "vllm.distributed.kv_transfer.kv_connector",
            "vllm.distributed.kv_transfer.kv_connector.v1",
            "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector")


def install():
    """Be vLLM, in this process."""
    me = sys.modules[__name__]
    sys.modules["vllm"] = me
    for name in _MODULES:
        sys.modules[name] = me
