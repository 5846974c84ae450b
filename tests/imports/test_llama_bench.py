"""llama-bench output: one curve from all its formats, one per setting, every fault by file and line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.read import curves

from .benchmark import FORMATS
from .benchmark import Bench
from .benchmark import as_csv
from .benchmark import as_json
from .benchmark import as_jsonl
from .benchmark import as_md
from .benchmark import as_sql
from .benchmark import benches


METAL = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16),
        (18.15, 20.93, 28.11, 27.23, 29.01, 37.86, 44.43, 44.77, 78.98, 79.46, 80.11),
        strict=True,
    )
)


def one(text: str) -> Curve:
    (curve,) = curves(text, "bench")
    return curve


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_tells_the_same_curve(form: str) -> None:
    curve = one(FORMATS[form](benches(METAL)))
    assert curve.name == "qwen2 7B Q4_K - Medium"
    assert curve.origin == f"llama-bench ({form}), depth 0, logits of the last row only"
    assert (curve.verify.rows, curve.verify.depth, curve.verify.source) == ("last", 0, "llama-bench")
    medians = curve.verify.medians_ms()
    assert list(medians) == list(METAL)
    assert medians == pytest.approx(METAL, rel=0.004)
    steps = curve.steps()
    assert [step.n for step in steps.cliffs] == [9]
    assert steps.cliffs[0].low < steps.cliffs[0].ratio < steps.cliffs[0].high
    assert steps.dips == (3,)
    assert steps.safe_draft_length == 7


def test_times_come_from_the_samples_and_their_median() -> None:
    slow_first = Bench(4, (90.0, 10.0, 10.1, 10.2, 9.9))
    text = as_json([Bench(1, (5.0,) * 5), slow_first])
    assert one(text).verify.medians_ms() == {1: 5.0, 4: 10.1}
    assert one(text).steps().steps[0].high < 2.1
    # Where there are no samples the average is all there is, and its spread says what it is worth.
    averages = one(as_csv([Bench(1, (5.0,) * 5), slow_first]))
    assert averages.verify.medians_ms()[4] == pytest.approx(26.04)
    assert averages.noise_ms is not None
    assert averages.noise_ms[1] > 10.0


@pytest.mark.parametrize("form", ["csv", "sql", "md"])
def test_the_deviation_is_that_of_the_rates(form: str) -> None:
    noise = one(FORMATS[form](benches({1: 10.0, 2: 12.0}, ripple=0.05))).noise_ms
    assert noise is not None
    # Of five values of a sine the standard deviation is about 0.7 of its size; stddev_ns would be absurd.
    assert all(0.2 < sd < 0.8 for sd in noise)


@pytest.mark.parametrize("form", FORMATS)
def test_a_step_inside_the_noise_is_none_and_one_across_the_line_is_open(form: str) -> None:
    quiet = {7: 10.0, 8: 10.5, 9: 15.6}
    assert [step.n for step in one(FORMATS[form](benches(quiet, ripple=0.002))).steps().cliffs] == [9]
    noisy = one(FORMATS[form](benches(quiet, ripple=0.08))).steps()
    assert noisy.cliffs == ()
    assert [step.n for step in noisy.straddling] == [9]


@pytest.mark.parametrize("form", FORMATS)
def test_rows_that_generate_are_left_out_and_counted(form: str) -> None:
    rows = [*benches({1: 10.0, 2: 11.0}), *benches({128: 900.0}, gen=True)]
    curve = one(FORMATS[form](rows))
    assert curve.verify.n == (1, 2)
    assert curve.remarks == ("rows that generate (n_gen > 0) are left out: 1",)
    with pytest.raises(BadFile, match=r"^bench: every row generates \(n_gen > 0\): nothing tells T\(N\)"):
        curves(FORMATS[form](rows[2:]), "bench")


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql"])
def test_one_curve_per_model_depth_and_ubatch(form: str) -> None:
    small: dict[str, Any] = {"model": "qwen2 0.5B Q8_0", "file": "models/Qwen2.5-0.5B-Instruct-Q8_0.gguf"}
    rows = [
        *benches({1: 10.0, 2: 11.0}),
        *benches({1: 2.0, 2: 2.5}, **small),
        *benches({1: 12.0, 2: 13.0}, depth=256),
        *benches({1: 10.0, 2: 30.0}, ubatch=1),
    ]
    found = {curve.name: curve for curve in curves(FORMATS[form](rows), "bench")}
    big, tiny = "Qwen2.5-7B-Instruct-Q4_K_M", "Qwen2.5-0.5B-Instruct-Q8_0"
    assert list(found) == [
        f"{big}, n_ubatch 512, depth 0",
        f"{tiny}, n_ubatch 512, depth 0",
        f"{big}, n_ubatch 512, depth 256",
        f"{big}, n_ubatch 1, depth 0",
    ]
    assert found[f"{big}, n_ubatch 512, depth 256"].verify.depth == 256
    assert found[f"{big}, n_ubatch 1, depth 0"].remarks == ("N = 2 took more than one pass: n_ubatch is 1",)
    assert found[f"{big}, n_ubatch 512, depth 0"].remarks == ()


def test_markdown_tells_settings_by_its_columns_and_builds_by_what_stands_below() -> None:
    old = as_md([*benches({1: 10.0, 2: 11.0}), *benches({1: 11.0, 2: 12.0}, depth=512)])
    new = as_md(benches({1: 10.0, 2: 19.0}, build="eb808cfee"))
    found = curves(f"# before\n{old}\n# after\n{new}", "bench")
    assert [curve.name for curve in found] == [
        "qwen2 7B Q4_K - Medium, build 8cf427ff (5163), depth 0",
        "qwen2 7B Q4_K - Medium, build 8cf427ff (5163), depth 512",
        "qwen2 7B Q4_K - Medium, build eb808cfee (5163), depth 0",
    ]
    assert [curve.verify.medians_ms()[2] for curve in found] == pytest.approx([11.0, 12.0, 19.0], rel=0.01)


def test_the_older_markdown_with_spaces_is_read_too() -> None:
    text = as_md(benches({1: 10.0, 2: 11.0})).replace(" pp", " pp ")
    assert one(text).verify.n == (1, 2)


def test_a_single_setting_is_named_by_its_model_and_depth() -> None:
    assert one(as_json(benches({1: 10.0, 2: 11.0}, depth=64))).name == "qwen2 7B Q4_K - Medium, depth 64"


def test_sizes_that_come_twice_are_joined() -> None:
    text = as_jsonl([Bench(1, (10.0, 10.2)), Bench(2, (12.0, 12.2))]) + as_jsonl([Bench(1, (11.0, 11.2))])
    curve = one(text)
    assert curve.verify.samples_ms == (((10.0, 10.2, 11.0, 11.2),), ((12.0, 12.2),))
    assert curve.noise_ms is not None
    assert curve.noise_ms[0] > 3 * curve.noise_ms[1]


@pytest.mark.parametrize("spread", ["0.10", "99999.00"])
def test_an_absurd_spread_leaves_everything_open(spread: str) -> None:
    text = as_md([Bench(1, (10.0,)), Bench(2, (31.0,))]).replace("± 0.00", f"± {spread}")
    steps = one(text).steps()
    assert len(steps.cliffs) == (spread == "0.10")
    assert len(steps.straddling) == (spread != "0.10")


def test_single_runs_have_no_noise() -> None:
    assert one(as_json([Bench(1, (10.0,)), Bench(2, (11.0,))])).noise_ms is None


ROWS = benches({1: 10.0, 2: 11.0, 3: 12.0})


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (
            as_json(ROWS).replace('"n_prompt": 2', '"n_prompt": "two"'),
            48,
            "n_prompt is 'two', not a whole number",
        ),
        (
            as_json(ROWS).replace('"n_prompt": 2', '"n_prompt": 0'),
            48,
            "n_prompt is 0, not a whole number of at l",
        ),
        (as_json(ROWS).rstrip().removesuffix("]"), 140, "is cut: the array has no end"),
        (as_json(ROWS)[:1500], 55, "is cut or no JSON"),
        (as_json(ROWS) + "warning: x", 141, "has something after the end of the array"),
        (as_jsonl(ROWS).replace("[ 1", "[ -1"), 1, "samples_ns holds -"),
        (as_jsonl(ROWS).replace('"n_gen": 0', '"n_gen": "no"'), 1, "n_gen is 'no'"),
        (as_jsonl(ROWS) + '{"n_gen": 0}\n', 4, "is no row of llama-bench"),
        (as_jsonl(ROWS) + "[1]\n", 4, "is no row of llama-bench"),
        (as_jsonl(ROWS) + "oops\n", 4, "is cut or no JSON"),
        (as_csv(ROWS).rpartition(",")[0], 4, "cells where the header has 42"),
        (as_csv(ROWS).replace('"11', '"1x'), 3, "avg_ns holds '1x"),
        (as_csv(ROWS) + '"a\n', 5, "is no CSV"),
        (as_sql(ROWS)[:-90], 48, "is no INSERT of llama-bench"),
        (as_sql(ROWS).replace("'models", "'John's models"), 46, "llama-bench does not escape quotes"),
        (as_md(ROWS).replace("pp2", "xx2"), 4, "test is 'xx2', not one such as 'pp8'"),
        (as_md(ROWS).replace("± 0.", "~ 0.", 1), 3, "t/s is '"),
        (as_md(ROWS).replace(" |   4.36 GiB", "", 1), 3, "has 6 cells where the header has 7"),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(BadFile) as caught:
        curves(text, "bench.out")
    assert str(caught.value).startswith(f"bench.out:{line}: ")
    assert told in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (as_json([]), "holds nothing"),
        (as_sql(ROWS).partition("INSERT")[0], "creates a table and inserts nothing: run llama-bench -p 1-16"),
        (as_csv(ROWS).partition("\n")[0] + "\n", "no rows: nothing tells T(N)"),
        (as_json(ROWS[:1]), "qwen2 7B Q4_K - Medium: only N = 1: steps need two sizes or more"),
        (as_json(ROWS[:1] + benches({4: 3.0}, ubatch=4)), "only N = 1: steps need two sizes or more"),
    ],
)
def test_what_holds_no_curve_says_so(text: str, told: str) -> None:
    with pytest.raises(BadFile) as caught:
        curves(text, "bench.out")
    assert str(caught.value).startswith("bench.out: ")
    assert told in str(caught.value)


def test_a_row_without_any_time_is_told() -> None:
    with pytest.raises(BadFile, match="bench:1: has none of samples_ns, avg_ns and avg_ts"):
        curves('{"n_prompt": 4, "n_gen": 0}\n{"n_prompt": 5, "n_gen": 0}', "bench")


def test_not_a_number_is_no_time() -> None:
    rows = as_jsonl([Bench(1, (1.0,)), Bench(2, (2.0,))])
    assert math.isfinite(one(rows).verify.medians_ms()[2])
    with pytest.raises(BadFile, match="bench:2: samples_ns holds nan, not a number above 0"):
        curves(rows.replace("[ 2000000 ]", "[ NaN ]"), "bench")
