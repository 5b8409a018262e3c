# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many threads at once, with this interpreter and with one that has no GIL. What they do: stress.py."""
import os
import shutil
import subprocess
import threading

import pytest
import stress

SECONDS = 1.0


@pytest.mark.parametrize("thing", stress.ALL, ids=lambda thing: thing.__name__)
def test_threads_at_once(pool, thing):
    thing(pool, SECONDS)


def test_threads_at_once_without_a_gil(pool):
    """KVCTX_PYTHON_NOGIL names an interpreter; python3.14t or python3.13t of the path otherwise."""
    python = os.environ.get("KVCTX_PYTHON_NOGIL") or shutil.which("python3.14t") or shutil.which("python3.13t")
    if not python:
        pytest.skip("neither python3.14t nor python3.13t is here, and KVCTX_PYTHON_NOGIL names none")
    r = subprocess.run([python, "-X", "dev", stress.__file__, pool.path, str(SECONDS)], capture_output=True, text=True,
                       timeout=55, env={**os.environ, "PYTHON_GIL": "0"})
    assert (r.returncode, r.stderr) == (0, "") and "without a GIL" in r.stdout, r.stderr


def test_a_call_that_only_seems_to_go_on_does_not_keep_its_thread_from_closing(pool):
    """As Python 3.9 leaves one when a handler raises between its end and its "finally"."""
    s = pool.session()
    s._inside[object()] = threading.get_ident()
    s.close()
    assert s.closed and not s._inside
