# SPDX-License-Identifier: LGPL-2.1-or-later
"""The slots that pages in memory that was never registered pass through.

One Stage a session. There are none until they are needed; then they have the length of the longest such page, and are
made anew when a longer one comes, as soon as no page is on its way through the former. So the memory is bounded:
STAGE_BYTES, or two of the longest page. The library copies and hands out the slots (kvctx_stage_init_at()).

Threads: any may call; one makes slots at a time.
"""
from __future__ import annotations

import ctypes
import errno
import threading
from typing import Any

from ._interrupted import gives_back
from ._lib import lib
from .memory import shared_memory, view

STAGE_BYTES = 16 << 20
_ALIGN = 4096
_LOOK_NS = 1_000_000


class Stage:
    """page_len_max: bytes; longer pages are refused whatever their memory, so slots need not hold them."""

    def __init__(self, handle: int, page_len_max: int) -> None:
        self._handle, self._page_len_max = handle, page_len_max
        self._lock = threading.RLock()  # for gives_back()
        self._making = False
        self._slot_bytes = 0
        self._id = ctypes.c_uint32()
        self.memory: Any = None  # what keeps the slots there

    @gives_back
    def fit(self, nbytes: int) -> int:
        """Have slots of nbytes at least: 0, or -errno.

        -EBUSY: pages are on their way through shorter ones. -EDEADLK: in a handler of a signal that came in here.
        """
        size = (min(nbytes, self._page_len_max) + _ALIGN - 1) // _ALIGN * _ALIGN
        with self._lock:
            if size <= self._slot_bytes:
                return 0
            if self._making:  # further up in this thread: we are in a signal's handler
                return -errno.EDEADLK
            self._making = True
            try:
                return self._make_anew(size)
            finally:
                self._making = False

    def _make_anew(self, size: int) -> int:
        # a signal's handler may raise behind any call: what is registered is held, and the next one here goes on
        former, self._slot_bytes = self._slot_bytes, 0
        ret = self._drop()
        if ret:
            self._slot_bytes = former
        return ret or self._make(size, max(2, STAGE_BYTES // size))

    def _drop(self) -> int:
        ret = lib.kvctx_stage_init_at(self._handle, None, None, 0, 0, 0)
        if not ret and self._id.value:
            id, self._id = self._id, ctypes.c_uint32()  # before, since another may get the number
            lib.kvctx_mem_unregister(self._handle, id)
            self.memory = None
        return ret

    def _make(self, size: int, slots: int) -> int:
        try:
            memory = view(shared_memory(slots * size), True)
        except OSError as e:
            return -(e.errno or errno.ENOMEM)
        self.memory = memory
        ret = lib.kvctx_mem_register(self._handle, memory.address, memory.nbytes, self._id)
        if not ret:
            ret = lib.kvctx_stage_init_at(self._handle, None, None, memory.address, slots, size)
        if not ret:
            self._slot_bytes = size
        return ret

    def wait(self) -> None:
        """After -EBUSY: bring pages that are on their way further, for a moment, whosever they are."""
        lib.kvctx_wait(self._handle, 0xffffffff, _LOOK_NS)
