from __future__ import annotations

import json

import pytest

from pytest_specdec import cli
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.measurements import ProbeResult
from pytest_specdec.measurements import Structure

from .double import Session
from .double import put


SOUND = ProbeResult("rollback", "sound", "removed tokens leave no trace", ("the same bits",))
FAULT = ProbeResult("vocabulary", "fault", "token ids are permuted", ("1 of 315 are equal",))
NO_DRAFT = ProbeResult("vocabulary", "skipped", "there is no draft model")
DOUBT = ProbeResult("eog", "skipped", "could not tell: every text ended with its first token")


class Double(Session):
    """A bench whose probes find what they are told."""

    probes: tuple[ProbeResult, ...] = (SOUND,)

    def structure(self) -> Structure:
        self.measuring("probing x: rollback")
        return Structure(self.asked.k, "two-model", self.probes, rollback_ms=0.01)


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    return put(Double, monkeypatch, probes=(SOUND,))


def pair(*more: str) -> list[str]:
    return ["doctor", "--target", "a.gguf", "--draft", "b.gguf", *more]


@pytest.mark.parametrize(
    ("probes", "code", "answer"),
    [
        ((SOUND,), 0, "structurally sound: where little is accepted, this source does not fit the text"),
        ((SOUND, NO_DRAFT), 0, "structurally sound"),
        ((SOUND, FAULT), 1, "1 structural fault: vocabulary"),
        ((DOUBT, FAULT), 1, "1 structural fault: vocabulary"),
        ((SOUND, DOUBT), 2, "no structural fault found, but not every probe could tell: eog"),
        ((NO_DRAFT,), 2, "no structural fault found, but not every probe could tell: vocabulary"),
    ],
)
def test_the_exit_code_is_the_answer(
    probes: tuple[ProbeResult, ...],
    code: int,
    answer: str,
    double: type[Double],
    capsys: pytest.CaptureFixture[str],
) -> None:
    double.probes = probes
    assert cli.main(pair()) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith(answer)
    assert double.closed == 1


def test_the_pair_the_build_and_the_evidence_of_faults(
    double: type[Double], capsys: pytest.CaptureFixture[str]
) -> None:
    double.probes = (SOUND, FAULT)
    cli.main(pair("--k", "5"))
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("a.gguf with " + str(Double.asked.draft))
    assert "llama-cpp-python 0.3.36; CPU" in out
    assert "structural probes, k = 5" in out
    assert "1 of 315 are equal" in out
    assert "the same bits" not in out
    cli.main(pair("--evidence"))
    assert "the same bits" in capsys.readouterr().out


def test_options_reach_the_settings(double: type[Double]) -> None:
    cli.main(pair("--k", "7", "--swa-full", "off", "--n-ctx", "512", "--env", "A=b"))
    asked = Double.asked
    assert (asked.k, asked.swa_full, asked.n_ctx, asked.env) == (7, False, 512, (("A", "b"),))


def test_json_has_it_all(double: type[Double], capsys: pytest.CaptureFixture[str]) -> None:
    double.probes = (SOUND, FAULT)
    assert cli.main(pair("--json")) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["sound"] is False
    assert Structure.from_json(told["structure"]).faults == (FAULT,)
    assert told["settings"]["k"] == 3


def test_no_target_is_bad_usage(double: type[Double], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 3
    assert "specdec doctor: no target model: give --target PATH" in capsys.readouterr().err


def test_what_cannot_be_measured_is_said_on_stderr(
    double: type[Double], capsys: pytest.CaptureFixture[str]
) -> None:
    double.trouble = NotMeasured("no model file a.gguf", missing=True)
    assert cli.main(pair()) == 3
    captured = capsys.readouterr()
    assert "specdec doctor: no model file a.gguf" in captured.err
    assert captured.out == ""
    assert double.closed == 1
