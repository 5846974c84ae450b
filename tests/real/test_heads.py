"""Heads on the target's hidden state: known answers, exactness, draws, fitting, and what can't be used."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.errors import NotMeasured
from pytest_specdec.bench.session import Bench
from pytest_specdec.checks.exactness import lossless
from pytest_specdec.checks.sampling import same_distribution
from pytest_specdec.cli import main
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.models import heads
from pytest_specdec.models.errors import ModelError
from pytest_specdec.verdict import Outcome
from tests import tiny_models


Make = Callable[..., Bench]
WIDTH = 64


@pytest.fixture
def tiny(bench: Make, tmp_path: Path, prompts: Path) -> Make:
    def make(kind: str = "llama", **settings: object) -> Bench:
        target = tiny_models.write(kind, tmp_path / f"{kind}.gguf")
        base = {"target": str(target), "prompts": str(prompts), "threads": 1, "n_ctx": 512, "n_predict": 60}
        return bench(**{**base, **settings})

    return make


def saved(folder: Path, tensors: dict[str, NDArray[Any]]) -> str:
    path = folder / "heads.safetensors"
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return str(path)


def still(count: int = 3) -> dict[str, NDArray[Any]]:
    """Heads that leave the state as it is: with the target's matrix they say its last token again."""
    return {
        f"{i}.0.linear.{name}": np.zeros(shape, np.float32)
        for i in range(count)
        for name, shape in (("weight", (WIDTH, WIDTH)), ("bias", WIDTH))
    }


def copying() -> dict[str, NDArray[Any]]:
    """An EAGLE head whose next state is this one: it says its last token over and over."""
    return {"fc.weight": np.concatenate([np.zeros((WIDTH, WIDTH)), np.eye(WIDTH)], axis=1).astype(np.float32)}


def expected(
    text: tuple[int, ...], k: int, draft: Callable[[int, int], list[int]], limit: int = 60
) -> list[tuple[int, int]]:
    """Rounds of (drafted, accepted): nothing before the first pass, then what `draft(last, room)` says."""
    rounds: list[tuple[int, int]] = []
    at = 1
    while at < len(text):
        room = min(k, limit - at - 1)
        proposed = draft(text[at - 1], room)[:room] if rounds else []
        right = 0
        while right < min(len(proposed), len(text) - at) and proposed[right] == text[at + right]:
            right += 1
        rounds.append((len(proposed), right))
        at += right + 1
    return rounds


def rounds_of(run: SpeculativeRun) -> list[list[tuple[int, int]]]:
    return [list(zip(one.drafted, one.accepted, strict=True)) for one in run.speculations]


def test_heads_read_the_state_that_chose_the_last_token(tiny: Make, tmp_path: Path) -> None:
    """Still heads with the target's matrix shifted by some rows say the token so many after the last one."""
    made = tiny("llama-32", method="medusa", k=2, n_predict=200)
    tensors = {t.name: np.asarray(t.data) for t in gguf.GGUFReader(str(made.settings.target)).tensors}
    output = tensors["output.weight"]
    texts = [one.tokens for one in made.decode().generations]
    accepted = 0
    for shift in (0, 1, 5, 9):
        own = {f"{i}.1.weight": np.roll(output, shift, axis=0) for i in range(2)}
        run = made.with_settings(heads=saved(tmp_path, {**still(2), **own})).speculate()
        assert [one.tokens for one in run.speculations] == texts

        def draft(last: int, room: int, shift: int = shift) -> list[int]:
            token = (last + shift) % len(output)
            # Token 0 ends a text, and a draft.
            return [token] * (room if token else min(room, 1))

        assert rounds_of(run) == [expected(text, 2, draft, 200) for text in texts]
        accepted += run.accepted
        assert run.accepted < run.drafted
    assert accepted > 50


def test_no_more_is_drafted_than_there_are_heads(tiny: Make, tmp_path: Path) -> None:
    run = tiny(method="medusa", heads=saved(tmp_path, still(2)), k=5).speculate()
    assert max(max(one.drafted) for one in run.speculations) == 2


def test_a_cut_vocabulary_drafts_its_tokens_only(tiny: Make, tmp_path: Path) -> None:
    made = tiny()
    texts = [one.tokens for one in made.decode().generations]
    kept = np.array(sorted({token for text in texts for token in text})[::2])
    tensors = {**still(), "d2t": kept - np.arange(len(kept))}
    run = made.with_settings(method="medusa", heads=saved(tmp_path, tensors), k=3).speculate()
    for one in run.speculations:
        at = 1
        for accepted in one.accepted:
            assert set(one.tokens[at : at + accepted]) <= set(kept.tolist())
            at += accepted + 1
    assert run.drafted > run.accepted > 0


def test_an_own_output_matrix_is_used(tiny: Make, tmp_path: Path) -> None:
    """Zeros but for the row of a token that the text has: a bias pushes every state its way."""
    made = tiny("llama-32", k=1)
    texts = [one.tokens for one in made.decode().generations]
    # Tokens where a round may begin: the first two come without a draft.
    often = Counter(token for text in texts for token in text[3:] if token)
    said = often.most_common(1)[0][0]
    tensors = still(1)
    own = np.zeros((32, WIDTH), np.float32)
    own[said, 0] = 1.0
    tensors["0.0.linear.bias"] = np.full(WIDTH, 1e4, np.float32)
    path = saved(tmp_path, {**tensors, "0.1.weight": own})
    run = made.with_settings(method="medusa", heads=path).speculate()
    assert [one.tokens for one in run.speculations] == texts
    assert rounds_of(run) == [expected(text, 1, lambda _, room: [said] * room) for text in texts]
    assert run.drafted > run.accepted > 0


def test_eagle_leans_on_the_token(tiny: Make, tmp_path: Path) -> None:
    """A state made of the token's embedding alone, whose choice is the token's successor, over and over."""
    made = tiny("llama-32", method="eagle", k=3)
    tensors = {t.name: np.asarray(t.data) for t in gguf.GGUFReader(str(made.settings.target)).tensors}
    embedding = tensors["token_embd.weight"].astype(np.float16).astype(np.float64)
    output = tensors["output.weight"].astype(np.float64)
    count, width = embedding.shape
    successor = np.roll(np.eye(count), 1, axis=0)
    weight = np.linalg.pinv(output) @ successor @ np.linalg.pinv(embedding.T)
    fc = np.concatenate([weight, np.zeros((width, width))], axis=1).astype(np.float32)
    run = made.with_settings(heads=saved(tmp_path, {"fc.weight": fc})).speculate()
    ends = {0}
    known = []
    for one in run.speculations:

        def draft(last: int, room: int) -> list[int]:
            said: list[int] = []
            while len(said) < room and not (said and said[-1] in ends):
                said.append((said[-1] if said else last) + 1)
                said[-1] %= count
            return said

        known.append(expected(one.tokens, 3, draft))
    assert rounds_of(run) == known
    assert run.drafted > 0


def test_eagle_goes_on_from_its_own_state(tiny: Make, tmp_path: Path) -> None:
    """A head that turns the state by a fixed step: each choice is so many tokens behind the one before."""
    made = tiny("llama-32", method="eagle", k=3, n_predict=200)
    tensors = {t.name: np.asarray(t.data) for t in gguf.GGUFReader(str(made.settings.target)).tensors}
    output = tensors["output.weight"].astype(np.float64)
    count = len(output)
    accepted = 0
    for shift in (0, 1, 5, 9):
        # Turns what the output matrix sees of a state: logits of rows move by `shift`.
        turn = np.linalg.pinv(output) @ np.roll(np.eye(count), shift, axis=0) @ output
        fc = np.concatenate([np.zeros((WIDTH, WIDTH)), turn], axis=1).astype(np.float32)
        run = made.with_settings(heads=saved(tmp_path, {"fc.weight": fc})).speculate()

        def draft(last: int, room: int, shift: int = shift) -> list[int]:
            said: list[int] = []
            while len(said) < room and not (said and said[-1] == 0):
                said.append(((said[-1] if said else last) + shift) % count)
            return said

        assert rounds_of(run) == [expected(one.tokens, 3, draft, 200) for one in run.speculations]
        accepted += run.accepted
    assert accepted > 50


@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen2vl", "mamba"])
@pytest.mark.parametrize("method", ["medusa", "eagle"])
def test_speculation_with_heads_is_lossless(tiny: Make, tmp_path: Path, method: str, kind: str) -> None:
    tensors = still() if method == "medusa" else copying()
    verdict = lossless(tiny(kind, method=method, heads=saved(tmp_path, tensors), n_predict=24).exactness(3))
    assert verdict.outcome is Outcome.PASS, verdict.because


@pytest.mark.parametrize("fault", ["", "no_ratio=1"])
@pytest.mark.parametrize("method", ["medusa", "eagle"])
def test_draws_with_heads_are_the_targets_own(tiny: Make, tmp_path: Path, method: str, fault: str) -> None:
    tensors = still() if method == "medusa" else copying()
    made = tiny(
        "llama-32",
        method=method,
        heads=saved(tmp_path, tensors),
        env=(("SPECDEC_FAULTS", fault),) if fault else (),
        **{"temperature": 1.0, "top_k": 2, "n_predict": 6, "k": 2},
    )
    verdict = same_distribution(made.distribution(600))
    assert verdict.outcome is (Outcome.FAIL if fault else Outcome.PASS), verdict.because


def test_variants_take_heads(
    tiny: Make, tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tiny("llama-32").settings.target)
    arguments = [
        "variants",
        "--target",
        target,
        "--heads",
        saved(tmp_path, still()),
        "--prompts",
        str(prompts),
    ]
    assert main([*arguments, "--threads", "1", "--n-predict", "12", "--n-ctx", "512", "--json"]) == 0
    found = {one["method"]: one for one in json.loads(capsys.readouterr().out)["variants"]}
    assert set(found) == {"ngram", "medusa"}
    assert found["medusa"]["name"] == "medusa heads.safetensors"
    assert found["medusa"]["lossless"] == "pass"
    assert found["medusa"]["account"]["draft_ms"] > 0
    other = tmp_path / "other.safetensors"
    heads.write(other, still(), {"target": "a-base-model", "sha256": "0" * 64})
    assert main([*arguments, "--heads", str(other), "--threads", "1", "--n-ctx", "16"]) == 3
    assert "medusa other.safetensors, fitted for a-base-model: not measured: " in capsys.readouterr().out
    (tmp_path / "heads.pt").write_bytes(b"PK\x03\x04")
    assert main(["variants", "--target", target, "--heads", str(tmp_path / "heads.pt")]) == 3
    assert "is a pickle: reading it could run any code" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["medusa", "eagle"])
def test_heads_are_fitted_written_and_tried(
    tiny: Make, tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    target = str(tiny("llama-32").settings.target)
    path, others = tmp_path / "fitted.safetensors", tmp_path / "others.jsonl"
    letters = (ascii_lowercase[n:] + ascii_lowercase[:n] for n in range(0, 24, 2))
    others.write_text("".join(json.dumps({"text": text, "template": "raw"}) + "\n" for text in letters))
    arguments = [
        *(
            "fit",
            method,
            "--target",
            target,
            "--texts",
            str(others),
            "--prompts",
            f"{prompts}::line-1,line-4",
        ),
        *("--threads", "1", "--n-ctx", "512", "--n-predict", "100", "--tokens", "12000", "--heads", "2"),
        *("--vocabulary", "24", "-o", str(path), "--k", "2"),
    ]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(path)
    assert told["fitted"] >= 12000
    assert told["rows"] == 24 < told["vocabulary"] == 32
    assert 0 < told["constant"] <= 1
    assert told["acceptance"]["positions"][0] > told["constant"]
    assert len(told["ranks"][0]) == 2
    assert told["shapes"]["tree"]["speedup"] > 0 < told["shapes"]["chain"]["speedup"]
    found = heads.read(path)
    assert (found.method, found.rows) == (method, 24)
    assert found.origin["target"] == target
    assert main(arguments) == 0
    words = capsys.readouterr().out
    assert "drafts from the 24 likeliest of 32 tokens" in words
    assert "always guessing their most frequent token" in words
    assert "best tree: N = " in words
    assert f"--specdec-method={method} --specdec-heads={path}" in words


def test_too_little_text_to_fit_on_is_told(
    tiny: Make, tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tiny("llama-32").settings.target)
    path = tmp_path / "fitted.safetensors"
    arguments = ["fit", "medusa", "--target", target, "--texts", str(prompts), "--tokens", "20"]
    assert main([*arguments, "--n-predict", "5", "--threads", "1", "-o", str(path)]) == 3
    assert "heads need 1024 at least, after two prompts or more; give more" in capsys.readouterr().err
    one = [*arguments[:4], "--texts", f"{prompts}::line-1", "--prompts", f"{prompts}::line-2"]
    one += ["--threads", "1", "-o", str(path), "--n-predict", "400", "--n-ctx", "1024", "--tokens", "1024"]
    assert main(one) == 3
    assert "after two prompts or more; give more" in capsys.readouterr().err
    assert main([*arguments, "--prompts", f"{prompts}::line-2", "--threads", "1"]) == 3
    assert "prompt 'line-2' is among those to fit on and among those to try" in capsys.readouterr().err
    assert not path.exists()
    assert main(["fit", "eagle", "--target", target, "-o", target]) == 3
    assert "is the target itself; give -o another name" in capsys.readouterr().err
    assert main(["fit", "eagle", "--target", target, "-o", str(prompts)]) == 3
    assert "exists and has no heads in it; give -o another name" in capsys.readouterr().err
    assert main(["fit", "eagle", "--target", target, "-o", os.devnull]) == 3
    assert "is not a regular file; give -o another name" in capsys.readouterr().err
    assert main(["fit", "eagle", "--target", target, "-o", str(prompts / "x")]) == 3
    assert "cannot write " in capsys.readouterr().err
    assert main(["fit", "eagle", "--target", target, "-o", str(tmp_path)]) == 3
    assert "is a directory" in capsys.readouterr().err
    assert main(["fit", "eagle"]) == 3
    assert "--target is missing" in capsys.readouterr().err


def test_heads_that_cannot_be_used_are_told(tiny: Make, tmp_path: Path) -> None:
    path = saved(tmp_path, still())
    with pytest.raises(NotMeasured, match="method medusa needs heads: give --specdec-heads FILE"):
        tiny(method="medusa").speculate()
    with pytest.raises(NotMeasured, match=r"no file of heads .*absent"):
        tiny(method="medusa", heads=str(tmp_path / "absent.safetensors")).speculate()
    with pytest.raises(BenchError, match="has medusa heads: say method=medusa"):
        tiny(method="eagle", heads=path).speculate()
    with pytest.raises(BenchError, match="say method=medusa or method=eagle"):
        tiny(heads=path).speculate()
    with pytest.raises(BenchError, match="gives no hidden state beside the logits of this model"):
        tiny("lfm2", method="medusa", heads=path).speculate()
    other = tiny_models.write("llama", tmp_path / "wide.gguf", width=128)
    with pytest.raises(ModelError, match=r"hidden states of width 64, and .* has 128"):
        tiny(target=str(other), method="medusa", heads=path).speculate()


def test_heads_in_a_measurement_have_a_key_of_their_own(tiny: Make, tmp_path: Path) -> None:
    made = tiny(method="medusa", heads=saved(tmp_path, still()))
    before = made.key("speculative")
    saved(tmp_path, still(2))
    assert made.key("speculative") != before
    assert "heads=" in before
    assert "heads=" not in made.key("decode")
