"""A replay finds what an entry states, and says what there is where it has no answer."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import Any

import pytest

from pytest_specdec.engine.replay import NotReplayed
from pytest_specdec.engine.replay import Replay
from pytest_specdec.engine.replay import models
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Measurement


@dataclass(frozen=True)
class Entry:
    key: str
    kind: str
    settings: dict[str, Any]
    source: str = "published"
    recorded: str = "2026-01-01"
    build: dict[str, Any] = field(default_factory=dict)

    @property
    def measurement(self) -> Measurement:
        return DraftCost("two-model", (1.0,), (2.0,), source=self.source)


def run(k: int, key: str = "", **settings: Any) -> Entry:
    return Entry(key or f"speculative k={k}", "speculative", {"k": k, "method": "two-model", **settings})


def curve(depth: int, rows: str = "all") -> Entry:
    return Entry(f"curve {depth} {rows}", "verify_curve", {"depth": depth, "rows": rows})


def replay(*entries: Entry) -> Replay:
    return Replay("lab", {"t--d": entries})


def asked(k: int, **settings: Any) -> dict[str, Any]:
    return {"k": k, "method": "two-model", "threads": 2, **settings}


def test_what_an_entry_states_decides_and_the_rest_does_not() -> None:
    lab = replay(run(3), run(11), Entry("draft_cost", "draft_cost", {}))
    assert lab.entry("t--d", "speculative", asked(11, n_ctx=9)).key == "speculative k=11"
    assert lab.entry("t--d", "draft_cost", {"depth": 512, "method": "ngram"}).key == "draft_cost"
    assert lab.entry("t--d", "speculative", {"threads": 1}).kind == "speculative"


def test_of_several_the_likest_answers_then_the_newest() -> None:
    one = run(3, "one", n_predict=64, threads=2)
    two = run(3, "two", n_predict=192, threads=2)
    new = Entry("new", "speculative", one.settings, recorded="2026-02-01")
    assert replay(one, two).entry("t--d", "speculative", asked(3, n_predict=192)).key == "two"
    assert replay(one, two).entry("t--d", "speculative", asked(3, n_predict=64)).key == "one"
    assert replay(new, one).entry("t--d", "speculative", asked(3, n_predict=64)).key == "new"


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        ("speculative", asked(9), "no speculative run at k = 9; it has k = 1, 2, 11"),
        (
            "speculative",
            asked(2, method="ngram"),
            "no speculative run at method = ngram; it has method = two-model",
        ),
        (
            "speculative",
            asked(9, method="ngram"),
            "no speculative run at method = ngram and k = 9; it has method = two-model, k = 1; "
            "method = two-model, k = 2; method = two-model, k = 11",
        ),
        ("exactness", asked(1), "no exactness; it has speculative run, verify curve"),
        ("verify_curve", {"depth": 7, "rows": "all"}, "no verify curve at depth = 7; it has depth = 0, 256"),
        (
            "verify_curve",
            {"depth": 256, "rows": "last"},
            "no verify curve at depth = 256 and rows = last; it has depth = 0, rows = last; "
            "depth = 256, rows = all",
        ),
    ],
)
def test_an_absent_answer_names_what_there_is(kind: str, settings: dict[str, Any], told: str) -> None:
    lab = replay(run(11), run(2), run(1), curve(256), curve(0, "last"))
    with pytest.raises(NotReplayed) as caught:
        lab.entry("t--d", kind, settings)
    assert str(caught.value) == f"the replay of lab has {told}"


def test_an_absent_pair_names_those_there_are() -> None:
    with pytest.raises(NotReplayed, match=r"^the replay of lab has no pair x--y; it has t--d$"):
        replay(run(1)).entry("x--y", "speculative", asked(1))
    several = Replay("lab", {"t--d": [run(1)], "t--none": []})
    with pytest.raises(
        NotReplayed, match="it has t--d, t--none, choose with --specdec-target and --specdec-d"
    ):
        several.entry("none--none", "speculative", asked(1))


@pytest.mark.parametrize(
    ("target", "draft", "found"),
    [
        (None, None, ("t--d", "t--none", "u--d")),
        ("t", None, ("t--d", "t--none")),
        (None, "d", ("t--d", "u--d")),
        ("u", "d", ("u--d",)),
        ("v", None, ()),
    ],
)
def test_pairs_are_found_by_target_and_draft(
    target: str | None, draft: str | None, found: tuple[str, ...]
) -> None:
    assert Replay("lab", {"t--d": [], "t--none": [], "u--d": []}).matching(target, draft) == found


def test_a_pairs_name_tells_its_models() -> None:
    assert models("qwen2.5-7b--qwen2.5-0.5b") == ("qwen2.5-7b", "qwen2.5-0.5b")
    assert models("gemma--none") == ("gemma", None)


def test_it_says_where_its_numbers_are_from() -> None:
    assert replay(run(1)).told == "replayed from published numbers, not measured here"
    live = Entry("x", "decode", {}, source="measured")
    assert replay(run(1), live).told == "replayed from the baselines of lab, not measured here"


def test_its_build_is_the_newest_one() -> None:
    old = Entry("a", "decode", {}, build={"ggml_commit": "old"}, recorded="2025-01-01")
    new = Entry("b", "decode", {}, build={"ggml_commit": "new"}, recorded="2026-01-01")
    hello = replay(new, old).hello()
    assert (hello["ggml_commit"], hello["devices"]) == ("new", [])
