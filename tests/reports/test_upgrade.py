"""The report on two builds: the verdict first, the evidence below, and all of it in JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_specdec.checks.upgrade import judge
from pytest_specdec.measurements import from_json
from pytest_specdec.reports import text
from pytest_specdec.reports.upgrade import COLUMNS
from pytest_specdec.reports.upgrade import upgrade_json
from pytest_specdec.reports.upgrade import upgrade_text
from tests.checks.comparisons import Made
from tests.checks.comparisons import changed
from tests.checks.comparisons import compare
from tests.checks.curves import SAWTOOTH
from tests.checks.kernel_maps import UNTILED


DEARER = {n: t * (1.3 if n > 4 else 1.0) for n, t in SAWTOOTH.items()}


def test_the_verdict_comes_first_and_every_aspect_has_its_word() -> None:
    report = judge(compare(new=changed(curve=DEARER, kernels=UNTILED)))
    lines = upgrade_text(report)
    assert lines[0].startswith("regression: T(N): dearer at N = 5-10,12: T(")
    for aspect in report.aspects:
        metric = aspect.verdict.metric
        (line,) = [line for line in lines if line.startswith(f"{metric}  ")]
        assert line.removeprefix(metric).split("  ")[1:]
        assert aspect.word in line
    assert any(line.startswith("kernel map") and "  changed  " in line for line in lines)
    assert all(text.width(line) <= COLUMNS for line in lines)


def test_arms_are_told_with_what_differs_and_whether_they_took_turns() -> None:
    new = changed(env=("GGML_CPU_TILED_MM=0",), params=("n_ubatch=4",))
    lines = upgrade_text(judge(compare(new=new)))
    assert "new  new  llama-cpp-python 0.3.36 (commit bbbbbbb); GGML_CPU_TILED_MM=0; n_ubatch=4" in lines
    assert not any("took turns" in line for line in lines)
    lines = upgrade_text(judge(compare(turns=True, notes=("2 prompts were left out",))))
    assert "the arms took turns: memory did not allow both to be loaded at once" in lines
    assert "2 prompts were left out" in lines


def test_percentages_add_up_and_have_both_values() -> None:
    lines = upgrade_text(judge(compare(new=changed(curve=DEARER))))
    start = next(i for i, line in enumerate(lines) if line.endswith("of that change come from:"))
    rows = {line.split("  ")[1]: line for line in lines[start + 1 : start + 6]}
    assert list(rows) == ["T(N)", "draft cost", "acceptance", "overhead", "unexplained"]
    shares = [
        int(word.removesuffix("%")) for row in rows.values() for word in row.split() if word.endswith("%")
    ]
    assert len(shares) == 5
    assert sum(shares) == pytest.approx(100, abs=3)
    assert "tokens per round, was 3.04" in rows["acceptance"]
    assert "ms per round, was" in rows["T(N)"]


def test_nothing_to_attribute_is_said() -> None:
    lines = upgrade_text(judge(compare()))
    assert any(line.startswith("no change to attribute: ") for line in lines)
    assert not any("unexplained" in line for line in lines)


def test_evidence_is_below_with_bounds_per_size() -> None:
    lines = upgrade_text(judge(compare(new=changed(curve=DEARER))))
    at = lines.index("T(N):")
    assert lines[at + 1].split() == ["N", "old", "ms", "new", "ms", "new/old", "bounds"]
    rows = {line.split()[0]: line for line in lines[at + 2 : at + 2 + len(SAWTOOTH)]}
    assert set(rows) == {str(n) for n in SAWTOOTH}
    assert rows["6"].endswith("dearer")
    assert not rows["4"].endswith("dearer")
    assert {"kernel map:", "acceptance:", "overhead:"} <= set(lines)
    assert "texts:" not in lines


def test_unknown_load_times_and_memory_are_said() -> None:
    comparison = compare()
    facts = replace(comparison.new.facts, load_ms=None, peak_bytes=None)
    lines = upgrade_text(judge(replace(comparison, new=replace(comparison.new, facts=facts))))
    assert sum(line.endswith("not known on both arms") for line in lines) == 2
    assert any("700 MiB, was 700" in line for line in upgrade_text(judge(comparison)))


def test_json_has_everything_in_builtin_types() -> None:
    comparison = compare(new=changed(curve=DEARER))
    report = judge(comparison)
    told = json.loads(json.dumps(upgrade_json(report), allow_nan=False))
    assert told["conclusion"] == "regression"
    assert told["outcome"] == "fail"
    assert [one["metric"] for one in told["aspects"]] == [verdict.metric for verdict in report.verdicts]
    assert {one["n"]: one["ratio"] > 1.05 for one in told["verify_cost"]} == {n: n > 4 for n in SAWTOOTH}
    assert sum(told["attribution"]["shares"].values()) == pytest.approx(1.0)
    assert told["attribution"]["new"]["verify_ms"] > told["attribution"]["old"]["verify_ms"]
    assert from_json(told["comparison"]) == comparison


def test_json_has_no_infinite_bounds_and_no_shares_of_nothing() -> None:
    old = Made(blocks=3, repetitions=1)
    told = json.loads(json.dumps(upgrade_json(judge(compare(old, changed(old)))), allow_nan=False))
    assert told["conclusion"] == "could not tell"
    assert {one["high"] for one in told["verify_cost"]} == {None}
    assert told["speculative_decoding"]["low"] is None
    assert told["attribution"] is None
    assert told["attribution_because"].startswith("no change to attribute")


def test_an_unknown_aspect_is_no_aspect() -> None:
    with pytest.raises(KeyError):
        judge(compare()).aspect("weather")
