"""`specdec advise`: the ledger, the best draft length with its reason, or not to speculate."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specdec import cli
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import LedgerRun
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.store import Store
from pytest_specdec.store.published import PUBLISHED

from ..store.samples import PAIR
from ..store.samples import Made
from ..store.samples import ledger
from ..store.samples import save


MACHINE = "apple-m5-pro-24gb-metal"
ARTICLE = str(Path(__file__).parent.parent / "data" / "verify_m5pro_metal_qwen25_7b_q4_k_m.csv")
# Flat, then a cliff at 5; ms.
COSTS = {1: 20.0, 2: 21.0, 3: 22.0, 4: 23.0, 5: 40.0, 6: 41.0, 8: 43.0}
DRAFT_MS = 2.0
OVERHEAD_MS = 1.5
# Tokens accepted in each of 20 rounds, by k: tokens per round 1.75, 2.25, 2.5, 2.75, 2.8.
ACCEPTED = {1: 15, 2: 25, 3: 30, 5: 35, 7: 36}


def curve(costs: Mapping[int, float] = COSTS, **fields: Any) -> VerifyCurve:
    samples = tuple(tuple((t,) for _ in range(8)) for t in costs.values())
    return VerifyCurve(tuple(costs), samples, **fields)


def run(k: int, *, slower: float = 1.0, prefill_ms: float = 0.0) -> SpeculativeRun:
    """Twenty rounds that cost what the terms say, after the draft's prefill."""
    accepted = [ACCEPTED[k] // 20 + (r < ACCEPTED[k] % 20) for r in range(20)]
    ms = (k * DRAFT_MS + COSTS[k + 1] + OVERHEAD_MS) * slower
    one = Speculation(
        prompt="code",
        prompt_tokens=7,
        tokens=tuple(range(1 + 20 + sum(accepted))),
        drafted=(k,) * 20,
        accepted=tuple(accepted),
        cut=False,
        draft_ms=(k * DRAFT_MS,) * 20,
        verify_ms=(COSTS[k + 1],) * 20,
        prefill_ms=9.0,
        draft_prefill_ms=prefill_ms,
        decode_ms=20 * ms + prefill_ms,
        forward_ms=20 * ms,
        stop="limit",
    )
    return SpeculativeRun(k, "two-model", (one,))


def decode(ms: float = 20.0) -> DecodeRun:
    return DecodeRun((Generation("code", 7, tuple(range(41)), 9.0, 40 * ms, 40 * ms, "limit"),))


def baseline(tmp_path: Path, *measurements: Measurement, **settings: Any) -> str:
    """Save measurements under settings that differ in k alone, and return the file."""
    entries = []
    for measurement in measurements:
        k = getattr(measurement, "k", None)
        own = {**settings} if k is None else {**settings, "k": k}
        key = " ".join([measurement.kind, *(f"{name}={value}" for name, value in own.items())])
        entries.append(Made(key, measurement, own))
    save(Store(tmp_path), *entries)
    (path,) = tmp_path.glob("lab/*.json")
    return str(path)


def full(tmp_path: Path) -> str:
    runs = [run(k) for k in ACCEPTED]
    return baseline(tmp_path, curve(), decode(), DraftCost("two-model", (2.0,), (20.0,)), *runs)


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["advise", *argv]) == 0
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(shown(capsys, *argv, "--json"))
    return data


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["advise", *argv]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    return err.removeprefix("specdec advise: ").rstrip("\n")


def misused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(["advise", *argv])
    assert ended.value.code == 3
    return capsys.readouterr().err


def test_the_article_speculates_one_token_and_says_why_not_two(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--replay", MACHINE)
    assert "replayed from published numbers, not measured here" in out.splitlines()[0]
    assert "best draft length: k = 1, worth 1.16x" in out
    assert "k=2 sags (1.03x): N=3 is a dip: 4 tokens cost less (27.23 against 28.11 ms)" in out
    assert (
        "65.64 tokens/s predicted, 66.67 measured, against 57.60 without (plain decoding, published)" in out
    )
    assert "fitted on k = 1, 2, 3 (*); drafting alone was measured at 2.82 ms, 0.165 of a target pass" in out
    assert "held against what was measured: k = 4, 5, 7, 11, 16 predicted within -3.3% to +1.3%" in out
    assert "T(1) of the curve is 18.15 ms, +4.5%" in out
    assert "k = 7: 8 is the last N before the cliff at 9 (1.76x)" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("16"))
    assert row == ["16", "17", "~79.99", "3.40", "139.19", "24.40", "25.24", "-3.3%", "0.44x"]


def test_the_articles_file_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (PUBLISHED / MACHINE).iterdir()
    data, replayed = told(capsys, str(path)), told(capsys, "--replay", MACHINE)
    assert data["advice"] == replayed["advice"]
    assert (data["advice"]["best_k"], data["advice"]["speculate"]) == (1, True)
    assert data["advice"]["speedup"] == pytest.approx(1.1575, abs=5e-4)
    assert data["terms"]["fitted_on"] == [1, 2, 3]
    assert [row["k"] for row in data["ledger"]["rows"]] == [1, 2, 3, 4, 5, 7, 11, 16]
    assert all(abs(row["residual"]) < 0.035 for row in data["ledger"]["rows"])


def test_the_ledger_of_a_baseline_finds_the_terms_it_was_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = full(tmp_path)
    data = told(capsys, path)
    assert data["title"] == f"{PAIR} on lab"
    assert data["terms"]["draft_ms"] == pytest.approx(DRAFT_MS)
    assert data["terms"]["overhead_ms"] == pytest.approx(OVERHEAD_MS)
    assert (data["terms"]["draft_ms_alone"], data["terms"]["draft_cost"]) == (2.0, 0.1)
    assert all(abs(row["residual"]) < 1e-6 for row in data["ledger"]["rows"])
    assert data["advice"]["best_k"] == 3
    assert data["advice"]["plain_source"] == "plain decoding"
    assert data["free_draft"]["k"] == 3
    out = shown(capsys, path)
    assert "4 is the last N before the cliff at 5 (1.74x)" in out
    assert (
        "k = 5, 7 predicted within -0.0% to +0.0%" in out or "k = 5, 7 predicted within +0.0% to +0.0%" in out
    )


def test_the_drafts_prefill_belongs_to_no_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(k, prefill_ms=500.0) for k in ACCEPTED]
    data = told(capsys, baseline(tmp_path, curve(), decode(), *runs))
    assert data["terms"]["overhead_ms"] == pytest.approx(OVERHEAD_MS)
    assert data["remarks"] == ["the draft's prefill, 500.0 ms per prompt, is in no rate"]


def test_a_false_term_shows_in_the_residuals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(k, slower=1.2 if k == 7 else 1.0) for k in ACCEPTED]
    data = told(capsys, baseline(tmp_path, curve(), decode(), *runs))
    residuals = {row["k"]: row["residual"] for row in data["ledger"]["rows"]}
    assert residuals[7] == pytest.approx(0.2)
    assert residuals[5] == pytest.approx(0.0, abs=1e-6)


def test_nothing_pays_and_the_arithmetic_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(k) for k in ACCEPTED]
    path = baseline(tmp_path, curve(), decode(ms=9.0), *runs)
    out = shown(capsys, path)
    assert "do not speculate: no draft length pays, the best of 5 is k=3" in out
    assert "k=3 yields 2.50 tokens in 30.50 ms (verify 23.00 + draft 3 x 2.00 + overhead 1.50)" in out
    assert "against 111.11 without (plain decoding): 0.74x" in out
    assert "best draft length" not in out
    assert not told(capsys, path)["advice"]["speculate"]


def test_a_ledger_run_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, baseline(tmp_path, ledger()))
    assert data["curve"]["medians_ms"] == {"1": 10.0, "2": 15.0, "3": 20.0, "4": 24.0, "6": 34.0}
    assert data["advice"]["plain_source"] == "T(1) at depth 64"
    assert [row["k"] for row in data["advice"]["table"]] == [1, 2, 3, 5]


def test_the_longest_sweep_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline(tmp_path, curve(), decode(), *(run(k) for k in ACCEPTED), threads=2)
    path = baseline(tmp_path, run(1, slower=3.0), run(2, slower=3.0), threads=1)
    data = told(capsys, path)
    assert len(data["ledger"]["rows"]) == 5
    assert all(abs(row["residual"]) < 1e-6 for row in data["ledger"]["rows"])
    assert "other sweeps, with other settings, are left out: 1" in data["remarks"]


def test_the_curve_of_all_rows_and_of_the_nearest_depth_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dear = {n: 3 * t for n, t in COSTS.items()}
    curves = {"deep": curve(dear, depth=1024), "near": curve(), "last row": curve(dear, rows="last")}
    save(Store(tmp_path), *(Made(key, one, {}) for key, one in curves.items()))
    data = told(capsys, baseline(tmp_path, decode(), *(run(k) for k in ACCEPTED)))
    assert data["curve"]["name"] == "near"
    assert data["remarks"] == []


def test_another_depth_is_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = baseline(tmp_path, curve(depth=2048), decode(), *(run(k) for k in ACCEPTED))
    (remark,) = told(capsys, path)["remarks"]
    assert remark.startswith("T(N) is that of depth 2048, the runs' mean depth is ")


def test_rates_given_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--acceptance", "1=71.43%,2=0.6163,3=52%,7=29.46%", "--plain", "57.6"]
    rates = ["--measured", "1=66.67,2=59.22,3=65.28,7=42.26"]
    data = told(capsys, ARTICLE, *given, *rates)
    assert data["terms"]["fitted_on"] == [1, 2, 3]
    assert data["advice"]["best_k"] == 1
    assert data["advice"]["speedup"] == pytest.approx(1.1575, abs=5e-4)
    costs = told(capsys, ARTICLE, *given, *rates, "--draft-ms", "2.817", "--overhead-ms", "1")
    assert costs["terms"] | {"draft_cost": 0} == {
        "draft_ms": 2.817,
        "overhead_ms": 1.0,
        "fitted_on": [],
        "draft_ms_alone": 2.817,
        "draft_cost": 0,
    }
    fitted = told(capsys, ARTICLE, *given, *rates, "--fit", "1,3")
    assert fitted["terms"]["fitted_on"] == [1, 3]
    assert [row["fitted"] for row in fitted["ledger"]["rows"]] == [True, False, True, False]


def test_three_measured_lengths_leave_one_to_test(capsys: pytest.CaptureFixture[str]) -> None:
    rates = ["--yields", "1=1.7143,2=2.2326,3=2.56", "--measured", "1=66.67,2=59.22,3=65.28"]
    assert told(capsys, ARTICLE, *rates)["terms"]["fitted_on"] == [1, 2]


def test_predictions_without_any_measured_rate(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, ARTICLE, "--alpha", "0.7", "--draft-cost", "0.165", "--plain", "57.6")
    assert "best draft length: k = 1, worth 1.23x" in out
    assert "terms: draft 2.99 ms per token, overhead 0.00 ms per round, not fitted" in out
    assert "held against" not in out
    positions = told(capsys, ARTICLE, "--positions", "0.7,49%", "--draft-ms", "3")
    assert [row["k"] for row in positions["advice"]["table"]] == [1, 2]
    assert positions["advice"]["table"][1]["tokens_per_round"] == pytest.approx(2.19)
    assert positions["ledger"] is None
    assert told(capsys, ARTICLE, "--alpha", "20%", "--draft-ms", "3")["advice"]["speculate"] is False


def test_yields_replace_a_baselines_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, full(tmp_path), "--alpha", "0.1")
    assert data["advice"]["speculate"] is False
    assert data["terms"]["draft_ms"] == 2.0
    assert data["advice"]["plain_source"] == "plain decoding"
    assert told(capsys, "--replay", MACHINE, "--yields", "3=3.5")["advice"]["best_k"] == 3


def test_lengths_whose_cost_is_not_known_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, ARTICLE, "--yields", "3=2.5,40=3.4", "--draft-ms", "3")
    assert "left out, because T(k + 1) is not known: k = 40" in out
    assert refused(capsys, ARTICLE, "--yields", "40=3.4", "--draft-ms", "3") == (
        "T(N) is not known for any k of 40: measure N = k + 1 too"
    )


def test_a_curve_is_chosen_where_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.csv"
    path.write_text("N,ms_a,ms_b\n1,10,10\n2,11,30\n")
    argv = [str(path), "--alpha", "0.8", "--draft-ms", "1"]
    assert refused(capsys, *argv) == f"{path} has several curves: choose one with --curve: 1: ms_a; 2: ms_b"
    assert told(capsys, *argv, "--curve", "1")["advice"]["speculate"] is True
    assert told(capsys, *argv, "--curve", "ms_b")["advice"]["speculate"] is False


def test_one_of_several_pairs_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full(tmp_path)
    save(Store(tmp_path), Made("verify_curve", curve(), {}), pair="a--b")
    folder = str(tmp_path / "lab")
    assert refused(capsys, "--replay", folder) == (
        f"lab has several pairs: choose one with --pair: a--b, {PAIR}"
    )
    assert told(capsys, "--replay", folder, "--pair", PAIR)["advice"]["best_k"] == 3
    assert refused(capsys, "--replay", folder, "--pair", "c--d") == (
        f"lab has no pair c--d; it has a--b, {PAIR}"
    )
    assert "holds no speculative run: give --yields" in refused(capsys, "--replay", folder, "--pair", "a--b")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--alpha", "0.5"], "nothing tells what drafting a token costs: give --draft-ms or --draft-cost"),
        (["--draft-ms", "3"], "nothing tells what a round yields: give --yields, --acceptance, --positions"),
        (["--yields", "3=5", "--draft-ms", "3"], "yields[3] must be at most 4, got 5"),
        (["--acceptance", "3=52", "--draft-ms", "3"], "--acceptance: 52 at k = 3 is no share: give 0 to 1"),
        (["--yields", "3=2", "--measured", "3=50", "--fit", "1,3"], "fit_on: k=1 was not measured"),
        (["--alpha", "0.5", "--fit", "1,3"], "--fit needs tokens per round by k"),
    ],
)
def test_what_is_missing_or_wrong_is_told(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, ARTICLE, *argv).startswith(words)


def test_files_that_cannot_be_used_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "can't be read" in refused(capsys, str(tmp_path / "gone"))
    assert "neither a published machine nor a folder" in refused(capsys, "--replay", "apple-m9")
    path = baseline(tmp_path, decode(), run(1))
    assert (
        refused(capsys, path)
        == f"{path}: holds no verify curve: measure one with specdec curve, or with cliff_at"
    )
    no_one = tmp_path / "curve.csv"
    no_one.write_text("N,ms\n2,10\n3,11\n")
    argv = [str(no_one), "--yields", "1=1.5", "--draft-cost", "0.1"]
    assert (
        refused(capsys, *argv) == "--draft-cost is a share of T(1), which the curve has not: give --draft-ms"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "one of the arguments FILE --replay is required"),
        ([ARTICLE, "--replay", MACHINE], "not allowed with"),
        ([ARTICLE, "--alpha", "1.5"], "must be a share from 0 to 1, or a percentage, not 1.5"),
        ([ARTICLE, "--alpha", "-1"], "must be at least 0, not -1"),
        ([ARTICLE, "--alpha", "0.5", "--yields", "1=1"], "not allowed with argument --alpha"),
        ([ARTICLE, "--yields", "x=1"], "must name draft lengths such as 3, not 'x' in 'x=1'"),
        ([ARTICLE, "--yields", "0=1"], "must name draft lengths such as 3, not '0' in '0=1'"),
        ([ARTICLE, "--yields", "1"], "must be K=VALUE,K=VALUE with each K once, not '1'"),
        ([ARTICLE, "--yields", "1=1,1=2"], "must be K=VALUE,K=VALUE with each K once"),
        ([ARTICLE, "--measured", "1=0"], "must be above 0, not 0"),
        ([ARTICLE, "--measured", "1=nan"], "must be a finite number, not nan"),
        ([ARTICLE, "--draft-ms", "-1"], "must be at least 0, not -1"),
        ([ARTICLE, "--draft-ms", "1", "--draft-cost", "1"], "not allowed with argument --draft-ms"),
        ([ARTICLE, "--plain", "0"], "must be above 0, not 0"),
        ([ARTICLE, "--fit", "1,two"], "must name draft lengths such as 3, not 'two' in '1,two'"),
    ],
)
def test_bad_usage_is_told(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in misused(capsys, *argv)


def test_llama_bench_curves_remind_of_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.jsonl"
    row = '{"model_type": "m", "n_prompt": %d, "n_gen": 0, "samples_ns": [%d]}\n'
    path.write_text(row % (1, 10_000_000) + row % (2, 11_000_000))
    out = shown(capsys, str(path), "--alpha", "0.8", "--draft-ms", "1")
    assert "best draft length: k = 1, worth 1.50x" in out
    assert "llama-bench asks for the logits of the last row only" in out.splitlines()[-1]


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"N,ms\n1,10\n2,11\n")))
    out = shown(capsys, "-", "--alpha", "0.8", "--draft-ms", "1")
    assert out.startswith("standard input\n")
    assert "best draft length: k = 1, worth 1.50x" in out


def test_rates_of_some_runs_only_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    untimed = replace(run(3), speculations=(replace(run(3).speculations[0], decode_ms=0.0),))
    path = baseline(tmp_path, curve(), decode(), run(1), untimed, DraftCost("two-model", (2.0,), (20.0,)))
    data = told(capsys, path)
    assert data["ledger"] is None
    assert [row["measured"] for row in data["advice"]["table"]] == [None, None]


def test_ledger_runs_need_not_be_the_longest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = LedgerRun("two-model", 0, 10.0, (1, 2, 3), 2, (11.0,) * 3, (1.0,) * 3, (1.1,) * 3, (9.0,) * 3)
    path = baseline(tmp_path, curve(), decode(), short, *(run(k) for k in ACCEPTED))
    assert told(capsys, path)["advice"]["best_k"] == 3
