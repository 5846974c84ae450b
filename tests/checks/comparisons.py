"""Two arms as a machine would measure them, from the terms that each is made of."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import Any
from typing import Final

import numpy as np

from pytest_specdec.measurements import ArmFacts
from pytest_specdec.measurements import ArmResult
from pytest_specdec.measurements import Comparison
from pytest_specdec.measurements import DecodeRun
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Generation
from pytest_specdec.measurements import KernelMap
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline

from .curves import SAWTOOTH
from .curves import make_curve
from .kernel_maps import GEMMA


K: Final = 5
PROMPTS: Final = ("code", "list", "prose", "question")
REPETITIONS: Final = 3
TOKENS: Final = 61
# Tokens accepted round by round, of 5 drafted, over and over.
ACCEPTED: Final[Mapping[str, Sequence[int]]] = {
    "code": (5, 3, 4, 5),
    "list": (5, 5, 2),
    "prose": (1, 0, 2, 1),
    "question": (2, 3, 1, 0),
}
WORSE: Final[Mapping[str, Sequence[int]]] = {
    name: [max(a - 1, 0) for a in own] for name, own in ACCEPTED.items()
}


@dataclass(frozen=True)
class Made:
    """What an arm's times and counts are made of; `noise` is that of each timed value."""

    name: str = "old"
    build: str = "llama-cpp-python 0.3.30 (commit aaaaaaa)"
    env: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    curve: Mapping[int, float] = field(default_factory=lambda: dict(SAWTOOTH))
    kernels: KernelMap = GEMMA
    accepted: Mapping[str, Sequence[int]] = field(default_factory=lambda: dict(ACCEPTED))
    draft_ms: float = 4.0
    model: bool = True
    overhead_ms: float = 1.0
    other_token: Mapping[tuple[str, str], int] = field(default_factory=dict)
    noise: float = 0.01
    seed: int = 1
    blocks: int = 8
    repetitions: int = REPETITIONS
    fields: Mapping[str, Any] = field(default_factory=dict)

    def arm(self) -> ArmResult:
        """Measure it."""
        rng = np.random.default_rng(self.seed)

        def noisy(ms: float) -> float:
            return float(ms * np.exp(rng.normal(0.0, self.noise)))

        plain, speculative, timelines = [], [], []
        for _ in range(self.repetitions):
            plain.append(DecodeRun(tuple(self._generation(name, noisy) for name in PROMPTS)))
            runs = tuple(self._speculation(name, noisy) for name in PROMPTS)
            speculative.append(SpeculativeRun(K, "draft model" if self.model else "lookup", runs))
            timelines.append(Timeline(K, "draft model", tuple(map(_stages, runs))))
        cost = DraftCost("draft model", (self.draft_ms,) * 8, (self.curve[1],) * 8)
        return ArmResult(
            ArmFacts(self.name, self.build, "0.3", self.env, self.params, 812.0, 700 * 2**20),
            make_curve(self.curve, noise=self.noise, seed=self.seed, blocks=self.blocks, **self.fields),
            self.kernels,
            tuple(plain),
            tuple(speculative),
            tuple(timelines),
            cost if self.model else None,
        )

    def _text(self, prompt: str, which: str) -> tuple[int, ...]:
        tokens = [100 + (7 * i) % 50 for i in range(TOKENS)]
        at = self.other_token.get((prompt, which))
        if at is not None:
            tokens[at:] = [token + 1000 for token in tokens[at:]]
        return tuple(tokens)

    def _generation(self, prompt: str, noisy: Any) -> Generation:
        ms = noisy((TOKENS - 1) * (self.curve[1] + 0.5))
        return Generation(prompt, 20, self._text(prompt, "plain"), 50.0, ms, ms, "limit")

    def _speculation(self, prompt: str, noisy: Any) -> Speculation:
        drafted: list[int] = []
        accepted: list[int] = []
        left = TOKENS - 1
        pattern = self.accepted[prompt]
        while left:
            drafted.append(min(K, left - 1))
            accepted.append(min(pattern[len(accepted) % len(pattern)], drafted[-1]))
            left -= accepted[-1] + 1
        draft = tuple(noisy(self.draft_ms * n) for n in drafted)
        verify = tuple(noisy(self.curve[n + 1]) for n in drafted)
        over = sum(noisy(self.overhead_ms) for _ in drafted)
        return Speculation(
            prompt=prompt,
            prompt_tokens=20,
            tokens=self._text(prompt, "speculative"),
            drafted=tuple(drafted),
            accepted=tuple(accepted),
            cut=False,
            draft_ms=draft,
            verify_ms=verify,
            prefill_ms=50.0,
            draft_prefill_ms=10.0,
            decode_ms=sum(draft) + sum(verify) + over + 10.0,
            forward_ms=sum(draft) + sum(verify),
            stop="limit",
        )


def compare(old: Made | None = None, new: Made | None = None, **fields: Any) -> Comparison:
    """Both arms measured, with noise of their own."""
    old = old or Made()
    return Comparison(K, "draft model", old.arm(), (new or changed(old)).arm(), **fields)


def changed(old: Made | None = None, **changes: Any) -> Made:
    """The new arm: another build, and what is changed."""
    other = {"name": "new", "build": "llama-cpp-python 0.3.36 (commit bbbbbbb)", "seed": 2}
    return replace(old or Made(), **{**other, **changes})


def _stages(run: Speculation) -> Stages:
    over = run.decode_ms - 10.0 - sum(run.draft_ms) - sum(run.verify_ms)
    parts = (
        run.prefill_ms,
        10.0,
        sum(run.draft_ms),
        sum(run.verify_ms),
        0.3 * over,
        0.1 * over,
        0.0,
        0.6 * over,
    )
    return Stages(run.prompt, True, len(run.tokens), *parts, sum(parts))
