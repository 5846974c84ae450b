from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Self

import gguf
import numpy as np
import pytest

from pytest_specdec import cli
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.layers import Search
from pytest_specdec.bench.layers import Step
from pytest_specdec.measurements import DraftCost

from .double import Session
from .double import put


FOUND = Search(
    blocks=8,
    wanted=2,
    chosen=(Step(5, 0.9), Step(3, 0.75)),
    held_out=0.625,
    first=0.25,
    itself=1.0,
    searched_tokens=40,
    held_out_tokens=48,
    how_held_out="every other prompt",
    copies=17,
    seconds=12.4,
    tried=7,
    candidates=7,
)
STOPPED = Search(
    blocks=8,
    wanted=3,
    chosen=(Step(5, 0.9),),
    held_out=0.9,
    first=0.25,
    itself=1.0,
    searched_tokens=40,
    held_out_tokens=48,
    how_held_out="every other prompt",
    copies=5,
    seconds=4.0,
    tried=3,
    candidates=8,
)


class Double(Session):
    """A bench that finds what it is told, and notes what it was asked."""

    found: Search = FOUND
    searched: tuple[Any, ...] = ()
    changed: dict[str, Any]

    def search_layers(self, count: int, budget_s: float) -> Search:
        self.measuring("searching")
        type(self).searched = (count, budget_s)
        return self.found

    def with_settings(self, **changes: Any) -> Self:
        type(self).changed = changes
        return self

    def draft_cost(self) -> DraftCost:
        return DraftCost("two-model", (4.0, 4.0, 4.8), (5.0, 5.0, 6.0))


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Double]:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return put(Double, monkeypatch, found=FOUND, searched=())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Eight blocks of 64 bytes and a tied head of 128."""
    path = tmp_path / "target.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(8)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), np.float32))
    for block in range(8):
        writer.add_tensor(f"blk.{block}.ffn_up.weight", np.full(16, block, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def shown(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> str:
    assert cli.main(["layerskip", *map(str, argv)]) == code
    return capsys.readouterr().out


def blocks(path: Path) -> list[int]:
    return [int(t.data[0]) for t in gguf.GGUFReader(path).tensors if t.name.startswith("blk.")]


def test_the_first_blocks_into_the_cache(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    first, second, cost, shared = shown(capsys, target, "--keep", 3).splitlines()
    path = Path(first.partition(": ")[0])
    assert path.parent == tmp_path / "cache" / "derived"
    assert blocks(path) == [0, 1, 2]
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    assert first == f"{path}: blocks 0-2 of {target}, 3 of 8 (38%), {size}"
    assert second == "as a draft of this target: layerskip:3"
    assert cost.endswith(f": specdec variants --target {target} --draft layerskip:3")
    # (3 x 64 + 128) / (8 x 64 + 128)
    assert "with weights and cache shared with the target, c ≈ 0.50 = bytes of (3 blocks + " in shared
    assert double.searched == ()


def test_some_blocks_left_out_into_a_file(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "copy.gguf"
    data = json.loads(shown(capsys, target, "--skip", "6,1", "-o", out, "--json"))
    assert blocks(out) == [0, 2, 3, 4, 5, 7]
    assert data == {
        "model": str(target),
        "path": str(out),
        "draft": "layerskip:skip=1,6",
        "size": out.stat().st_size,
        "blocks": 8,
        "kept": [0, 2, 3, 4, 5, 7],
        "share": 0.75,
        "draft_cost_if_shared": {"computed": 0.8, "measured": None},
    }
    assert [path.name for path in out.parent.iterdir()] == ["copy.gguf"]
    assert not (tmp_path / "cache" / "derived").exists()


def test_a_search_is_told_with_what_it_is_held_against(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    out = tmp_path / "copy.gguf"
    argv = ("--search", 2, "--budget", 30, "--prompts", "default::list", "--threads", 1, "-o", out)
    assert shown(capsys, target, *argv).splitlines() == [
        "left out one by one, with the agreement on 40 tokens: 5 (0.90), 3 (0.75)",
        "agreement with the target's own greedy text on 48 tokens held out (every other prompt):",
        "  0.62  without blocks 3, 5",
        "  0.25  keeping the first 6, without 6-7",
        "  1.00  the target in the same batches",
        "17 copies in 12 s",
        f"{out}: blocks 0-2, 4, 6-7 of {target}, 6 of 8 (75%), 0.0 MB",
        "as a draft of this target: layerskip:skip=3,5",
        "draft cost c = 0.80: one-token passes, copy ÷ target, measured in turn",
        # (6 x 64 + 128) / (8 x 64 + 128)
        "computed, not measured: with weights and cache shared with the target, c ≈ 0.80 = bytes of "
        "(6 blocks + output head) ÷ (8 blocks + output head), and neither the copy's memory nor its prefill",
    ]
    assert blocks(out) == [0, 1, 2, 4, 6, 7]
    assert double.searched == (2, 30.0)
    assert double.changed == {"draft": "layerskip:skip=3,5", "method": "two-model"}
    assert (double.asked.prompts, double.asked.threads) == ("default::list", 1)
    assert double.closed == 1


def test_first_blocks_that_do_not_load_are_told(
    target: Path, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.found = replace(FOUND, first=None)
    assert "\n     -  keeping the first 6, without 6-7\n" in shown(capsys, target, "--search", 2)


def test_a_search_as_json(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(shown(capsys, target, "--search", 2, "--json"))
    assert data["search"]["chosen"] == [{"block": 5, "agreement": 0.9}, {"block": 3, "agreement": 0.75}]
    assert (data["search"]["skipped"], data["search"]["stopped"]) == ([3, 5], False)
    assert (data["search"]["held_out"], data["search"]["first"]) == (0.625, 0.25)
    assert data["draft_cost"] == pytest.approx(0.8)
    assert data["draft_cost_if_shared"] == {"computed": 0.8, "measured": None}


def test_a_search_that_the_budget_ended_says_so(
    target: Path, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.found = STOPPED
    out = shown(capsys, target, "--search", 3, code=2)
    assert "ended by the budget: 1 of 3 blocks; the last round had tried 3 of 8\n" in out
    assert out.splitlines()[-3] == "as a draft of this target: layerskip:skip=5"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--keep", "9"], "the target has 8 blocks: keep 1 to 8 of them, not 9"),
        (["--skip", "8"], "skip some of 0 to 7, not 8"),
        (["--skip", ""], "cannot read the blocks"),
        (["--skip", "1,1"], "block 1 is named twice"),
        (["--keep", "2", "-o", "."], "is a directory; give -o the name of a file in it"),
    ],
)
def test_what_cannot_be_written_is_told(
    argv: list[str], told: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["layerskip", str(target), *argv]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specdec layerskip: ")
    assert told in err


def test_the_target_is_not_written_over(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = target.read_bytes()
    assert cli.main(["layerskip", str(target), "--keep", "2", "-o", str(target)]) == 3
    assert "is the target itself; give -o another name" in capsys.readouterr().err
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "one of the arguments --keep --skip --search is required"),
        (["--keep", "1", "--skip", "1"], "not allowed with argument"),
        (["--keep", "0"], "must be a number of blocks, 1 or more, not '0'"),
        (["--search", "x"], "must be a number of blocks"),
        (["--search", "1", "--budget", "0"], "argument --budget: must be above 0"),
    ],
)
def test_bad_usage(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["layerskip", "m.gguf", *argv])
    assert ended.value.code == 3
    assert told in capsys.readouterr().err


def test_trouble_is_told_without_a_traceback(
    target: Path, capsys: pytest.CaptureFixture[str], double: type[Double]
) -> None:
    double.trouble = BenchError("no copy loads")
    assert cli.main(["layerskip", str(target), "--search", "2"]) == 3
    assert capsys.readouterr() == ("", "specdec layerskip: no copy loads\n")
    assert double.closed == 1
