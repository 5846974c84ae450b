from __future__ import annotations

from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.reports.curve import curve_lines
from pytest_specdec.reports.curve import curve_section
from pytest_specdec.reports.curve import evidence
from pytest_specdec.reports.curve import marks
from pytest_specdec.reports.curve import place
from pytest_specdec.theory.steps import StepMap
from pytest_specdec.theory.steps import find_steps


def curve(*rows: tuple[int, float], depth: int = 0, asked: str = "all") -> VerifyCurve:
    samples = tuple(tuple((ms * (1 + b / 1000),) * 3 for b in range(8)) for _, ms in rows)
    return VerifyCurve(tuple(n for n, _ in rows), samples, depth=depth, rows=asked)


def steps_of(one: VerifyCurve) -> StepMap:
    return find_steps(one.n, one.blocks_ms())


SAWTOOTH = curve((1, 20.0), (2, 24.0), (3, 26.0), (4, 40.0), (5, 35.0), (8, 80.0))


def test_every_size_has_its_mark() -> None:
    assert marks(SAWTOOTH, steps_of(SAWTOOTH)) == {
        1: "",
        2: "",
        3: "",
        4: "cliff dip",
        5: "drop",
        8: "cliff",
    }


def test_a_step_that_straddles_has_a_question_mark() -> None:
    ms = {4: 10.0, 5: 14.0}
    samples = tuple(tuple((t * (1 + (b % 3 - 1) * 0.03 * (n - 4)),) for b in range(8)) for n, t in ms.items())
    one = VerifyCurve((4, 5), samples)
    assert marks(one, steps_of(one))[5] == "cliff?"


def test_the_table_has_each_size() -> None:
    rows = [line.split() for line in curve_lines(SAWTOOTH, steps_of(SAWTOOTH))]
    assert rows[0] == ["N", "T(N)", "ms", "±MAD", "T(N)/T(1)", "ms/token", "step", "bounds"]
    assert rows[1] == ["1", "20.07", "0.040", "1.00", "20.07"]
    assert rows[4] == ["4", "40.14", "0.080", "2.00", "10.04", "1.54", "1.54-1.54", "cliff", "dip"]
    assert rows[6] == ["8", "80.28", "0.16", "4.00", "10.04", "2.29", "2.29-2.29", "cliff"]


def test_the_last_rows_times_stand_beside() -> None:
    last = curve((1, 19.0), (2, 20.0), (3, 21.0), asked="last")
    lines = curve_lines(SAWTOOTH, steps_of(SAWTOOTH), last=last)
    rows = [line.split() for line in lines]
    assert rows[0][-3:] == ["last", "row", "ms"]
    assert rows[2][-1] == "20.07"
    assert rows[4][-3:] == ["-", "cliff", "dip"]


def test_without_one_token_the_smallest_size_is_the_unit() -> None:
    one = curve((4, 10.0), (5, 12.0))
    header, first, second = (line.split() for line in curve_lines(one, steps_of(one)))
    assert "T(N)/T(4)" in header
    assert first[3] == "1.00"
    assert second[3] == "1.20"


def test_the_section_says_how_it_was_measured() -> None:
    one = curve((1, 10.0), (2, 13.0), (4, 14.0), depth=256)
    lines = curve_section(one, steps_of(one)).splitlines()
    assert lines[0] == "verify cost at depth 256, logits of all rows, 8 blocks (measured)"
    assert lines[-1] == "T(N): ▁▆█  N = 1-2,4"
    last = curve((1, 10.0), (2, 12.0), asked="last")
    assert "logits of the last row" in curve_section(last, steps_of(last))


def test_bounds_run_from_low_to_high() -> None:
    base = tuple((10.0,) for _ in range(8))
    noisy = tuple((ms,) for ms in (11.0, 11.5, 12.0, 12.0, 12.5, 12.5, 13.0, 13.0))
    one = VerifyCurve((1, 2), (base, noisy))
    (step,) = steps_of(one).steps
    assert step.low < step.high
    assert evidence(step) == f"T(2)/T(1) = {step.ratio:.2f}, bounds {step.low:.2f}-{step.high:.2f}"
    assert curve_lines(one, steps_of(one))[2].split()[6] == f"{step.low:.2f}-{step.high:.2f}"


def test_a_gap_is_named_as_one() -> None:
    four, gap = steps_of(SAWTOOTH).steps[2], steps_of(SAWTOOTH).steps[4]
    assert (place(four), place(gap)) == ("at 4", "in (5, 8]")
    assert evidence(gap) == "T(8)/T(5) = 2.29, bounds 2.29-2.29"
