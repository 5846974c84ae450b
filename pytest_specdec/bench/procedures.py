"""How each kind of measurement is made: which requests, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING
from typing import Any

from pytest_specdec.bench.errors import BenchError
from pytest_specdec.bench.rig import Loaded
from pytest_specdec.bench.sources import Sources
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.heads import METHODS
from pytest_specdec.settings import Settings


if TYPE_CHECKING:
    from pytest_specdec.bench.session import Bench


PAIRS_PER_LOOK = 8
LOOKS = 3
# A baseline's noise is in all later comparisons: twice the pairs halve its part in it.
RECORDED_LOOKS = 2 * LOOKS
WARM_TOKENS = 8
STEADY_TOKENS = 8


class Pair:
    """The target and its draft source, loaded, with the prompts' tokens."""

    def __init__(self, bench: Bench, *, drafting: bool = True) -> None:
        rig, settings = bench.session.rig, bench.settings
        self.engine = rig.engine
        self.model: ModelRef = rig.target(settings)
        # Found before anything is loaded: a missing file is said at once.
        draft = rig.draft(settings) if drafting and bench.method == "two-model" else None
        heads = rig.heads(settings, bench.method, self.model) if drafting and bench.method in METHODS else ()
        self.target: Loaded = rig.context(self.model, settings, "target", embeddings=bool(heads))
        self.draft: Loaded | None = rig.context(draft, settings, "draft") if draft else None
        self.prompts = [
            (prompt.id, rig.tokens(self.target, self.model, prompt)) for prompt in bench.prompts.prompts
        ]
        longest, tokens = max(self.prompts, key=lambda row: len(row[1]))
        if len(tokens) + settings.n_predict > settings.n_ctx:
            raise BenchError(
                f"prompt {longest!r} has {len(tokens)} tokens and n_predict is {settings.n_predict}: "
                f"together more than n_ctx = {settings.n_ctx}; raise n_ctx or lower n_predict"
            )
        text = text_tokens(self.prompts, 64)
        rig.prove_rollback(self.target, text, self.model.name)
        if heads:
            rig.check_states(self.target, text[0], self.model.name)
        self.sources = Sources(bench, self.target, self.draft, heads)
        if self.draft is not None:
            assert draft is not None
            rig.check_vocabularies(self.target, self.draft)
            rig.prove_rollback(self.draft, text, draft.name)

    def plain(self, tokens: list[int], n_predict: int) -> dict[str, Any]:
        """Plain decoding of one prompt."""
        return self.engine.request(
            "decode",
            context=self.target.handle,
            tokens=tokens,
            n_predict=n_predict,
            sampling=self.sources.sampling,
        )

    def speculative(self, tokens: list[int], n_predict: int, k: int) -> dict[str, Any]:
        """Speculative decoding of one prompt."""
        return self.asked("speculate", tokens, n_predict, k, sampling=self.sources.sampling)

    def asked(self, op: str, tokens: list[int], n_predict: int, k: int, **more: Any) -> dict[str, Any]:
        """Another request that speculates on one prompt."""
        return self.engine.request(
            op,
            context=self.target.handle,
            tokens=tokens,
            n_predict=n_predict,
            k=k,
            source=self.sources.of(tokens, k),
            **more,
        )


def decode(bench: Bench) -> DecodeRun:
    """Every prompt once, after a short warm-up."""
    pair = Pair(bench, drafting=False)
    n_predict = bench.settings.n_predict
    pair.plain(pair.prompts[0][1], min(WARM_TOKENS, n_predict))
    generations = []
    for index, (name, tokens) in enumerate(pair.prompts):
        bench.session.progress(f"plain decoding {pair.model.name}: prompt {index + 1}/{len(pair.prompts)}")
        generations.append(Generation.from_json({"prompt": name, **pair.plain(tokens, n_predict)}))
    return DecodeRun(tuple(generations))


def speculate(bench: Bench) -> SpeculativeRun:
    """Every prompt once, after a short warm-up."""
    pair = Pair(bench)
    settings = bench.settings
    pair.speculative(pair.prompts[0][1], min(WARM_TOKENS, settings.n_predict), settings.k)
    runs = []
    for index, (name, tokens) in enumerate(pair.prompts):
        bench.session.progress(
            f"speculating {pair.model.name} k={settings.k}: prompt {index + 1}/{len(pair.prompts)}"
        )
        answer = pair.speculative(tokens, settings.n_predict, settings.k)
        runs.append(Speculation.from_json({"prompt": name, **answer}))
    return SpeculativeRun(settings.k, bench.method, tuple(runs))


def more_looks(bench: Bench, run: SpeedRun, looks: int = LOOKS) -> bool:
    """Whether a schedule of so many looks has another one after this run."""
    return len(run.pairs) < looks * _pairs_per_look(bench)


def arms(index: int, prompts: int) -> tuple[str, str]:
    """Return the order within a pair, the prompts taking turns.

    It alternates from pair to pair and flips from round to round, so that a prompt's consecutive pairs are
    ABBA.
    """
    return ("plain", "speculative") if first_begins(index, prompts) else ("speculative", "plain")


def first_begins(index: int, prompts: int) -> bool:
    """Whether the first of two arms begins this pair, the prompts taking turns: ABBA per prompt."""
    return (index % prompts + index // prompts) % 2 == 0


def check_rates(prompt: str, *answers: Mapping[str, Any]) -> None:
    """Every answer must have a decode rate.

    Raises:
        BenchError: a text ends after its first token.
    """
    if min(len(answer["tokens"]) for answer in answers) < 2:
        raise BenchError(
            f"prompt {prompt!r} ends after its first token: no decode rate; choose other prompts "
            "(--specdec-prompts)"
        )


def speed_pair(prompt: str, plain: Mapping[str, Any], speculative: Mapping[str, Any]) -> SpeedPair:
    """The times of one prompt's two answers.

    Raises:
        BenchError: one of them has no decode rate.
    """
    check_rates(prompt, plain, speculative)
    return SpeedPair(
        prompt,
        len(plain["tokens"]),
        plain["decode_ms"],
        len(speculative["tokens"]),
        speculative["decode_ms"],
    )


def speed(bench: Bench, before: SpeedRun | None) -> SpeedRun:
    """Add one look's pairs to what was measured before."""
    pair = Pair(bench)
    settings = bench.settings
    count = len(pair.prompts)
    done = list(before.pairs) if before else []
    goal = len(done) + _pairs_per_look(bench)
    if not done:
        pair.plain(pair.prompts[0][1], min(WARM_TOKENS, settings.n_predict))
        pair.speculative(pair.prompts[0][1], min(WARM_TOKENS, settings.n_predict), settings.k)
    while len(done) < goal:
        index = len(done)
        name, tokens = pair.prompts[index % count]
        bench.session.progress(f"speed {pair.model.name} k={settings.k}: pair {index + 1}/{goal}")
        runs = {}
        for arm in arms(index, count):
            if arm == "plain":
                runs[arm] = pair.plain(tokens, settings.n_predict)
            else:
                runs[arm] = pair.speculative(tokens, settings.n_predict, settings.k)
        done.append(speed_pair(name, runs["plain"], runs["speculative"]))
    return SpeedRun(
        settings.k, bench.method, tuple(done), environment=None if before is None else before.environment
    )


def draft_cost(bench: Bench) -> DraftCost:
    """Steady decoding of draft and target in turn, ABBA; a source without a model by its proposals."""
    if bench.method != "two-model":
        return _proposal_cost(bench)
    pair = Pair(bench)
    settings = bench.settings
    assert pair.draft is not None
    depth = max(settings.depth, 1)
    if depth + STEADY_TOKENS + 1 > settings.n_ctx:
        raise BenchError(
            f"depth = {depth} leaves no room for {STEADY_TOKENS} tokens in n_ctx = {settings.n_ctx}"
        )
    tokens = text_tokens(pair.prompts, depth + 1)
    times: dict[int, list[float]] = {pair.target.handle: [], pair.draft.handle: []}

    def block(handle: int) -> float:
        answer = pair.engine.request(
            "steady", context=handle, tokens=tokens, depth=depth, count=STEADY_TOKENS
        )
        return float(median(answer["ms"]))

    order = [pair.target.handle, pair.draft.handle]
    for handle in order:
        block(handle)
    for index in range(settings.blocks):
        bench.session.progress(f"draft cost {pair.model.name}: block {index + 1}/{settings.blocks}")
        for handle in order if index % 2 == 0 else reversed(order):
            times[handle].append(block(handle))
    return DraftCost("two-model", tuple(times[pair.draft.handle]), tuple(times[pair.target.handle]))


def _proposal_cost(bench: Bench) -> DraftCost:
    plain = {g.prompt: g.forward_ms / max(1, len(g.tokens) - 1) for g in bench.decode().generations}
    drafts = [
        (ms, plain[s.prompt])
        for s in bench.speculate().speculations
        if (ms := s.drafted_token_ms) is not None and plain[s.prompt] > 0
    ]
    return DraftCost(bench.method, tuple(d for d, _ in drafts), tuple(t for _, t in drafts))


def _pairs_per_look(bench: Bench) -> int:
    return max(PAIRS_PER_LOOK, len(bench.prompts.prompts))


def check_sizes(settings: Settings, sizes: Sequence[int], name: str, *, lower: str) -> None:
    """The largest of the batch sizes of setting ``name`` must fit; ``lower`` says what else could be smaller.

    Raises:
        BenchError: it exceeds n_batch, or the context at the settings' depth.
    """
    largest = max(sizes)
    if largest > settings.n_batch:
        raise BenchError(
            f"{name} asks for N = {largest}, and n_batch is {settings.n_batch}: llama.cpp would abort; "
            f"raise n_batch or lower {name}"
        )
    if settings.depth + largest > settings.n_ctx:
        raise BenchError(
            f"depth = {settings.depth} and N = {largest} together exceed n_ctx = {settings.n_ctx}: "
            f"raise n_ctx, or lower {lower}"
        )


def text_tokens(prompts: Sequence[tuple[str, list[int]]], count: int) -> list[int]:
    """At least ``count`` tokens of real text: the prompts one after the other, over again where needed."""
    tokens = [token for _, row in prompts for token in row]
    return (tokens * (count // len(tokens) + 1))[: max(count, 64)]
