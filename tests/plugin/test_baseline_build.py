"""The same version built with other flags is another build: the header and every comparison say so."""

from __future__ import annotations

import pytest

from .project import Project


CURVE = "@within_baseline('curve')\ndef test_curve():\n    pass\n"
OTHER = "same version 0.0.1, other build: other binaries: libllama.so; system info differs: +FMA = 1"


@pytest.fixture
def recorded(project: Project) -> Project:
    project.test(CURVE)
    project.run("--specdec-update=new", passed=1)
    return project


def rebuild(project: Project, **hello: object) -> None:
    project.conftest(f"HELLO.update({hello!r})")


def head(result: pytest.RunResult) -> str:
    (line,) = [line for line in result.outlines if line.startswith("specdec: ")]
    return line


def test_the_same_build_is_told_once_and_without_a_difference(recorded: Project) -> None:
    first = head(recorded.run(passed=1))
    assert ", build " in first
    assert first.endswith(" (1 pair)")
    assert head(recorded.run(passed=1)) == first


def test_other_flags_change_the_header_and_are_named_in_it(recorded: Project) -> None:
    before = head(recorded.run(passed=1))
    rebuild(recorded, libraries={"libllama.so": "1" * 64}, system_info="CPU : NONE = 1 | FMA = 1")
    after = head(recorded.run(passed=1))
    assert after.endswith(f" (1 pair; {OTHER})")
    digests = [line.partition(", build ")[2][:8] for line in (before, after)]
    assert digests[0] != digests[1]


def test_they_are_named_where_the_comparison_fails(recorded: Project) -> None:
    rebuild(recorded, libraries={"libllama.so": "1" * 64}, system_info="CPU : NONE = 1 | FMA = 1")
    recorded.pretend(curve={"5": 14.5})
    recorded.run(failed=1)
    (verdict,) = recorded.verdicts()["test_curve"]
    assert verdict.because.endswith(f"; build: {OTHER}")
    assert verdict.section.endswith(f"build: {OTHER}")
    recorded.pretend()
    recorded.run(passed=1)
    (verdict,) = recorded.verdicts()["test_curve"]
    assert OTHER not in verdict.because
    assert verdict.section.endswith(f"build: {OTHER}")


def test_an_upgrade_is_named_as_one(recorded: Project) -> None:
    rebuild(recorded, llama_cpp_python="0.0.2", ggml_commit="fedcba987654")
    line = head(recorded.run(passed=1))
    assert line.endswith("(1 pair; llama-cpp-python 0.0.1 → 0.0.2; commit 0123456789 → fedcba987654)")


def test_baselines_of_other_pairs_have_no_say(recorded: Project) -> None:
    rebuild(recorded, libraries={"libllama.so": "1" * 64})
    recorded.test("@specdec(target='other.gguf')\n@cliff_at(9)\ndef test_it():\n    pass\n")
    assert head(recorded.run(passed=1)).endswith(" (1 pair)")


def test_a_damaged_baseline_leaves_the_header_alone(recorded: Project) -> None:
    recorded.baselines()[0].write_text("{")
    result = recorded.run(failed=1)
    assert head(result).endswith(" (1 pair)")
