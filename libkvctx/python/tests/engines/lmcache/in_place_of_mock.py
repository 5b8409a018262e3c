# SPDX-License-Identifier: LGPL-2.1-or-later
"""A plugin of pytest (-p in_place_of_mock): LMCache's own tests, with KvctxL2Adapter where they have MockL2Adapter.

Each adapter has a pool of its own, in a file below KVCTX_TEST_DIR. The class keeps the mock's name and has its methods
for tests, answered by kvctx. What is about the mock and no adapter is left out, each test with the reason.
"""
import os
import shutil
import tempfile
import threading
from collections import Counter
from functools import partial

import pytest

import lmcache.v1.distributed.l2_adapters.mock_l2_adapter as mock
from lmcache.v1.platform import torch_dev
from kvctx.lmcache import KvctxL2Adapter
from kvctx.lmcache import keys as names

POOL = {"max_bytes": 192 << 20, "segment_bytes": 16 << 20}

LEFT_OUT = {"test_store_completion_is_delayed_by_bandwidth": "the mock's simulated bandwidth"}


class MockL2Adapter(KvctxL2Adapter):
    """KvctxL2Adapter with the constructor and the methods for tests of LMCache's mock."""

    def __init__(self, config, l1_memory_desc=None):
        self._dir = tempfile.mkdtemp(dir=os.environ["KVCTX_TEST_DIR"])
        super().__init__({"path": f"{self._dir}/pool/default", **POOL}, l1_memory_desc)
        self._max_capacity_bytes = int(config.max_size_gb * (1 << 30))
        self._load_rate = config.mock_bandwidth_gb * (1 << 30)

    def _load_done(self, task, nr, places, keys, pages, lens, result):
        """Tests of what happens while a load is in flight ask for slow ones."""
        delay = sum(lens) / self._load_rate
        done = partial(super()._load_done, task, nr, places, keys, pages, lens, result)
        if delay < 0.05:
            done()
        else:
            timer = threading.Timer(delay, done)
            timer.daemon = True
            timer.start()

    def debug_get_stored_object_count(self):
        return self._link.session.usage().pages

    def debug_get_locked_key_count(self):
        return len(self._locks)

    def debug_has_key(self, key):
        return self._link.session.query(names.pack([key]))[0] >= 0

    def close(self):
        super().close()
        shutil.rmtree(self._dir, ignore_errors=True)


mock.MockL2Adapter = MockL2Adapter
type(torch_dev).is_available = lambda *_: True  # files of tests that want a GPU skip themselves, and need none


def pytest_terminal_summary(terminalreporter):
    """A line for each file of which tests passed, and for each test that did not."""
    stats, say = terminalreporter.stats, terminalreporter.write_line
    say("")
    for name, n in Counter(r.location[0] for r in stats.get("passed", ())).items():
        say(f"ok {os.path.basename(name)}: {n} tests")
    for r in stats.get("skipped", ()):
        say(f"skipped {os.path.basename(r.nodeid)}: {r.longrepr[2]}")
    for r in stats.get("failed", []) + stats.get("error", []):
        say(f"FAILED {os.path.basename(r.nodeid)}")


def pytest_collection_modifyitems(items):
    for item in items:
        why = LEFT_OUT.get(item.originalname if hasattr(item, "originalname") else item.name)
        if why:
            item.add_marker(pytest.mark.skip(reason=f"not of an adapter: {why}"))
