"""Thresholds of made class matrices with known answers."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specdec.theory.classes import Change
from pytest_specdec.theory.classes import ClassRange
from pytest_specdec.theory.classes import find_classes


ALPHABET = string.digits + string.ascii_letters


@dataclass(frozen=True)
class Made:
    """A map with its answer: `starts` are the first sizes of its ranges, `paths` those of their row 0."""

    n: list[int]
    remainder: list[int]
    starts: list[int]
    paths: list[int]
    patterns: list[list[str]]


@st.composite
def made_maps(draw: st.DrawFn) -> Made:
    """Sizes with gaps, cut at random; between ranges row 0 changes, or only the rows behind it do."""
    n = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=14)))
    remainder = [draw(st.integers(0, min(3, size - 1))) for size in n]
    starts, paths, segment = [n[0]], [draw(st.integers(0, 3))], [0]
    for i in range(1, len(n)):
        if draw(st.booleans()):
            # A row behind row 0 can show a change only where both batches have one that is no remainder.
            rows = min(n[i - 1] - remainder[i - 1], n[i] - remainder[i])
            others = [path for path in range(4) if path != paths[-1] or rows > 1]
            starts.append(n[i])
            paths.append(draw(st.sampled_from(others)))
        segment.append(len(starts) - 1)
    hidden = [
        [paths[segment[i]], *(100 + segment[i] for _ in range(1, size - remainder[i]))]
        + [draw(st.integers(200, 203)) for _ in range(remainder[i])]
        for i, size in enumerate(n)
    ]
    # The second output hides every difference, or shows the same.
    logits = draw(st.sampled_from([None, hidden, [[0] * size for size in n]]))
    return Made(n, remainder, starts, paths, [lettered(bits) for bits in (hidden, logits) if bits])


def lettered(batches: Sequence[Sequence[int]]) -> list[str]:
    """Number the bits of each row position in order of appearance."""
    known: dict[tuple[int, int], str] = {}
    counts: dict[int, int] = {}
    words = []
    for batch in batches:
        for place in enumerate(batch):
            if place not in known:
                known[place] = ALPHABET[counts.get(place[0], 0)]
                counts[place[0]] = counts.get(place[0], 0) + 1
        words.append("".join(known[place] for place in enumerate(batch)))
    return words


@given(made_maps())
def test_a_map_gives_back_the_thresholds_and_ranges_it_was_made_of(made: Made) -> None:
    found = find_classes(made.n, made.patterns, made.remainder)
    assert list(found.thresholds) == made.starts[1:]
    assert [one.start for one in found.ranges] == made.starts
    stops = [made.n[made.n.index(start) - 1] for start in made.starts[1:]] + [made.n[-1]]
    assert [one.stop for one in found.ranges] == stops
    order = list(dict.fromkeys(made.paths))
    assert [one.letter for one in found.ranges] == [
        string.ascii_lowercase[order.index(p)] for p in made.paths
    ]
    assert [change.n for change in found.changes] == made.starts[1:]


@given(made_maps())
def test_a_change_says_whether_row_0_moved_and_which_output_shows_it(made: Made) -> None:
    found = find_classes(made.n, made.patterns, made.remainder)
    for change, path, before in zip(found.changes, made.paths[1:], made.paths, strict=False):
        assert (0 in change.rows) == (path != before)
        shown = 2 if made.patterns[0] == made.patterns[-1] and len(made.patterns) == 2 else 1
        assert change.patterns == tuple(range(shown))
        assert change.after == made.n[made.n.index(change.n) - 1]


@given(made_maps(), st.integers(1, 61))
def test_which_letters_stand_for_bits_does_not_matter(made: Made, shift: int) -> None:
    def renamed(word: str) -> str:
        return "".join(
            ALPHABET[(ALPHABET.index(letter) + shift * (row + 1)) % 62] for row, letter in enumerate(word)
        )

    patterns = [[renamed(word) for word in pattern] for pattern in made.patterns]
    before = find_classes(made.n, made.patterns, made.remainder)
    assert find_classes(made.n, patterns, made.remainder) == before


def test_sawtooth_kernels_have_no_threshold_at_the_rows_they_leave_over() -> None:
    # A repacked matrix kernel works on four rows at a time and leaves the rest to the one-row kernel.
    n = range(1, 13)
    words = ["".join("1" if n_ >= 4 and row < n_ - n_ % 4 else "0" for row in range(n_)) for n_ in n]
    rest = [size % 4 if size > 4 else 0 for size in n]
    assert find_classes(n, [words], rest).thresholds == (4,)
    assert find_classes(n, [words], [0] * 12).thresholds != (4,)


def test_a_change_of_rows_behind_the_first_is_a_threshold_of_its_own() -> None:
    found = find_classes([3, 4], [["000", "0111"]], [0, 0])
    assert found.thresholds == (4,)
    assert found.changes == (Change(4, 3, (1, 2), (0,)),)
    assert found.ranges == (ClassRange(3, 3, "a"), ClassRange(4, 4, "a"))


def test_a_path_that_comes_back_has_its_letter_again() -> None:
    found = find_classes([1, 2, 3, 4], [["0", "11", "111", "0222"]], [0] * 4)
    assert [(one.start, one.stop, one.letter) for one in found.ranges] == [
        (1, 1, "a"),
        (2, 3, "b"),
        (4, 4, "a"),
    ]


def test_a_difference_that_only_the_hidden_state_shows_counts() -> None:
    found = find_classes([1, 2], [["0", "11"], ["0", "00"]], [0, 0])
    assert found.changes == (Change(2, 1, (0,), (0,)),)


def test_an_output_that_the_model_does_not_give_shows_nothing() -> None:
    assert find_classes([1, 2], [["", ""], ["0", "00"]], [0, 0]).thresholds == ()
    assert find_classes([1, 2], [["", "00"]], [0, 0]).thresholds == (2,)


def test_bits_without_a_letter_equal_nothing() -> None:
    found = find_classes([1, 2, 3], [["*", "*0", "*00"]], [0] * 3)
    assert found.thresholds == (2, 3)
    assert [one.letter for one in found.ranges] == ["a", "b", "c"]


def test_row_0_counts_even_where_a_whole_batch_is_a_remainder() -> None:
    assert find_classes([1, 2], [["0", "11"]], [0, 2]).thresholds == (2,)


def test_a_gap_in_the_list_leaves_the_place_open() -> None:
    (change,) = find_classes([9, 16], [["0" * 9, "1" * 16]], [0, 0]).changes
    assert change.where() == "in (9, 16]"
    (change,) = find_classes([15, 16], [["0" * 15, "1" * 16]], [0, 0]).changes
    assert change.where() == "16"


def test_more_classes_than_letters_are_named_on() -> None:
    n = list(range(1, 31))
    found = find_classes(n, [["*" * size for size in n]], [0] * 30)
    assert [one.letter for one in found.ranges][24:] == ["y", "z", "aa", "ab", "ac", "ad"]


def test_json_has_builtin_types_only() -> None:
    data = find_classes([1, 2], [["0", "11"]], [0, 0]).to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["changes"] == [{"n": 2, "after": 1, "rows": [0], "patterns": [0]}]


@pytest.mark.parametrize(
    ("n", "patterns", "remainder", "told"),
    [
        ([2, 1], [["00", "0"]], [0, 0], "n must be sorted"),
        ([], [[]], [], "n must not be empty"),
        ([1, 2], [["0"]], [0, 0], r"patterns\[0\] must have one text for each of the 2 sizes, got 1"),
        (
            [1, 2],
            [["0", "00"], ["0", "000"]],
            [0, 0],
            r"patterns\[1\] must have one letter per row, .* N = 2",
        ),
        ([1, 2], [["0", "00"]], [0], "remainder must have one value for each of the 2 sizes, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    n: list[int], patterns: list[list[str]], remainder: list[int], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        find_classes(n, patterns, remainder)
