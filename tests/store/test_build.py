"""Build identity: what makes two builds of one version two builds."""

from __future__ import annotations

from pytest_specdec.store import build_differences
from pytest_specdec.store import build_digest
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
        "same version 0.3.36, other build: other binaries: libggml-cpu.so",
        "system info differs: +AVX512 = 1",
    ]
    flags = build_identity(hello(system_info="CPU : SSE3 = 1 | AVX2 = 0 | "))
    assert build_differences(old, flags) == [
        "same version 0.3.36, other build: system info differs: +AVX2 = 0, -AVX2 = 1"
    ]
    assert build_id(flags) != build_id(old)


def test_a_build_of_unknown_version_is_not_said_to_be_of_the_same() -> None:
    old, new = ({**build_identity({}), "libraries": {"libllama.so": digit * 64}} for digit in "ab")
    assert build_differences(old, new) == ["other binaries: libllama.so"]


def test_features_beyond_a_few_are_counted() -> None:
    many = "CPU : " + " | ".join(f"F{n} = 1" for n in range(20))
    (told,) = build_differences(
        build_identity(hello(system_info="CPU :")), build_identity(hello(system_info=many))
    )
    assert told.endswith("+F6 = 1, +F7 = 1 and 12 more")


def test_digest_is_that_of_the_id() -> None:
    build = build_identity(hello())
    assert build_id(build) == f"0.3.36-0c1e57098-{build_digest(build)}"


def test_differences_of_an_upgrade() -> None:
    old = build_identity(
        hello(llama_cpp_python="0.3.30", ggml_commit=None, libraries={"libllama.so": "0" * 64})
    )
    found = build_differences(old, build_identity(hello()))
    assert found[:2] == ["llama-cpp-python 0.3.30 → 0.3.36", "commit unknown → 0c1e57098"]
    assert found[2] == "other binaries: libggml-cpu.so, libllama.so"
