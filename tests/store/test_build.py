"""Build identity: what makes two builds of one version two builds."""

from __future__ import annotations

from pytest_specdec.store import build_differences
from pytest_specdec.store import build_id
from pytest_specdec.store import build_identity

from .samples import hello


def test_identity_holds_what_tells_builds_apart_and_no_folders() -> None:
    libraries = {"/home/someone/venv/lib/libllama.so": "ab" * 32, "C:\\Users\\someone\\ggml.dll": "cd" * 32}
    build = build_identity(hello(libraries=libraries))
    assert build == {
        "llama_cpp_python": "0.3.36",
        "ggml_version": "0.9.4",
        "ggml_commit": "0c1e57098",
        "libraries": {"libllama.so": "ab" * 32, "ggml.dll": "cd" * 32},
        "system_info": "CPU : SSE3 = 1 | AVX2 = 1 |",
    }


def test_identity_of_a_worker_that_says_little() -> None:
    build = build_identity({})
    assert build["ggml_commit"] is None
    assert build["libraries"] == {}
    assert build_id(build)


def test_id_is_short_names_the_version_and_changes_with_a_binary() -> None:
    build = build_identity(hello())
    name = build_id(build)
    assert name.startswith("0.3.36-0c1e57098-")
    assert len(name) < 40
    assert build_id(build_identity(hello())) == name
    assert build_id(build_identity(hello(libraries={"libllama.so": "ef" * 32}))) != name


def test_differences_of_the_same_version_with_other_flags() -> None:
    old = build_identity(hello())
    new = build_identity(
        hello(
            libraries={"libllama.so": "ab" * 32, "libggml-cpu.so": "ef" * 32},
            system_info="CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | ",
        )
    )
    assert build_differences(old, old) == []
    assert build_differences(old, new) == [
        "same version and commit, other binaries: libggml-cpu.so",
        "system info +AVX512 = 1",
    ]


def test_differences_of_an_upgrade() -> None:
    old = build_identity(
        hello(llama_cpp_python="0.3.30", ggml_commit=None, libraries={"libllama.so": "0" * 64})
    )
    found = build_differences(old, build_identity(hello()))
    assert found[:2] == ["llama-cpp-python 0.3.30 → 0.3.36", "commit unknown → 0c1e57098"]
    assert found[2] == "other binaries: libggml-cpu.so, libllama.so"
