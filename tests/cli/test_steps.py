"""`specdec steps FILE`: what a curve's shape says, whoever measured it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec import cli
from pytest_specdec.cli import files
from pytest_specdec.cli.steps import LAST_ROW_ONLY
from pytest_specdec.store import Store
from pytest_specdec.store.published import PUBLISHED

from ..imports.benchmark import FORMATS
from ..imports.benchmark import benches
from ..store.samples import draft_cost
from ..store.samples import one_of_each
from ..store.samples import save


DATA = Path(__file__).parent.parent / "data"
ARTICLE = str(DATA / "verify_m5pro_metal_qwen25_7b_q4_k_m.csv")
SAWTOOTH = str(DATA / "cpu_llama13b_f16_sawtooth.csv")


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["steps", *argv]) == 0
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(shown(capsys, *argv, "--json"))
    return data


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["steps", *argv]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_the_articles_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, ARTICLE)
    assert out.splitlines()[0] == "T(N); table of N and ms; depth and rows of logits are not said"
    assert "cliffs: at 9 (T(9)/T(8) = 1.76, no bounds)\n" in out
    assert "dips: N = 3 cost more than the next larger size" in out
    assert "plateaus: N = 9-32: further tokens are free there" in out
    assert "longest safe draft: k = 7, a batch of 8, the last before the first cliff" in out
    assert any("▕" in line and "█" in line for line in out.splitlines())
    assert "llama-bench" not in out


def test_a_sawtooth_drops_and_a_smooth_curve_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, SAWTOOTH)
    first, second = out.split("\n\ntok_per_s_tinyblas: ")
    assert "drops: at 6 (T(6)/T(5) = 0.57, no bounds), " in first
    assert ", every 3 tokens: the larger batch is the cheaper one" in first
    assert "behind the cliff, k = 5 (N = 6) is better still" in first
    assert "no cliff up to N = 15" in second
    assert "verify cost rules out none of the measured lengths" in second


@pytest.mark.parametrize("form", FORMATS)
def test_llama_bench_output_says_what_it_did_not_time(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.out"
    path.write_text(FORMATS[form](benches({1: 18.0, 2: 21.0, 8: 44.0, 9: 79.0}, ripple=0.01)))
    out = shown(capsys, str(path))
    assert out.splitlines()[0] == (
        f"qwen2 7B Q4_K - Medium: T(N); llama-bench ({form}), depth 0, logits of the last row only"
    )
    assert "±SD" in out.splitlines()[2]
    assert out.splitlines()[-1] == LAST_ROW_ONLY
    assert "cliffs: at 9 (T(9)/T(8) = 1." in out
    assert "bounds 1.7" in out


def test_a_step_within_the_noise_asks_for_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    path.write_text(FORMATS["json"](benches({8: 44.0, 9: 64.0}, ripple=0.08)))
    out = shown(capsys, str(path))
    assert "perhaps a cliff: at 9 (T(9)/T(8) = 1.4" in out
    assert "bounds too wide, repeat the benchmark more often" in out
    assert "no cliff beyond doubt up to N = 9" in out


def test_several_curves_are_listed_and_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*benches({1: 10.0, 2: 11.0}), *benches({1: 12.0, 2: 13.0}, depth=256)]
    path = tmp_path / "bench.json"
    path.write_text(FORMATS["json"](rows))
    model = "qwen2 7B Q4_K - Medium"
    assert shown(capsys, str(path), "--list") == f"1  {model}, depth 0\n2  {model}, depth 256\n"
    assert told(capsys, str(path), "--list") == {
        "file": str(path),
        "names": [f"{model}, depth 0", f"{model}, depth 256"],
    }
    assert shown(capsys, str(path)).count("T(N); ") == 2
    for wanted in ("2", "DEPTH 256"):
        (curve,) = told(capsys, str(path), "--curve", wanted)["curves"]
        assert curve["depth"] == 256
    err = refused(capsys, str(path), "--curve", "depth 7")
    assert (
        err == f"specdec steps: {path}: no curve 'depth 7' among 1: {model}, depth 0; 2: {model}, depth 256\n"
    )


def test_json_has_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    (curve,) = told(capsys, ARTICLE)["curves"]
    assert [step["n"] for step in curve["steps"]["cliffs"]] == [9]
    assert curve["steps"]["plateaus"] == [[9, 32]]
    assert (curve["safe_draft_length"], curve["cheapest_per_token"]) == (7, 32)
    assert curve["medians_ms"]["9"] == 78.98
    assert curve["noise_ms"] is curve["depth"] is curve["rows"] is None


def test_the_ratio_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    (curve,) = told(capsys, ARTICLE, "--ratio", "1.8")["curves"]
    assert curve["steps"]["cliffs"] == []
    with pytest.raises(SystemExit) as ended:
        cli.main(["steps", ARTICLE, "--ratio", "1"])
    assert ended.value.code == 3
    assert "must be above 1, not 1" in capsys.readouterr().err


def test_baselines_tell_their_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(Store(tmp_path), *one_of_each())
    (path,) = tmp_path.glob("lab/*.json")
    out = shown(capsys, str(path))
    assert out.splitlines()[0] == "verify_curve k=3: T(N); measured, depth 0, logits of all rows"
    (machine,) = PUBLISHED.iterdir()
    (published,) = machine.iterdir()
    assert "T(N); published, depth 0, logits of the last row only" in shown(capsys, str(published))


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"N,ms\n1,10\n2,11\n")))
    assert "no cliff up to N = 2" in shown(capsys, "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"N,ms\n1,x\n")))
    assert refused(capsys, "-") == "specdec steps: standard input:2: ms is 'x', not a number above 0\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"schema_version": 1}')))
    assert refused(capsys, "-") == "specdec steps: standard input: is a baseline: name its file instead\n"


def test_what_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    assert "can't be read (No such file" in refused(capsys, str(path))
    assert "can't be read (Is a directory" in refused(capsys, str(tmp_path))
    path.write_bytes(b"GGUF\x03\0\0\0")
    assert refused(capsys, str(path)) == (
        f"specdec steps: {path}: is a model: measure it with specdec curve {path}\n"
    )
    path.write_bytes(b"N,ms\n1,\xff\n")
    assert refused(capsys, str(path)) == f"specdec steps: {path}:2: is no UTF-8 text\n"
    path.write_text("N,ms\n1,10\n2\n")
    assert refused(capsys, str(path)).startswith(f"specdec steps: {path}:3: has 1 cells")
    monkeypatch.setattr(files, "MAX_BYTES", 8)
    assert "has more than 0 MiB" in refused(capsys, str(path))


def test_a_damaged_baseline_or_one_without_curve_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Store(tmp_path), *[made for made in one_of_each() if made.measurement == draft_cost()])
    (path,) = tmp_path.glob("lab/*.json")
    assert "is a baseline without a verify curve" in refused(capsys, str(path))
    path.write_text(path.read_text().replace('"pair"', '"pear"'))
    assert "does not hold what a baseline must" in refused(capsys, str(path))
