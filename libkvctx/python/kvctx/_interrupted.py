# SPDX-License-Identifier: LGPL-2.1-or-later
"""Locks of methods that a signal's handler may leave by raising.

"with" of a lock of C lets go of it whatever a handler raises, from Python 3.10 on. Python 3.9 also looks for signals
between the end of the block and the call of __exit__, and the lock would be that thread's for ever.
"""
from __future__ import annotations

import sys
from functools import wraps
from typing import Any, Callable, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _giving_back(method: Any) -> Any:
    @wraps(method)
    def call(self: Any, *args: Any) -> Any:
        lock = self._lock
        owned = lock._is_owned()  # as threading.Condition asks
        try:
            return method(self, *args)
        except BaseException:
            while not owned and lock._is_owned():
                lock.release()
            raise

    return call


def gives_back(method: _Method) -> _Method:
    """A method that, when it raises, leaves the RLock self._lock to others if it found it so."""
    return _giving_back(method) if sys.version_info < (3, 10) else method
