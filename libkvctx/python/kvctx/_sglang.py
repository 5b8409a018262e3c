# SPDX-License-Identifier: LGPL-2.1-or-later
"""What kvctx.sglang knows of SGLang's objects: its options, host pools, names of pages, and how far a prefix goes.

Imports nothing of SGLang: what is asked of an object is asked by the names of its attributes.
"""
from __future__ import annotations

import hashlib
import logging
from array import array
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

logger = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds after which an operation that the device has not begun is given up, by who serves the pool
REPLICATED_CLASSES = ("MLATokenToKVPoolHost", "DeepSeekV4PagedHostPool")
OPTIONS = ("path", "max_bytes", "keyspace", "entries", "timeout")
SGLANGS_OWN = ("backend_name", "module_path", "class_name", "interface_v1")


class Settings(NamedTuple):
    """Our part of the extra config.

    path: the tenant, as of kvctx.Session. max_bytes: makes a pool of so many bytes in a file where there is none, 0:
    does not. keyspace: any text; servers with different ones do not see each other's pages. entries: pages in flight.
    timeout: seconds, as TIMEOUT.
    """
    path: str
    max_bytes: int = 0
    keyspace: str = ""
    entries: int = 1024
    timeout: float = TIMEOUT

    @classmethod
    def of(cls, extra: Dict[str, Any]) -> Settings:
        """Raises ValueError for what the user got wrong."""
        unknown = sorted(set(extra) - set(OPTIONS) - set(SGLANGS_OWN))
        if unknown:
            raise ValueError(f"kvctx: unknown in the extra config: {', '.join(unknown)}; known: {', '.join(OPTIONS)}")
        if not extra.get("path"):
            raise ValueError("kvctx: the extra config needs \"path\", as /run/kvctx/kv0/default")
        given = {k: type(cls._field_defaults.get(k, ""))(extra[k]) for k in OPTIONS if k in extra}
        return cls(**given)


def _tensors(found: Any) -> List[Any]:
    """The tensors in what a host pool calls its buffer: one, or lists of them, or None."""
    if found is None:
        return []
    if isinstance(found, (list, tuple)):
        return [t for part in found for t in _tensors(part)]
    return [found]


def span(tensor: Any) -> Tuple[int, int]:
    """(address, bytes) of a tensor."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


class HostPool:
    """What we know of one host pool.

    host: SGLang's object. sharded: whether ranks hold different bytes. tokens: indices a page. flat: it cannot tell
    where a page is. logical: it has no bytes at all, only indices. shape: all that its bytes depend on but the model.

    arguments: what the server was told of the dtype of KV, by name.
    """

    def __init__(self, name: str, host: Any, replicated: bool, arguments: Mapping[str, str] = {}) -> None:
        self.name, self.host = name, host
        self.sharded = not replicated or name == "mamba" or (
            name in ("draft", "draft_swa") and not any(c.__name__ in REPLICATED_CLASSES for c in type(host).__mro__))
        self.tokens: int = getattr(host, "logical_page_size", None) or getattr(host, "page_size", 1) or 1
        self.logical = not self.spans() and getattr(host, "kv_buffer", None) is None
        sizes = () if self.logical else self._sizes()
        self.flat = not sizes
        self.shape = "|".join(str(part) for part in (
            name, type(host).__name__, getattr(host, "layout", ""), getattr(host, "dtype", ""), self.tokens,
            getattr(host, "start_layer", ""), getattr(host, "end_layer", ""), sizes, *self._types(arguments)))

    def _types(self, arguments: Mapping[str, str]) -> List[str]:
        """What the host's dtype does not tell of the bytes: SGLang keeps FP8 and FP4 of all kinds as torch.uint8.

        Nothing where there is nothing more to tell, so that pages of other dtypes keep their names.
        """
        host, kept = self.host, str(getattr(self.host, "dtype", ""))
        device = getattr(getattr(host, "device_pool", None), "dtype", None)
        known = {"device": device, "temporal": getattr(host, "temporal_dtype", None)}
        more = [f"{what}={dtype}" for what, dtype in known.items() if dtype is not None and str(dtype) != kept]
        if not kept.endswith("uint8"):
            return more
        if "kv_cache_dtype" not in arguments and device is None:
            logger.warning("kvctx: nothing tells the dtype of the bytes in the host pool %s: give servers whose KV "
                           "cache has another dtype another \"keyspace\"", self.name)
        return more + [f"{what}={value}" for what, value in sorted(arguments.items())]

    def spans(self) -> List[Tuple[int, int]]:
        """Its memory: (address, bytes) each."""
        found = _tensors(getattr(self.host, "kv_buffer", None))
        if not found and hasattr(self.host, "get_hybrid_pool_buffer"):
            found = _tensors(self.host.get_hybrid_pool_buffer())
        return [span for span in map(span, found) if span[1]]

    def _sizes(self) -> Tuple[int, ...]:
        """Bytes of the pieces of its first page; none when it cannot tell."""
        import torch
        try:
            meta = self.host.get_page_buffer_meta(torch.arange(self.tokens))
        except (AttributeError, NotImplementedError, ValueError) as why:
            logger.info("kvctx: pages of the host pool %s are copied: %s", self.name, why)
            return ()
        return tuple(meta[1]) if meta else ()

    def pieces(self, indices: Any, pages: int) -> Tuple[array, array, Optional[array], int]:
        """Where pages are: addresses and lengths of all pieces, pieces a page (None: one), bytes of a page."""
        if len(indices) != pages * self.tokens:
            raise ValueError(f"{self.name}: {len(indices)} indices for {pages} pages of {self.tokens}")
        addrs, lens = self.host.get_page_buffer_meta(indices)
        each, rest = divmod(len(addrs), pages)
        size = sum(lens[:each])
        if rest or sum(lens) != size * pages:
            raise ValueError(f"{self.name}: {len(addrs)} pieces for {pages} pages, {sum(lens)} bytes")
        return array("Q", addrs), array("I", lens), None if each == 1 else array("I", [each]) * pages, size


def digest(name: str) -> bytes:
    """32 bytes for SGLang's name of a page: its SHA-256 in hexadecimal, or what else it may become."""
    if len(name) == 64:
        try:
            return bytes.fromhex(name)
        except ValueError:
            pass
    return hashlib.sha256(name.encode()).digest()


def leading(present: Sequence[bool]) -> int:
    """How many are true before the first that is not."""
    return next((n for n, p in enumerate(present) if not p), len(present))


def windows(present: Sequence[bool], size: int) -> List[int]:
    """Lengths of prefixes that end with so many pages which are here, or with all where there are fewer."""
    found, run = [], 0
    for n, p in enumerate(present, 1):
        run = run + 1 if p else 0
        if run >= min(size, n):
            found.append(n)
    return found


def name_of(pool_name: Any) -> str:
    """PoolName is an Enum of str, whose text is its value; others are str."""
    return str(getattr(pool_name, "value", pool_name))


def depth_of(extra_info: Any) -> int:
    """Position of the first page in its prompt, from 1; 0: unknown."""
    before = getattr(extra_info, "prefix_keys", None)
    return len(before) + 1 if before is not None else 0


def contiguous(tensor: Any) -> Any:
    if not tensor.is_contiguous():
        raise ValueError("a page is loaded into a contiguous tensor")
    return tensor
