"""How heads are fitted: on texts that the target said, its hidden states, and other texts to test on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pytest_specdec.bench.accounts import mean_depth
from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.procedures import Pair
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.models import heads
from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.matrices import EMBEDDING
from pytest_specdec.models.matrices import Matrix
from pytest_specdec.models.matrices import output_matrix


if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from pytest_specdec.bench.heads import Maker
    from pytest_specdec.bench.heads import Text
    from pytest_specdec.bench.rig import Loaded
    from pytest_specdec.bench.session import Bench


# Texts that grow in the same passes: more rows cost less each, and not all batch sizes have fast kernels.
TOGETHER = 16
# How texts are drawn after each prompt's greedy one.
DRAWN = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.0, "repeat_penalty": 1.0}
# States that the vocabulary is chosen by, and the share of them whose token the output matrix must choose.
SAMPLE = 512
# Tokens without which there is nothing to fit.
FEWEST = 2 * SAMPLE
OWN_CHOICE = 0.9
# Batch sizes that a tree of drafts may have.
ROWS = tuple(range(1, 10))
# llama.cpp, cells of a context per sequence.
CELLS = 256
# Rounds of prompts without a new token, after which there is no more text to get.
IDLE = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to fit: method, prompts, tokens of text to fit on, Medusa's heads, tokens to choose from, file."""

    method: str
    texts: str
    tokens: int
    heads: int
    vocabulary: int
    path: Path


@dataclass(frozen=True, slots=True)
class Fit:
    """Heads that were fitted, and what they are worth on texts that they weren't fitted on.

    ``fitted`` tokens in ``texts`` texts; ``rows`` of the target's ``vocabulary`` tokens can be drafted, and
    ``covered`` is the share of the held-out tokens among them. ``run`` speculates on the held-out prompts,
    ``constant`` is the acceptance at position 1 of always drafting their most frequent token. ``ranks[j][i]``
    is the place in the head's order that the right token had i places ahead of position j; 0 where it can't
    be drafted. ``curve`` has T(N).
    """

    method: str
    path: Path
    size: int
    texts: int
    fitted: int
    rows: int
    vocabulary: int
    covered: float
    constant: float
    run: SpeculativeRun
    ranks: tuple[tuple[int, ...], ...]
    curve: VerifyCurve
    text_s: float
    fit_s: float


def fit(bench: Bench, wanted: Wanted) -> Fit:
    """Fit heads, write them, and try them on the prompts of these settings.

    Raises:
        BenchError: the settings sample, texts are too short, or hidden states or output matrix can't be used.
    """
    import numpy as np

    from pytest_specdec.bench.heads import EagleMaker
    from pytest_specdec.bench.heads import MedusaMaker
    from pytest_specdec.theory.heads import constant_acceptance

    if bench.settings.samples:
        raise BenchError("heads are tried on greedy text: leave temperature and repeat_penalty as they are")
    heads.require()
    source = bench.with_settings(prompts=wanted.texts, method="ngram", heads=None)
    plain = bench.with_settings(method="ngram", heads=None)
    known = {prompt.text for prompt in source.prompts.prompts}
    both = [prompt.id for prompt in plain.prompts.prompts if prompt.text in known]
    if both:
        raise BenchError(
            f"prompt {both[0]!r} is among those to fit on and among those to try heads on: give others to "
            "--texts or --prompts"
        )
    started = monotonic()
    progress = bench.session.progress
    said = _greedy(plain)
    model = bench.session.rig.target(bench.settings)
    output = output_matrix(model.path)
    texts = list(_texts(source, wanted.tokens))
    fitted = sum(len(one.tokens) for one in texts)
    text_s = monotonic() - started
    if fitted < FEWEST or len({one.prompt for one in texts if len(one.tokens) > 1}) < 2:
        raise BenchError(
            f"{wanted.texts}: the target says {fitted} tokens after these prompts, and heads need {FEWEST} "
            "at least, after two prompts or more; give more prompts (--texts), or raise --tokens or n_predict"
        )
    started = monotonic()
    progress("choosing the tokens to draft from")
    ids = _vocabulary(output, texts, len(source.prompts.prompts), wanted.vocabulary, model.name)
    rows = output.take(ids)
    number = np.full(output.rows, -1, dtype=np.int64)
    number[ids] = np.arange(len(ids))
    made: Maker
    if wanted.method == "medusa":
        made = MedusaMaker(rows, number, wanted.heads, progress)
    else:
        made = EagleMaker(Matrix(model.path, EMBEDDING), rows, number, bench.settings.k, progress)
    tensors = made.fitted(texts)
    if len(ids) < output.rows:
        tensors["d2t"] = ids - np.arange(len(ids))
    origin = model.sha256 or sha256_of(model.path, cache_dir())
    heads.write(wanted.path, tensors, {"method": wanted.method, "target": model.name, "sha256": origin})
    fit_s = monotonic() - started

    run = bench.with_settings(method=wanted.method, heads=str(wanted.path)).speculate()
    at_depth = plain.with_settings(sizes=",".join(map(str, ROWS)), depth=mean_depth(run.speculations))
    every = np.concatenate([one.tokens for one in said])
    return Fit(
        method=wanted.method,
        path=wanted.path,
        size=wanted.path.stat().st_size,
        texts=len(texts),
        fitted=fitted,
        rows=len(ids),
        vocabulary=output.rows,
        covered=float((number[every] >= 0).mean()),
        constant=constant_acceptance([one.tokens.tolist() for one in said]),
        run=run,
        ranks=tuple(row for one in said for row in made.ranks(one)),
        curve=at_depth.verify_curve(),
        text_s=text_s,
        fit_s=fit_s,
    )


def _greedy(bench: Bench) -> list[Text]:
    """The target's own text on the prompts held out."""
    said = list(_texts(bench, 0))
    if not any(len(one.tokens) for one in said):
        raise BenchError("the target ends its text at once after every prompt to try heads on: give others")
    return said


def _texts(bench: Bench, least: int) -> Iterator[Text]:
    """What the target says after every prompt, with its hidden states: greedy first, then drawn.

    Every prompt's greedy text is among them; drawn ones end with ``least`` tokens in all.
    """
    pair = Pair(bench, drafting=False)
    rig, settings = bench.session.rig, bench.settings
    together = min(TOGETHER, len(pair.prompts), settings.n_batch)
    # What a sequence gets of the context is rounded up to a multiple of 256 cells.
    room = max(len(tokens) for _, tokens in pair.prompts) + settings.n_predict
    wide = settings.merged(n_ctx=together * -(-room // CELLS) * CELLS)
    states = rig.context(pair.model, wide, "texts", embeddings=True, sequences=together)
    rig.check_states(states, pair.prompts[0][1][0], pair.model.name)
    try:
        yield from _rounds(bench, pair, states, together, least)
    finally:
        rig.release(states)


def _rounds(bench: Bench, pair: Pair, states: Loaded, together: int, least: int) -> Iterator[Text]:
    import numpy as np

    from pytest_specdec.bench.heads import Text

    settings = bench.settings
    found, idle = 0, 0
    with tempfile.TemporaryDirectory(prefix="specdec-states-") as folder:
        path = Path(folder) / "states.npy"
        for turn in counting():
            before = found
            sampling = None if turn == 0 else {**DRAWN, "seed": settings.seed + turn}
            for first in range(0, len(pair.prompts), together):
                if turn and found >= least:
                    return
                bench.session.progress(f"text of {pair.model.name}: {found} of {max(least, found)} tokens")
                said = pair.engine.request(
                    "texts",
                    context=states.handle,
                    prompts=[tokens for _, tokens in pair.prompts[first : first + together]],
                    n_predict=settings.n_predict,
                    sampling=sampling,
                    path=str(path),
                )["texts"]
                ends = np.cumsum([len(text) - 1 for text in said])
                parts = np.split(np.load(path, allow_pickle=False), ends)
                for prompt, (text, part) in enumerate(zip(said, parts, strict=False), first):
                    found += len(part)
                    yield Text(prompt, np.array(text[1:], dtype=np.int64), part)
            idle = idle + 1 if found == before else 0
            if idle >= IDLE:
                return


def _vocabulary(output: Matrix, texts: Sequence[Text], greedy: int, size: int, name: str) -> NDArray[int64]:
    """The tokens to draft from, ascending: what the target said, then by low number, where frequent ones are.

    The first ``greedy`` texts are its first choices.

    Raises:
        BenchError: the output matrix doesn't choose what the target chose.
    """
    import numpy as np

    states = np.concatenate([one.states for one in texts[:greedy]])[:SAMPLE]
    tokens = np.concatenate([one.tokens for one in texts[:greedy]])[:SAMPLE]
    if not len(tokens):
        raise BenchError(f"{name} ends its greedy text at once after every prompt to fit on: give others")
    highest, chosen = np.full(len(states), -np.inf), np.zeros(len(states), dtype=np.int64)
    for start, part in output.parts():
        logits = states @ part.T
        found = logits.max(axis=1)
        chosen = np.where(found > highest, start + logits.argmax(axis=1), chosen)
        highest = np.maximum(found, highest)
    own = float((chosen == tokens).mean())
    if own < OWN_CHOICE:
        raise BenchError(
            f"{name}: its output matrix chooses the target's own token at {own:.0%} of {len(tokens)} places "
            "only: between hidden state and logits this model does something else, which heads can't follow"
        )
    if size >= output.rows:
        return np.arange(output.rows)
    said, counts = np.unique(np.concatenate([one.tokens for one in texts]), return_counts=True)
    # Vocabularies are numbered as they were merged, the most frequent first.
    score = np.zeros(output.rows)
    score[said] = counts
    return np.sort(np.argsort(-score, kind="stable")[:size])
