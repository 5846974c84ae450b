"""How a kernel map is asked for and put together, with a worker whose kernels are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from types import SimpleNamespace
from typing import Any
from typing import cast

import pytest

from pytest_specdec.bench import kernels
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.session import Bench
from pytest_specdec.bench.session import BenchSession
from pytest_specdec.measurements import KernelMap
from pytest_specdec.settings import Settings


@dataclass
class Worker:
    """Answers for kernels that switch at 4 and at 8, and leave what isn't a multiple of 4 to the first."""

    devices: tuple[str, ...] = ("CPU",)
    hidden: bool = True
    unsteady: int = 0
    content_from: int = 99
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def request(self, op: str, /, **params: Any) -> dict[str, Any]:
        self.asked.append((op, params))
        tokens, depth = params["tokens"], params["depth"]
        cost = {"forward_ms": 1.0, "wall_ms": 1.5}
        if op == "behind":
            return {
                "rows": [self.rows(tokens[:depth], self.paths(s), n) for s, n in params["pairs"]],
                **cost,
            }
        answer: dict[str, Any] = {"rows": [], "repeated": [], "content": [], "behind": [], **cost}
        for n in params["sizes"]:
            rows = self.rows(tokens[:depth], [], n)
            answer["rows"].append(rows)
            answer["repeated"].append(n != self.unsteady)
            answer["content"].append(bool(params["followers"]) and n >= self.content_from)
            for one in params["remainder"]:
                if one["m"] == n and one["first"] != [rows["hidden"][0], rows["logits"][0]]:
                    small = self.rows(tokens[:depth], self.paths(n), one["r"])
                    answer["behind"].append({"m": n, "r": one["r"], "rows": small})
        return answer

    def paths(self, n: int) -> list[str]:
        rest = n % 4 if n >= 4 else 0
        return [str((n >= 4) + (n >= 8))] * (n - rest) + ["0"] * rest

    def rows(self, context: Sequence[int], past: Sequence[str], n: int) -> dict[str, list[str]]:
        paths = [*past, *self.paths(n)]
        logits = [f"{len(context)}/" + "".join(paths[: row + 1]) for row in range(len(past), len(paths))]
        return {"hidden": logits if self.hidden else [""] * n, "logits": logits}


@dataclass
class Rig:
    """Hands out contexts over the worker, and notes for which settings."""

    engine: Worker
    made: list[Settings] = field(default_factory=list)
    proven: int = 0

    def target(self, settings: Settings) -> Any:
        return SimpleNamespace(name="made")

    def context(self, model: Any, settings: Settings, role: str, *, embeddings: bool) -> Any:
        assert embeddings
        self.made.append(settings)
        model_facts = {"devices": list(self.engine.devices), "n_vocab": 50}
        return SimpleNamespace(handle=len(self.made), facts={"flash_attn": "on", "model": model_facts})

    def tokens(self, loaded: Any, model: Any, prompt: Any) -> list[int]:
        return [len(word) for word in prompt.text.split()]

    def prove_rollback(self, loaded: Any, text: list[int], name: str) -> None:
        self.proven += 1


def taken(worker: Worker, lines: list[str] | None = None, **settings: Any) -> KernelMap:
    session = BenchSession(Settings(), progress=None if lines is None else lines.append)
    rig = Rig(worker)
    session._rig = cast(Any, rig)
    made = kernels.kernel_map(session.bench(Settings(threads=2).merged(**settings)))
    assert rig.proven == len(rig.made)
    return made


def test_letters_number_the_bits_of_each_row_in_order_of_appearance() -> None:
    assert kernels.letters([["x"], ["x", "y"], ["z", "y"], ["x", "w", "v"]]) == ("0", "00", "10", "010")


def test_without_an_output_there_are_no_letters() -> None:
    assert kernels.letters([[""], ["", ""]]) == ("", "")


def test_more_bits_than_letters_are_stars() -> None:
    named = kernels.letters([[f"{i}"] for i in range(64)])
    assert named[:12] == (*"0123456789ab",)
    assert named[59:] == ("X", "Y", "Z", "*", "*")
    assert kernels.letters([["0"], *([f"{i}"] for i in range(1, 64)), ["0"]])[-1] == "0"


def test_a_map_has_the_kernels_of_every_row() -> None:
    made = taken(Worker(), map_sizes="1-9,12", depth=5)
    (one,) = made.maps
    assert (one.depth, one.threads, one.n) == (5, 2, (*range(1, 10), 12))
    assert [rows[0] for rows in one.hidden] == [*"0001111222"]
    assert one.logits == one.hidden
    assert one.remainder == (0, 0, 0, 0, 1, 2, 3, 0, 1, 0)
    assert len(set(one.digests)) == len(one.n)
    assert one.deterministic
    assert one.content == ()
    assert made.flash_attn == "on"


def test_every_size_is_asked_for_once_with_a_repetition() -> None:
    worker, lines = Worker(), list[str]()
    taken(worker, lines, map_sizes="1-64", threads=1)
    maps = [params for op, params in worker.asked if op == "kernel_map"]
    assert [n for params in maps for n in params["sizes"]] == [*range(1, 65)]
    assert all(params["repeat"] for params in maps)
    assert max(sum(params["sizes"]) for params in maps) <= kernels.TOKENS_PER_REQUEST
    assert [params["fresh"] for _, params in worker.asked] == [True] + [False] * (len(worker.asked) - 1)
    assert lines[0] == "kernel map made, depth 0, 1 thread: N = 1 to 3"
    assert lines[1].endswith("N = 4 to 22")


def test_what_follows_row_0_is_itself_and_anything() -> None:
    worker = Worker()
    taken(worker, map_sizes="1-5", threads=1)
    params = worker.asked[-1][1]
    equal, anything = params["followers"]
    assert equal == [params["tokens"][0]] * 4
    assert len(anything) == 4
    assert len(set(anything)) > 1
    assert all(0 <= token < 50 for token in anything)


def test_sizes_that_depend_on_content_or_do_not_repeat_are_told() -> None:
    (one,) = taken(Worker(content_from=4, unsteady=3), map_sizes="1-5").maps
    assert one.content == (4, 5)
    assert one.repeated == (True, True, False, True, True)
    assert not one.deterministic


def test_a_model_without_hidden_states_is_mapped_by_its_logits() -> None:
    (one,) = taken(Worker(hidden=False), map_sizes="1-5").maps
    assert one.hidden == ("",) * 5
    assert one.logits[3:] == ("1110", "11100")
    assert one.remainder == (0, 0, 0, 0, 1)


def test_one_thread_on_a_cpu_maps_small_sizes_and_thresholds() -> None:
    made = taken(Worker(), map_sizes="1-3,8,17-20", depth=1)
    (one,) = made.one_thread
    assert one.threads == 1
    assert one.n == (1, 2, 3, 8)
    assert one.content == ()
    assert made.forward_ms > taken(Worker(), map_sizes="1-3,8,17-20", threads=1).forward_ms
    (other,) = taken(Worker(), map_sizes="2,17,18").one_thread
    assert other.n == (2, 17)


@pytest.mark.parametrize(
    ("worker", "threads"), [(Worker(), 1), (Worker(devices=("CUDA0",)), 2)], ids=["one thread", "a GPU"]
)
def test_there_is_no_second_map_for_one_thread_and_for_a_gpu(worker: Worker, threads: int) -> None:
    assert taken(worker, map_sizes="1-3", threads=threads).one_thread == ()


def test_nothing_is_placed_beyond_the_end_of_the_context() -> None:
    class Mixed(Worker):
        def paths(self, n: int) -> list[str]:
            return ["m" if n >= 8 and path == "0" else path for path in super().paths(n)]

    roomy, tight = (taken(Mixed(), map_sizes="1-12", n_ctx=room, threads=1).maps[0] for room in (64, 18))
    assert roomy.remainder[8:] == (1, 2, 3, 0)
    assert tight.remainder[8:] == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"map_sizes": "1,65", "n_batch": 64},
            "N = 65, and n_batch is 64: .* raise n_batch or lower map_sizes",
        ),
        ({"map_sizes": "1-64", "depth": 500, "n_ctx": 512}, "depth = 500 and N = 64 .* exceed n_ctx = 512"),
    ],
    ids=["batch", "context"],
)
def test_sizes_that_do_not_fit_say_what_to_raise(settings: dict[str, Any], words: str) -> None:
    bench = Bench(BenchSession(Settings()), Settings().merged(**settings))
    with pytest.raises(BenchError, match=words):
        kernels.kernel_map(bench)


def test_maps_of_several_depths_are_joined() -> None:
    first, second = (taken(Worker(), map_sizes="1-3", depth=depth) for depth in (0, 7))
    both = kernels.joined([first, second])
    assert [one.depth for one in (*both.maps, *both.one_thread)] == [0, 7, 0, 7]
    assert both.forward_ms == first.forward_ms + second.forward_ms
    assert first.tokens != second.tokens
