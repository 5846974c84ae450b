from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_specdec.reports import text


REPEATABLE = settings(deadline=None, database=None, derandomize=True)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (120.256, "120.26"),
        (0.79, "0.79"),
        (0.1, "0.10"),
        (0.0123, "0.012"),
        (-0.05, "-0.050"),
        (0.0, "0.00"),
        (float("inf"), "inf"),
    ],
)
def test_numbers(value: float, written: str) -> None:
    assert text.number(value) == written


@pytest.mark.parametrize(
    ("value", "limit", "written"),
    [
        (1.44, 1.4, "1.44"),
        (1.3996, 1.4, "1.3996"),
        (1.4, 1.4, "1.40"),
        (1.404, 1.4, "1.404"),
        (0.795, 0.99, "0.80"),
        (1.4 + 1e-9, 1.4, repr(1.4 + 1e-9)),
    ],
)
def test_a_value_is_written_on_its_side_of_the_limit(value: float, limit: float, written: str) -> None:
    assert text.against(value, limit) == written


@REPEATABLE
@given(st.floats(0.001, 100), st.floats(0.001, 100))
def test_what_is_written_never_crosses_the_limit(value: float, limit: float) -> None:
    written = float(text.against(value, limit))
    if value < limit:
        assert written < limit
    if value > limit:
        assert written > limit


def test_intervals() -> None:
    assert text.interval(1.413, 1.466) == "1.41-1.47"
    assert text.interval(float("-inf"), float("inf")) == "?-?"


def test_plurals() -> None:
    assert [text.plural(n, "pair") for n in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]


def test_sizes_are_written_as_the_setting_takes_them() -> None:
    assert text.sizes([16, 1, 2, 3, 3, 9, 10]) == "1-3,9-10,16"
    assert text.sizes([]) == ""


def test_cutting_keeps_the_end_asked_for() -> None:
    assert text.shorten("tests/test_a.py::test_b", 10) == "tests/tes…"
    assert text.shorten("tests/test_a.py::test_b", 10, keep="end") == "…y::test_b"
    assert text.shorten("short", 10) == "short"
    assert text.shorten("abc", 1) == "…"
    assert text.shorten("abc", 0) == ""


@REPEATABLE
@given(st.text(alphabet="ab模ö\u0301", max_size=12), st.integers(0, 12), st.sampled_from(["start", "end"]))
def test_what_is_cut_fits(content: str, columns: int, keep: str) -> None:
    cut = text.shorten(content, columns, keep=keep)
    assert text.width(cut) <= max(columns, text.width(content) if text.width(content) <= columns else columns)
    assert text.width(text.pad(cut, columns)) == columns


def test_wide_characters_take_two_columns() -> None:
    assert text.width("模型") == 4
    assert text.width("e\u0301") == 1
    lines = text.table(["name", "n"], [["模型", "1"], ["a", "22"]], left=(0,))
    assert lines == ["name   n", "模型   1", "a     22"]


def test_sparkline_spans_its_values() -> None:
    assert text.sparkline([1.0, 8.0, 4.5]) == "▁█▅"
    assert text.sparkline([3.0, 3.0]) == "▁▁"
    assert text.sparkline([]) == ""


def test_a_chart_has_bars_in_proportion() -> None:
    lines = text.chart(["1", "2", "4"], [1.0, 2.0, 4.0], height=4, unit="ms")
    assert lines == [
        "4.00 ms ▕        ██",
        "        ▕        ██",
        "        ▕    ██  ██",
        "      0 ▕██  ██  ██",
        "         1   2   4",
    ]


def test_marks_stand_under_their_bars() -> None:
    lines = text.chart(["8", "9"], [1.0, 2.0], marks=["", "^"], height=2)
    assert lines[-2:] == ["      8   9", "          ^"]
    assert text.chart(["8", "9"], [1.0, 2.0], marks=["", ""], height=2) == lines[:-1]


@pytest.mark.parametrize("count", [1, 13, 20, 40, 64, 65, 66, 68, 70, 300])
def test_a_chart_fits_its_columns(count: int) -> None:
    labels = [str(n) for n in range(1, count + 1)]
    values = [float(n) for n in range(1, count + 1)]
    lines = text.chart(labels, values, marks=["^"] * count, columns=76, unit="ms")
    assert max(map(text.width, lines)) <= 76
    assert lines[0].endswith("█")
    assert len(lines) == 10


def test_neighbours_that_share_a_bar_show_the_largest() -> None:
    values = [1.0] * 200
    values[101] = 8.0
    lines = text.chart([str(n) for n in range(200)], values, columns=60)
    assert lines[0].count("█") == 1


def test_many_bars_are_thin_and_touch() -> None:
    lines = text.chart([str(n) for n in range(40)], [1.0] * 40, columns=47, height=2)
    assert lines[1] == "   0 ▕" + "█" * 40


def test_bars_are_two_wide_where_four_columns_are_free() -> None:
    lines = text.chart([str(n) for n in range(10)], [1.0] * 10, columns=46, height=2)
    assert lines[1] == "   0 ▕" + "  ".join(["██"] * 10)


def test_a_chart_of_nothing() -> None:
    assert text.chart([], []) == []
    assert text.chart(["1"], [0.0])[-1].endswith("1")


def test_labels_must_fit_values() -> None:
    with pytest.raises(ValueError, match="2 values, but 1 labels and 0 marks"):
        text.chart(["1"], [1.0, 2.0])
