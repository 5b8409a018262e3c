# SPDX-License-Identifier: LGPL-2.1-or-later
"""python -m kvctx, and the package as it is installed."""
import ast
import glob
import os
import re
import subprocess
import sys
import venv
import zipfile

import pytest

import kvctx
from kvctx import __main__ as program

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
PACKAGE = os.path.dirname(kvctx.__file__)


def test_what_is_there(pool, daemon, tmp_path, monkeypatch, capsys):
    with pool.session() as s:
        s.store(["a", "b"], [b"x" * 3000] * 2).check()
    monkeypatch.setattr(program, "WHERE", (os.path.dirname(daemon.pool.path), str(tmp_path / "none")))
    assert program.main([pool.path, "--tmp", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "default: process; 2 pages, 5.859 KiB, of a pool of" in out and "default: daemon; 0 pages" in out
    assert "self-test: 64 pages of 64 KiB stored" in out and "limits: page" in out
    assert os.listdir(tmp_path) == ["kv0"]
    assert program.main([os.path.join(pool.path, "default"), "--no-self-test"]) == 0
    assert "self-test" not in capsys.readouterr().out


def test_where_the_self_test_is(served, capsys):
    assert program.main(["--on", served.path]) == 0
    assert "self-test: 64 pages" in capsys.readouterr().out and served.usage().pages == 0
    assert program.main(["--on", os.path.join(os.path.dirname(served.path), "stranger")]) == 1
    assert "stranger" in capsys.readouterr().out


def test_a_daemon_that_is_elsewhere(daemon, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "WHERE", (str(tmp_path / "none"),))
    assert program.main([daemon.pool.path, "--no-self-test"]) == 0
    out = capsys.readouterr().out
    assert "no pools in" in out and "default: daemon" in out and "neither" not in out


def test_what_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "WHERE", (str(tmp_path / "none"),))
    assert program.main([str(tmp_path / "kv1"), "--no-self-test"]) == 1
    out = capsys.readouterr().out
    assert "no pools in" in out and "no such" in out


def test_the_self_test_can_fail(tmp_path, monkeypatch, capsys):
    load = kvctx.Session.submit_load_packed

    def wrong(self, keys, addrs, lens):
        op = load(self, keys, addrs, lens)
        op.result(60)
        import ctypes
        ctypes.memset(addrs[3], ctypes.string_at(addrs[3], 1)[0] ^ 1, 1)
        return op

    monkeypatch.setattr(kvctx.Session, "submit_load_packed", wrong)
    assert program.main(["--tmp", str(tmp_path)]) == 1
    assert "wrong bytes" in capsys.readouterr().out and not os.listdir(tmp_path)
    monkeypatch.setattr(program, "_POOL_BYTES", 1 << 60)
    assert program.main(["--tmp", str(tmp_path)]) == 1
    assert "self-test:" in capsys.readouterr().out and not os.listdir(tmp_path)


def test_help():
    r = subprocess.run([sys.executable, "-m", "kvctx", "--help"], capture_output=True, text=True, check=True)
    assert "usage: python -m kvctx" in r.stdout and not r.stderr


@pytest.mark.parametrize("path", sorted(glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True)),
                         ids=lambda p: os.path.relpath(p, PACKAGE))
def test_python_3_9_reads_it(path):
    with open(path) as f:
        text = f.read()
    tree = ast.parse(text, feature_version=(3, 9))
    # what only annotations may say without it
    assert any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body) or " | " not in text
    assert not any(isinstance(n, getattr(ast, "Match", ())) for n in ast.walk(tree))


# The wheel, in an environment that has nothing else

@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """python of an environment with the wheel and no other way to a library."""
    dir = tmp_path_factory.mktemp("installed") / "env"
    venv.create(dir, with_pip=False)
    wheel = os.environ["KVCTX_WHEEL"]
    assert re.fullmatch(r"kvctx-[\d.]+-py3-none-linux_\w+\.whl", os.path.basename(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python",
                    dir / "bin" / "python", "install", "--no-deps", "--no-index", wheel], check=True)
    return str(dir / "bin" / "python")


def run_installed(python, *arguments, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KVCTX", "LD_"))}
    env.update(environment)
    return subprocess.run([python, *arguments], capture_output=True, text=True, cwd="/", timeout=60, env=env)


def test_the_wheel_works_alone(installed, tmp_path):
    r = run_installed(installed, "-m", "kvctx", "--tmp", str(tmp_path))
    assert r.returncode == 0 and "self-test: 64 pages" in r.stdout, r.stderr
    r = run_installed(installed, "-c", "import kvctx; print(open('/proc/self/maps').read())")
    home = os.path.dirname(os.path.dirname(installed))
    mapped = {line.split()[-1] for line in r.stdout.splitlines() if re.search(r"lib(kvctx|isal|uring)", line)}
    assert len(mapped) == 2 and all(m.startswith(home) for m in mapped), mapped
    library, = (m for m in mapped if "libkvctx" in m)
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(lib[a-z]+)", needed)) == {"libisal", "libc"}, needed


def test_the_wheel_says_its_version(installed):
    r = run_installed(installed, "-c", "import kvctx, importlib.metadata as m; "
                      "print(kvctx.__version__ == m.version('kvctx'), m.files('kvctx'))")
    assert r.stdout.startswith("True") and "py.typed" in r.stdout and "libisal" in r.stdout, r.stderr


def test_a_wheel_for_a_system_that_has_the_library(tmp_path):
    """Nothing of it is inside; KVCTX_LIBRARY names one, or it is on the loader's path."""
    pip = os.path.join(os.path.dirname(os.environ["KVCTX_WHEEL"]), "..", "python", "build-env", "bin", "pip")
    subprocess.run([pip, "--disable-pip-version-check", "-q", "wheel", "--no-deps", "--no-build-isolation",
                    "-C", "cmake.define.KVCTX_SYSTEM=ON", "-C", f"build-dir={tmp_path / 'build'}",
                    "-w", tmp_path / "wheel", os.path.dirname(PACKAGE)], check=True)
    wheel, = (tmp_path / "wheel").iterdir()
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        z.extractall(tmp_path / "installed")
    here = {n for n in names if n.startswith("kvctx/")}
    assert "kvctx/py.typed" in here and not [n for n in names if n.startswith("kvctx/lib/") or ".so" in n]
    with zipfile.ZipFile(os.environ["KVCTX_WHEEL"]) as z:
        assert here == {n for n in z.namelist() if n.startswith("kvctx/") and not n.startswith("kvctx/lib/")}
    library = os.environ["KVCTX_LIBRARY"]
    for way in ({"KVCTX_LIBRARY": library}, {"LD_LIBRARY_PATH": os.path.dirname(library)}):
        r = run_installed(sys.executable, "-m", "kvctx", "--tmp", str(tmp_path), PYTHONPATH=str(tmp_path / "installed"),
                          **way)
        assert r.returncode == 0 and "self-test: 64 pages" in r.stdout, r.stderr


def readme_python():
    with open(os.path.join(ROOT, "README.md")) as f:
        return re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)


def test_the_lines_of_the_readme(installed, tmp_path):
    """As a user has them: the wheel, numpy, and torch where there is torch."""
    np = pytest.importorskip("numpy")
    block, = readme_python()
    assert len([line for line in block.splitlines() if line.strip() and not line.startswith("import")]) <= 12
    block = block.replace("/var/lib/kvctx", str(tmp_path))
    site = os.path.dirname(os.path.dirname(np.__file__))
    try:
        import torch  # noqa: F401
    except ImportError:
        block = "\n".join(line for line in block.splitlines() if "torch" not in line)
    # the environment of the tests has numpy; its kvctx, if any, comes behind the wheel's
    code = f"import sys; sys.path.append({site!r})\n{block}\nprint('as it was')"
    r = run_installed(installed, "-c", code)
    assert r.stdout.endswith("as it was\n"), r.stderr
