# SPDX-License-Identifier: LGPL-2.1-or-later
"""What ctypes has of C is what C has: layouts and names of pages."""
import ctypes
import hashlib
import os
import subprocess

import pytest

import kvctx
from kvctx import _lib

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "..")
STRUCTURES = {"kvctx_params": _lib.Params, "kvctx_pool_params": _lib.PoolParams, "kvctx_info": _lib.Info,
              "kvctx_key": _lib.Key, "kvctx_sqe": _lib.Sqe, "kvctx_cqe": _lib.Cqe, "kvctx_batch": _lib.Batch}
CONSTANTS = {"KVCTX_OP_STORE": _lib.OP_STORE, "KVCTX_OP_LOAD": _lib.OP_LOAD, "KVCTX_OP_DELETE": _lib.OP_DELETE,
             "KVCTX_OP_QUERY": _lib.OP_QUERY, "KVCTX_OP_FLUSH": _lib.OP_FLUSH, "KVCTX_OP_MATCH": _lib.OP_MATCH,
             "KVCTX_OP_NO_VERIFY": _lib.OP_NO_VERIFY, "KVCTX_OP_REPLACE": _lib.OP_REPLACE,
             "KVCTX_OP_MATCH_LEASE": _lib.OP_MATCH_LEASE, "KVCTX_OP_MATCH_PREFETCH": _lib.OP_MATCH_PREFETCH,
             "KVCTX_OP_MATCH_ALL": _lib.OP_MATCH_ALL, "sizeof(struct kvctx_key)": _lib.KEY_BYTES,
             "sizeof(struct kvctx_found)": ctypes.sizeof(_lib.Found), "KVCTX_SESSION_RDONLY": 1,
             "KVCTX_PRIO_URGENT": kvctx.URGENT, "KVCTX_PRIO_BACKGROUND": kvctx.BACKGROUND,
             **{f"KVCTX_CQE_{n}": v for n, v in _lib.CQE_FLAGS.items()},
             **{f"KVCTX_FEAT_{n}": v for n, v in _lib.FEATURES.items()}}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the compiler says: {text: number}."""
    wanted = list(CONSTANTS)
    for name, structure in STRUCTURES.items():
        wanted.append(f"sizeof(struct {name})")
        for field, _ in structure._fields_:
            wanted.append(f"offsetof(struct {name}, {field})")
            wanted.append(f"sizeof(((struct {name} *)0)->{field})")
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({w}));' for w in wanted)
    dir = tmp_path_factory.mktemp("abi")
    (dir / "abi.c").write_text(f"#include <stdio.h>\n#include <kvctx.h>\nint main(void)\n{{\n{lines}\nreturn 0;\n}}\n")
    subprocess.run([os.environ.get("CC", "cc"), f"-I{ROOT}/libkvctx", f"-I{ROOT}/uapi", "-o", dir / "abi",
                    dir / "abi.c"], check=True)
    out = subprocess.run([dir / "abi"], check=True, capture_output=True, text=True).stdout
    return dict(zip(wanted, map(int, out.split())))


@pytest.mark.parametrize("name", STRUCTURES)
def test_layout(told, name):
    structure = STRUCTURES[name]
    assert ctypes.sizeof(structure) == told[f"sizeof(struct {name})"]
    for field, _ in structure._fields_:
        at = getattr(structure, field)
        assert (at.offset, at.size) == (told[f"offsetof(struct {name}, {field})"],
                                        told[f"sizeof(((struct {name} *)0)->{field})"]), field


def test_constants(told):
    assert {n: told[n] for n in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("name", [b"", b"a", "héé", b"\0" * 100, "x" * 5000], ids=repr)
def test_names_are_derived_as_in_c(name):
    data = name.encode() if isinstance(name, str) else name
    key = _lib.Key()
    _lib.lib.kvctx_key_from_bytes(key, data, len(data), 77)
    mine = kvctx.Key.of(name, 77)
    assert mine == (bytes(key.digest), key.qualifier) == (hashlib.sha256(data).digest(), 77)
    assert bytes(kvctx.Keys([mine]).data) == bytes(key)
    assert bytes(kvctx.Keys([name]).data)[:32] == bytes(key.digest)
    out = ctypes.create_string_buffer(16)
    _lib.lib.kvctx_keyspace_from_bytes(out, data, len(data))
    assert kvctx.keyspace(name) == out.raw
