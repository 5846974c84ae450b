"""Tables of N and ms or tokens per second, however they are separated."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.curve import Curve
from pytest_specdec.imports.curve import chosen
from pytest_specdec.imports.read import curves
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.theory.steps import find_steps


DATA = Path(__file__).parent.parent / "data"


def one(text: str) -> Curve:
    (curve,) = curves(text, "table")
    return curve


@pytest.mark.parametrize(
    "text",
    [
        "N,ms\n1,10\n2,12.5\n4,20\n",
        "n,tokens/s\n1,100\n2,160\n4,200\n",
        "\ufeffN;T(N) ms\r\n1;10\r\n2;12.5\r\n4;20\r\n",
        "batch\ttok_per_s\n1\t100\n2\t160\n4\t200\n",
        "# a comment\n\n N , ms \n4,20\n1,10\n\n2,12.5",
        "| N | ms |\n|---|---:|\n| 1 | 10 |\n| 2 | 12.5 |\n| 4 | 20 |\n",
        "Some words.\n\n| N | t/s |\n|--|--|\n| 1 | 100 |\n| 2 | 160 |\n| 4 | 200 |\nbuild: x\n",
        "N,ms,tok_per_s\n1,10,7\n2,12.5,7\n4,20,7\n",
        "x,N,ms,y\na,1,10,\nb,2,12.5,-\nc,4,20,?\n",
    ],
)
def test_one_curve_however_it_is_written(text: str) -> None:
    curve = one(text)
    assert curve.name == ""
    assert curve.verify == VerifyCurve((1, 2, 4), (((10.0,),), ((12.5,),), ((20.0,),)), source="table")
    assert curve.noise_ms is None
    assert "depth and rows of logits are not said" in curve.origin


def test_published_tables_are_read_as_they_are() -> None:
    article = one((DATA / "verify_m5pro_metal_qwen25_7b_q4_k_m.csv").read_text())
    assert article.verify.medians_ms()[9] == 78.98
    assert article.steps().safe_draft_length == 7
    before, after = curves((DATA / "cuda_v100_llama8b_q2_k_upgrade.csv").read_text(), "cuda")
    assert (before.name, after.name) == ("tok_per_s_b10830", "tok_per_s_eb808cfee")
    assert before.verify.medians_ms()[8] == pytest.approx(1000 * 8 / 280.34)
    vulkan = one((DATA / "vulkan_rtx3090_llama8b_q4_0.csv").read_text())
    assert [step.n for step in vulkan.steps().drops] == [9]
    sawtooth, _ = curves((DATA / "cpu_llama13b_f16_sawtooth.csv").read_text(), "cpu")
    assert sawtooth.steps().sawtooth == 3


def test_deviations_decide_what_is_a_step() -> None:
    rows = "8,10,{0}\n9,15,{0}\n"
    sure, unsure = (one("N,ms,ms_sd\n" + rows.format(sd)) for sd in ("0.01", "1.5"))
    assert sure.noise_ms == (0.01, 0.01)
    assert [step.n for step in sure.steps().cliffs] == [9]
    assert unsure.steps().cliffs == ()
    assert [step.n for step in unsure.steps().straddling] == [9]


def test_rows_of_one_size_are_repetitions() -> None:
    curve = one("N,ms\n1,10\n2,12\n1,10.4\n2,30\n1,10.2\n2,12.4\n")
    assert curve.verify.samples_ms == (((10.0, 10.4, 10.2),), ((12.0, 30.0, 12.4),))
    assert curve.verify.medians_ms() == {1: 10.2, 2: 12.4}
    assert curve.noise_ms == pytest.approx((1.4826 * 0.2, 1.4826 * 0.4))


def test_a_measurements_own_frame_keeps_its_pairing() -> None:
    samples = tuple(tuple((t + b, t + b + 0.5) for b in range(8)) for t in (10.0, 12.0, 40.0))
    verify = VerifyCurve((1, 2, 3), samples)
    curve = one(verify.to_frame().to_csv())
    assert curve.verify.samples_ms == samples
    assert curve.noise_ms is None
    assert curve.steps() == find_steps(verify.n, verify.blocks_ms())


def test_blocks_that_do_not_pair_are_repetitions() -> None:
    curve = one("n,block,ms\n1,0,10\n1,1,11\n2,0,12\n")
    assert curve.verify.samples_ms == (((10.0, 11.0),), ((12.0,),))


def test_empty_cells_are_sizes_that_were_not_measured() -> None:
    old, new = curves("N,ms_old,ms_new\n1,10,\n2,11,9\n3,,10\n", "table")
    assert (old.name, old.verify.n) == ("ms_old", (1, 2))
    assert (new.name, new.verify.n) == ("ms_new", (2, 3))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "table: is empty: a table (CSV) of N and ms or tokens/s"),
        ("\n \n", "table: is empty"),
        ("# nothing\n", "table: is empty: a header with N and ms"),
        ("a\0b", "table: is no text"),
        ("N,ms\n", "table: column 'ms' is empty"),
        ("1,10\n2,12\n", "table: the columns are 1, 10: a header with N and ms, or N and tokens/s is wanted"),
        ("k,speed\n1,2\n", "table: the columns are k, speed"),
        ("N,block\n1,2\n", "table: the columns are N, block"),
        ("N,ms\n1,10\n2,x\n", "table:3: ms is 'x', not a number above 0"),
        (
            "N;ms\n1;10\n2;11,5\n",
            "table:3: ms is '11,5', not a number above 0; decimals are written with a point",
        ),
        ("N,ms\n1,10\n\n2,0\n", "table:4: ms is '0', not a number above 0"),
        ("N,ms\n1,10\n2,-3\n", "table:3: ms is '-3', not a number above 0"),
        ("N,ms\n1,10\n2,nan\n", "table:3: ms is 'nan', not a number above 0"),
        ("N,tok/s\n1,10\n2,1e-320\n", "table:3: tok/s is '1e-320', not a number above 0"),
        ("N,ms\n1,10\n2,inf\n", "table:3: ms is 'inf', not a number above 0"),
        ("N,ms,sd\n1,10,1\n2,11,-1\n", "table:3: sd is '-1', not a number at least 0"),
        ("N,ms\n1.5,10\n", "table:2: N is '1.5', not a whole number of at least 1"),
        ("N,ms\n0,10\n", "table:2: N is '0', not a whole number of at least 1"),
        ("N,ms\n1,10\n2\n", "table:3: has 1 cells where the header has 2"),
        ('N,ms\n1,"10\n', "table:2: is no CSV"),
        ("| N | ms |\n|--|--|\n| 1 |\n", "table:3: has 1 cells where the header has 2"),
        ("N,ms\n4,10\n", "table: only N = 4: steps need two sizes or more"),
        ("N,ms_a,ms_b\n1,2,3\n2,3,\n", "table: ms_b: only N = 1: steps need two sizes or more"),
    ],
)
def test_a_fault_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(BadFile) as caught:
        curves(text, "table")
    assert str(caught.value).startswith(told)


def test_curves_are_chosen_by_number_or_name() -> None:
    found = curves("N,ms_old,ms_new\n1,10,9\n2,11,9\n", "table")
    assert [curve.name for curve in chosen(found, "2")] == ["ms_new"]
    assert [curve.name for curve in chosen(found, "OLD")] == ["ms_old"]
    assert len(chosen(found, "ms")) == 2
    assert chosen(found, "3") == []
