"""The worker under other interpreters: what is too old or incompatible says so at hello.

llama_cpp is a stand-in here, whose names are all there but those that a test takes away.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specdec.engine.process import WORKER
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.engine.protocol import WorkerUnavailable


OLDEST = 9
# Everything that is asked for exists, as a type: ctypes makes arrays of some, others are called.
STAND_IN = """
import ctypes

ABSENT = {absent!r}

class Anything(ctypes.c_int):
    def __init__(self, *arguments):
        ctypes.c_int.__init__(self)

def __getattr__(name):
    if name in ABSENT or not name.startswith("llama_"):
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return Anything
"""
NUMPY = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return object
"""

MakePath = Callable[..., Path]


@pytest.fixture
def stand_ins(tmp_path: Path) -> MakePath:
    """Maker of a folder for PYTHONPATH with a llama_cpp that lacks some names."""

    def make(*absent: str, numpy: bool = False, version: str = "0.3.1") -> Path:
        package = tmp_path / "llama_cpp"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
        (package / "llama_cpp.py").write_text(STAND_IN.format(absent=absent), encoding="utf-8")
        if numpy:
            (tmp_path / "numpy.py").write_text(NUMPY, encoding="utf-8")
        return tmp_path

    return make


def interpreters() -> dict[int, str]:
    """Other Pythons 3 on this machine, by minor version."""
    found: dict[int, str] = {}
    for minor in range(6, sys.version_info.minor):
        name = f"python3.{minor}"
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
        for path in (shutil.which(name), *map(str, pyenv.glob(f"3.{minor}.*/bin/{name}"))):
            if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
                found[minor] = path
                break
    return found


@pytest.fixture(scope="module")
def oldest() -> str:
    """The oldest interpreter here that the worker promises to run under."""
    usable = {minor: path for minor, path in interpreters().items() if minor >= OLDEST}
    if not usable:
        pytest.skip(f"no older Python than {sys.version.split()[0]} is installed")
    return usable[min(usable)]


def refusal(python: str, path: Path) -> str:
    engine = ProcessEngine(python=python, env={"PYTHONPATH": str(path)})
    with pytest.raises(WorkerUnavailable) as caught:
        engine.hello()
    assert not engine.started
    return caught.value.message


@pytest.mark.parametrize(
    ("absent", "told"),
    [
        (["llama_decode"], "llama_decode"),
        (["llama_log_callback"], "llama_log_callback"),
        (["llama_vocab_type"], "llama_vocab_type"),
        (
            ["llama_decode", "llama_free", "llama_n_ctx", "llama_n_batch", "llama_token", "llama_tokenize"],
            "llama_decode, llama_free, llama_n_batch, llama_n_ctx and 2 more",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_llama_cpp_that_lacks_names_says_which(stand_ins: MakePath, absent: list[str], told: str) -> None:
    message = refusal(sys.executable, stand_ins(*absent, version="0.2.9"))
    assert message == f"llama-cpp-python 0.2.9 lacks {told}; 0.3.16 or newer is needed"


def test_one_that_lacks_none_gets_further(stand_ins: MakePath) -> None:
    folder = stand_ins()
    message = refusal(sys.executable, folder)
    assert message == f"no ggml library in {folder / 'llama_cpp' / 'lib'}"


def test_every_name_that_the_worker_uses_is_asked_for_at_hello() -> None:
    used: set[str] = set()
    asked: set[str] = set()
    needed: set[str] = set()
    for path in WORKER.glob("specdec_worker/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name(id="lib"), attr=name) if name.startswith("llama_"):
                    used.add(name)
                case ast.Call(
                    func=ast.Name(id="hasattr"), args=[ast.Name(id="lib"), ast.Constant(value=str(name))]
                ):
                    asked.add(name)
                case ast.Assign(targets=[ast.Name(id="NEEDED")], value=value):
                    needed = set(ast.literal_eval(value))
    assert "llama_decode" in used & needed
    assert used - asked - {"llama_model_n_embd_out"} == needed


def test_all_of_the_worker_can_be_imported_by_the_oldest_python(oldest: str, stand_ins: MakePath) -> None:
    folder = stand_ins(numpy=True)
    modules = sorted(
        ".".join(path.relative_to(WORKER).with_suffix("").parts)
        for path in WORKER.glob("specdec_worker/**/*.py")
        if path.stem != "__init__"
    )
    program = "import sys\n" + "".join(f"import {name}\n" for name in modules)
    path = os.pathsep.join([str(WORKER), str(folder)])
    done = subprocess.run(
        [oldest, "-B", "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {"specdec_worker.server", "specdec_worker.drafts.eagle"} <= set(modules)


def test_the_worker_answers_under_the_oldest_python(oldest: str, stand_ins: MakePath) -> None:
    folder = stand_ins(numpy=True)
    assert refusal(oldest, folder) == f"no ggml library in {folder / 'llama_cpp' / 'lib'}"
    assert re.fullmatch(r"llama-cpp-python 0\.3\.1 lacks .*", refusal(oldest, stand_ins("llama_free")))


def test_a_python_that_is_too_old_says_so(stand_ins: MakePath) -> None:
    too_old = {minor: path for minor, path in interpreters().items() if minor < OLDEST}
    if not too_old:
        pytest.skip(f"no Python before 3.{OLDEST} is installed")
    for minor, path in too_old.items():
        message = refusal(path, stand_ins())
        assert message.startswith(f"the worker needs Python 3.{OLDEST} or newer, and ")
        assert message.endswith(f" is 3.{minor}")
