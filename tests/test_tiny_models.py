"""The models made for tests: they load, decode, and behave as their architectures do.

Run as a program (`test_tiny_models.py KIND PATH...`) this file is the probe: a failed GGML_ASSERT aborts the
process, so llama.cpp runs in one of its own.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest


Facts = dict[str, Any]

TEXT = "the dog bit a man\n"
PARTIAL_ROLLBACK = {
    "llama": True,
    "llama-b": True,
    "llama-permuted": True,
    "llama-32": True,
    "gemma3": True,
    "moe-f32": True,
    "moe-q4_k": True,
    "qwen2vl": True,
    "mamba": False,
    "lfm2": False,
}


class Session:
    """A model and one context at a time, through the low-level API."""

    def __init__(self, path: str) -> None:
        self.api: Any = importlib.import_module("llama_cpp")
        self.log: list[str] = []
        self.callback = self.api.llama_log_callback(self._note)
        self.api.llama_log_set(self.callback, None)
        self.model = self.api.llama_model_load_from_file(path.encode(), self.api.llama_model_default_params())
        if not self.model:
            return
        self.vocabulary = self.api.llama_model_get_vocab(self.model)
        self.size = self.api.llama_vocab_n_tokens(self.vocabulary)

    def _note(self, level: int, text: bytes, _: Any) -> None:
        self.log.append(text.decode(errors="replace"))

    def open(self, **settings: object) -> None:
        params = self.api.llama_context_default_params()
        defaults = {"n_ctx": 1024, "n_batch": 128, "n_ubatch": 128, "n_outputs_max": 128, "swa_full": True}
        known = {name for name, *_ in params._fields_}
        for name, value in (defaults | {"n_threads": 1, "n_threads_batch": 1} | settings).items():
            if name in known:
                setattr(params, name, value)
        self.context = self.api.llama_init_from_model(self.model, params)
        self.memory = self.api.llama_get_memory(self.context)

    def clear(self) -> None:
        self.api.llama_memory_clear(self.memory, True)

    def decode(self, tokens: Sequence[int], start: int) -> Any:
        """Logits of all rows, shape (tokens, vocabulary), or None when llama.cpp refuses the batch."""
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index], batch.pos[index] = token, start + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
        if self.api.llama_decode(self.context, batch) != 0:
            return None
        rows = [self.api.llama_get_logits_ith(self.context, index) for index in range(len(tokens))]
        return np.stack([np.ctypeslib.as_array(row, (self.size,)).copy() for row in rows])

    def keep(self, count: int) -> bool:
        return bool(self.api.llama_memory_seq_rm(self.memory, 0, count, -1))

    def tokenize(self, text: str) -> list[int]:
        tokens, data = (self.api.llama_token * 64)(), text.encode()
        return list(
            tokens[: self.api.llama_tokenize(self.vocabulary, data, len(data), tokens, 64, True, True)]
        )

    def text(self, tokens: Sequence[int]) -> str:
        found = b""
        for token in tokens:
            piece = ctypes.create_string_buffer(64)
            size = self.api.llama_token_to_piece(self.vocabulary, token, piece, 64, 0, False)
            found += piece.raw[:size]
        return found.decode()


def distance(one: Any, other: Any) -> float | None:
    return None if one is None or other is None else float(np.abs(one - other).max())


def probe(kind: str, path: str) -> Facts:
    session = Session(path)
    if not session.model:
        return {"loaded": False, "log": "".join(session.log)}
    random = [int(token) for token in np.random.default_rng(1).integers(5, session.size, 700)]
    facts: Facts = {"loaded": True, "size": session.size, "tokens": session.tokenize(TEXT)}
    facts["text"] = session.text(facts["tokens"])
    facts["im_end"] = session.tokenize("<|im_end|>")[-1]
    facts["ends"] = [n for n in range(session.size) if session.api.llama_vocab_is_eog(session.vocabulary, n)]

    session.open()
    whole = session.decode(random[:12], 0)
    facts["finite"], facts["spread"] = bool(np.isfinite(whole).all()), float(whole.std())
    facts["best"] = whole.argmax(1).tolist()
    facts["logits"] = whole[-1].tolist()
    # Batches of one size: another size may take another kernel.
    session.clear()
    session.decode(random[:8], 0)
    last = session.decode(random[8:12], 8)
    facts["rolled back"] = session.keep(8)
    facts["again"] = distance(session.decode(random[8:12], 8), last)
    session.clear()
    facts["first token"] = distance(session.decode([random[20], *random[1:12]], 0)[-1], whole[-1])
    for name, start in ("position used twice", 5), ("gap", 20):
        session.clear()
        session.decode(random[:12], 0)
        facts[name] = session.decode(random[:2], start) is not None
    extra = {"gemma3": window, "lfm2": hybrid, "moe-f32": mixture, "moe-q4_k": mixture}.get(kind)
    if extra is not None:
        facts |= extra(session, random)
    return facts


def window(session: Session, tokens: list[int]) -> Facts:
    """How wrong 8 tokens are after rolling back 300, with a full cache and with one of the window's size."""
    facts = {}
    for full in (True, False):
        session.open(swa_full=full)
        rows = [session.decode(tokens[start : start + 64], start) for start in range(0, 640, 64)]
        expected = np.concatenate(rows)[340:348]
        facts[f"swa_full={full}"] = [
            session.keep(340),
            distance(session.decode(tokens[340:348], 340), expected),
        ]
    return facts


def hybrid(session: Session, tokens: list[int]) -> Facts:
    """Rolling back with snapshots: within the last batch of 8, beyond it, and across batches of 2."""
    session.open(n_rs_seq=4)
    whole = session.decode(tokens[:12], 0)
    facts: Facts = {
        "snapshots": "n_rs_seq" in {name for name, *_ in session.api.llama_context_params._fields_}
    }
    for name, batches, kept in ("inside", (4, 8), 8), ("too far", (4, 8), 6), ("across", (8, 2, 2), 9):
        session.clear()
        start = 0
        for size in batches:
            session.decode(tokens[start : start + size], start)
            start += size
        facts[name] = [session.keep(kept), distance(session.decode(tokens[kept:12], kept), whole[kept:])]
    return facts


def mixture(session: Session, tokens: list[int]) -> Facts:
    """How many versions of row 0's logits there are, by batch size, over several lists of followers."""
    followers = [[tokens[0]] * 16] + [tokens[n : n + 16] for n in (10, 40, 70)]
    facts = {}
    for size in (4, 7, 8, 16):
        seen = set()
        for list_ in followers:
            session.clear()
            seen.add(session.decode([tokens[0], *list_][:size], 0)[0].tobytes())
        facts[str(size)] = len(seen)
    return {"versions": facts}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps([probe(*pair) for pair in zip(arguments[::2], arguments[1::2], strict=True)]))
    sys.exit()


pytest.importorskip("gguf")
tiny_models: Any = importlib.import_module(".tiny_models", __package__)


def run(*pairs: tuple[str, Path]) -> list[Facts]:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    arguments = [str(argument) for pair in pairs for argument in pair]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    facts: list[Facts] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    built: dict[str, Path] = tiny_models.build_all(tmp_path_factory.mktemp("tiny"))
    return built


@pytest.fixture(scope="module")
def seen(paths: dict[str, Path]) -> dict[str, Facts]:
    return dict(zip(paths, run(*paths.items()), strict=True))


def test_every_kind_is_covered() -> None:
    assert set(PARTIAL_ROLLBACK) | {"clip"} == set(tiny_models.KINDS)


@pytest.mark.parametrize("kind", PARTIAL_ROLLBACK)
def test_it_loads_and_says_something_that_depends_on_all_it_read(kind: str, seen: dict[str, Facts]) -> None:
    facts = seen[kind]

    assert facts["loaded"]
    assert facts["size"] == (32 if kind == "llama-32" else 320)
    assert facts["finite"]
    assert 1 < facts["spread"] < 20
    assert len(set(facts["best"])) >= 6
    assert facts["first token"] > 0.01


@pytest.mark.parametrize("kind", PARTIAL_ROLLBACK)
def test_rolling_back(kind: str, seen: dict[str, Facts]) -> None:
    assert seen[kind]["rolled back"] is PARTIAL_ROLLBACK[kind]
    assert seen[kind]["again"] == (0 if PARTIAL_ROLLBACK[kind] else None)


@pytest.mark.parametrize("kind", PARTIAL_ROLLBACK)
def test_positions_are_checked_and_gaps_pass_with_m_rope_alone(kind: str, seen: dict[str, Facts]) -> None:
    assert seen[kind]["position used twice"] is False
    assert seen[kind]["gap"] is (kind == "qwen2vl")


@pytest.mark.parametrize("kind", PARTIAL_ROLLBACK)
def test_text_goes_in_and_comes_out(kind: str, seen: dict[str, Facts]) -> None:
    expected = TEXT if kind == "llama-32" else f" {TEXT}"

    assert seen[kind]["text"] == expected
    assert len(seen[kind]["tokens"]) > 5


def test_tokens_that_end_a_text(seen: dict[str, Facts]) -> None:
    assert seen["llama-32"]["ends"] == [0]
    for kind in set(PARTIAL_ROLLBACK) - {"llama-32"}:
        assert seen[kind]["ends"] == [2, 4]
        assert seen[kind]["im_end"] == 4


def test_a_vision_projector_is_refused_by_llama_cpp(seen: dict[str, Facts]) -> None:
    assert not seen["clip"]["loaded"]
    assert "CLIP cannot be used as main model" in seen["clip"]["log"]


def test_the_other_vocabulary_has_the_same_weights_and_other_pieces(seen: dict[str, Facts]) -> None:
    assert seen["llama-b"]["logits"] == seen["llama"]["logits"]
    assert seen["llama-b"]["tokens"] != seen["llama"]["tokens"]
    a, b = tiny_models.VOCABULARY_A, tiny_models.VOCABULARY_B
    assert len(a) == len(b)
    assert a[:288] == b[:288]
    assert not set(a[288:]) & set(b[288:])


def test_the_permuted_model_is_the_same_model_under_other_ids(paths: dict[str, Path]) -> None:
    gguf: Any = importlib.import_module("gguf")
    plain, permuted = (gguf.GGUFReader(paths[kind]) for kind in ("llama", "llama-permuted"))
    pieces = [reader.get_field("tokenizer.ggml.tokens").contents() for reader in (plain, permuted)]
    assert pieces[0][:5] == pieces[1][:5]
    assert pieces[0] != pieces[1]
    assert sorted(pieces[0]) == sorted(pieces[1])

    rows = [{tensor.name: tensor.data for tensor in reader.tensors} for reader in (plain, permuted)]
    order = [pieces[0].index(piece) for piece in pieces[1]]
    for name in ("token_embd.weight", "output.weight"):
        assert np.array_equal(rows[0].pop(name)[order], rows[1].pop(name))
    assert all(np.array_equal(rows[0][name], rows[1][name]) for name in rows[0] | rows[1])


def test_a_sliding_window_forgets(seen: dict[str, Facts]) -> None:
    rolled_back, error = seen["gemma3"]["swa_full=True"]
    assert rolled_back
    assert error < 0.1

    rolled_back, error = seen["gemma3"]["swa_full=False"]
    assert rolled_back
    assert error > 0.1


def test_a_hybrid_rolls_back_inside_its_last_batch_only(seen: dict[str, Facts]) -> None:
    if not seen["lfm2"]["snapshots"]:
        pytest.skip("this llama.cpp keeps no snapshots of recurrent states")
    rolled_back, error = seen["lfm2"]["inside"]
    assert rolled_back
    assert error < 1e-3

    assert seen["lfm2"]["too far"] == [False, None]

    rolled_back, error = seen["lfm2"]["across"]
    assert rolled_back, "and yet"
    assert error > 0.1


def test_the_mixtures_hold_the_same_weights(seen: dict[str, Facts]) -> None:
    difference = np.abs(np.subtract(seen["moe-f32"]["logits"], seen["moe-q4_k"]["logits"])).max()

    assert 0 < difference < 1


def test_a_mixtures_kernels_depend_on_content_where_its_experts_are_quantised(seen: dict[str, Facts]) -> None:
    assert set(seen["moe-f32"]["versions"].values()) == {1}
    versions = seen["moe-q4_k"]["versions"]
    assert versions["4"] == versions["7"] == 1
    if max(versions.values()) == 1:
        pytest.skip("this build of llama.cpp has no kernel of its own for several rows of these types")
    assert versions["8"] > 1
    assert versions["16"] > 1


def test_noise_makes_a_relative(tmp_path: Path, seen: dict[str, Facts]) -> None:
    levels = (0.0, 0.05, 1.0)
    paths = [tiny_models.write("llama", tmp_path / f"{noise}.gguf", noise=noise) for noise in levels]
    found = run(*(("llama", path) for path in paths))
    shares = [np.mean(np.equal(facts["best"], seen["llama"]["best"])) for facts in found]

    assert shares[0] == 1
    assert shares[2] < shares[1] < 1


def test_the_same_seed_writes_the_same_file(tmp_path: Path, paths: dict[str, Path]) -> None:
    same = tiny_models.write("mamba", tmp_path / "same.gguf")
    other = tiny_models.write("mamba", tmp_path / "other.gguf", seed=1)

    assert same.read_bytes() == paths["mamba"].read_bytes() != other.read_bytes()


def test_sizes_can_be_chosen(tmp_path: Path) -> None:
    path = tiny_models.write("llama", tmp_path / "m.gguf", width=128, blocks=3, hidden=32, context=512)
    (facts,) = run(("llama", path))

    assert facts["loaded"]
    with pytest.raises(ValueError, match="rows of 64 are no multiple of a K-quant's 256"):
        tiny_models.write("moe-q4_k", tmp_path / "m.gguf", width=64)
    with pytest.raises(TypeError, match="depth"):
        tiny_models.write("llama", tmp_path / "m.gguf", depth=3)


@pytest.mark.parametrize(
    ("kind", "types"),
    [("llama", {"F32": 21}), ("moe-q4_k", {"F32": 21, "Q4_K": 4, "Q6_K": 2}), ("moe-f32", {"F32": 27})],
)
def test_the_package_describes_them(
    kind: str, types: dict[str, int], paths: dict[str, Path], tmp_path: Path
) -> None:
    from pytest_specdec.models.describe import describe

    facts = describe(paths[kind], cache=tmp_path)

    assert facts.tensor_types == types
    assert (facts.vocabulary, facts.layers, facts.tokenizer, facts.name) == (320, 2, "llama", f"tiny {kind}")


def test_the_package_refuses_the_projector(paths: dict[str, Path], tmp_path: Path) -> None:
    from pytest_specdec.models.describe import describe
    from pytest_specdec.models.errors import ModelError

    with pytest.raises(ModelError, match=r"clip\.gguf is a vision projector"):
        describe(paths["clip"], cache=tmp_path)
