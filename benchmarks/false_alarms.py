"""How often gates on times are wrong: simulated sessions, judged by the plugin's own checks.

``python benchmarks/false_alarms.py [--sessions 4000]`` prints two Markdown tables. What is simulated is
the clock alone: a machine that jitters, stalls now and then, and warms up or cools down by 12 % within its
first 16 runs. Schedules, looks, bounds and verdicts are those that a gate uses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

import numpy as np

from pytest_specdec.bench.procedures import LOOKS
from pytest_specdec.bench.procedures import RECORDED_LOOKS
from pytest_specdec.bench.procedures import arms
from pytest_specdec.checks import speed
from pytest_specdec.checks.baseline import settled
from pytest_specdec.checks.baseline import within_baseline
from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.measurements import DraftCost
from pytest_specdec.measurements import Measurement
from pytest_specdec.measurements import Speculation
from pytest_specdec.measurements import SpeculativeRun
from pytest_specdec.measurements import SpeedPair
from pytest_specdec.measurements import SpeedRun
from pytest_specdec.measurements import Stages
from pytest_specdec.measurements import Timeline
from pytest_specdec.measurements import VerifyCurve
from pytest_specdec.verdict import Outcome


PROMPTS = 8
TOKENS = 64
PLAIN_MS = 1200.0
# What speculation truly gives when nothing has changed.
SPEEDUP = 1.3
BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Noise:
    """What a machine does to times: the spread of a run, the share of runs that stall, and its drift.

    A stalled run takes 5 to 25 % longer. Within `ramp` runs the machine gets slower by `drift`, or, begun
    hot, faster by as much; then it stays so.
    """

    jitter: float = 0.02
    stalls: float = 0.08
    drift: float = 0.12
    ramp: int = 16


class Machine:
    """A clock with noise, for one session."""

    def __init__(self, random: np.random.Generator, noise: Noise) -> None:
        self._random = random
        self._noise = noise
        self._cooling = random.random() < 0.5
        self._runs = 0

    def time(self, ms: float) -> float:
        """Return what a run of `ms` takes now."""
        return self.parts(ms)[0]

    def parts(self, *ms: float) -> list[float]:
        """Return what each part of one run takes now; a stall meets one of them."""
        noise, random = self._noise, self._random
        done = min(1.0, self._runs / noise.ramp)
        self._runs += 1
        level = 1 + noise.drift * (1 - done if self._cooling else done)
        taken = [float(part * level * np.exp(random.normal(0.0, noise.jitter))) for part in ms]
        if random.random() < noise.stalls:
            taken[random.integers(len(ms))] *= 1 + random.uniform(0.05, 0.25)
        return taken


@dataclass(frozen=True, slots=True)
class Answer:
    """What a gate said, and on how many pairs."""

    failed: bool
    pairs: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate under test: `judge` takes a maker of sessions and the true change of what is gated.

    `at_limit` is the change that is only just allowed, `beyond` one that has to be failed.
    """

    name: str
    at_limit: float
    beyond: float
    judge: Callable[[Callable[[], Machine], float], Answer]


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of simulated sessions that a gate failed, and the pairs that it took on average."""

    unchanged: float
    at_limit: float
    beyond: float
    pairs: float


def pairs(machine: Machine, speedup: float, looks: int = LOOKS) -> SpeedRun:
    """Time the pairs of so many looks, in the bench's own order."""
    found = []
    for index in range(looks * PROMPTS):
        ms = {}
        for arm in arms(index, PROMPTS):
            ms[arm] = machine.time(PLAIN_MS if arm == "plain" else PLAIN_MS / speedup)
        found.append(SpeedPair(f"p{index % PROMPTS}", TOKENS, ms["plain"], TOKENS, ms["speculative"]))
    return SpeedRun(3, "two-model", tuple(found))


def looked_at(whole: SpeedRun, enough: Callable[[SpeedRun], bool]) -> SpeedRun:
    """Look at the pairs as the bench does: until it is enough, or there are no more."""
    for count, _ in speed.LOOKS:
        run = SpeedRun(whole.k, whole.method, whole.pairs[:count])
        if enough(run):
            break
    return run


def min_speedup(session: Callable[[], Machine], change: float) -> Answer:
    """`min_speedup(x)`, x being what speculation gives when nothing has changed."""
    run = looked_at(pairs(session(), SPEEDUP * change), lambda run: speed.decided(run, x=SPEEDUP))
    return Answer(speed.min_speedup(run, x=SPEEDUP).outcome is Outcome.FAIL, len(run.pairs))


def speedup_kept(session: Callable[[], Machine], change: float) -> Answer:
    """`within_baseline("speedup")`, the baseline recorded in a session of its own."""
    stored = pairs(session(), SPEEDUP, RECORDED_LOOKS)
    run = looked_at(pairs(session(), SPEEDUP * change), lambda run: settled(run, stored))
    return Answer(_failed(run, stored, "speedup"), len(run.pairs))


def mean_of_five(limit: float, *, ratio: bool) -> Callable[[Callable[[], Machine], float], Answer]:
    """Return the usual gate: the mean of five runs may not be worse than the stored one by `limit`.

    Its speculative decode rate, or, with `ratio`, the speedup of five plain and then five speculative runs.
    """

    def measure(machine: Machine, speedup: float) -> float:
        plain = mean(machine.time(PLAIN_MS) for _ in range(5)) if ratio else 1.0
        return plain / mean(machine.time(PLAIN_MS / speedup) for _ in range(5))

    def judge(session: Callable[[], Machine], change: float) -> Answer:
        stored, live = measure(session(), SPEEDUP), measure(session(), SPEEDUP * change)
        return Answer(live < stored * (1 - limit), 5)

    return judge


def curve(machine: Machine, cost: float) -> VerifyCurve:
    """T(N) rising by 3 ms a token from 13; from N = 2 on it costs `cost` times as much."""
    sizes = (*range(1, 13), 16)
    ms = {n: (10.0 + 3.0 * n) * (cost if n > 1 else 1.0) for n in sizes}
    blocks = [{n: tuple(machine.time(ms[n]) for _ in range(3)) for n in sizes} for _ in range(BLOCKS)]
    return VerifyCurve(sizes, tuple(tuple(block[n] for block in blocks) for n in sizes))


def draft_cost(machine: Machine, cost: float) -> DraftCost:
    """A draft of 0.3 T(1), in blocks of alternating order."""
    times: dict[str, list[float]] = {"draft": [], "target": []}
    for index in range(BLOCKS):
        for which in ("draft", "target") if index % 2 == 0 else ("target", "draft"):
            times[which].append(machine.time(20.0 if which == "target" else 6.0 * cost))
    return DraftCost("two-model", tuple(times["draft"]), tuple(times["target"]))


def timeline(machine: Machine, less: float) -> Timeline:
    """Requests of which 70 % are decode forwards, or `less` of that: the rest is prefill and host."""
    share = 0.7 * less
    requests = []
    for index in range(PROMPTS):
        # Prompts of other lengths; forwards keep their time, the host takes what the share leaves.
        prefill_ms = 100.0 + 20.0 * index
        forward, prefill, host = machine.parts(700.0, prefill_ms, 700.0 / share - 700.0 - prefill_ms)
        wall = forward + prefill + host
        requests.append(
            Stages(f"p{index}", False, TOKENS, prefill, 0.0, 0.0, forward, 0.0, 0.0, 0.0, host, wall)
        )
    return Timeline(3, "two-model", tuple(requests))


def rounds(machine: Machine, cost: float) -> SpeculativeRun:
    """Twenty rounds a prompt, 1.5 ms of each, times `cost`, neither drafting nor verifying."""
    runs = []
    for index in range(PROMPTS):
        drafting, verifying, rest = machine.parts(240.0, 500.0, 30.0 * cost)
        draft, verify = (drafting / 20,) * 20, (verifying / 20,) * 20
        decode = drafting + verifying + rest
        tokens = tuple(range(41))
        run = Speculation(
            f"p{index}", 9, tokens, (3,) * 20, (1,) * 20, False, draft, verify, 1.0, 0.0, decode, 1.0, "limit"
        )
        runs.append(run)
    return SpeculativeRun(3, "two-model", tuple(runs))


def kept(
    metric: str, measure: Callable[[Machine, float], Measurement]
) -> Callable[[Callable[[], Machine], float], Answer]:
    """Return `within_baseline(metric)`, the baseline recorded in a session of its own."""

    def judge(session: Callable[[], Machine], change: float) -> Answer:
        stored, live = measure(session(), 1.0), measure(session(), change)
        return Answer(_failed(live, stored, metric), 0)

    return judge


# One way to be slower: a tenth less speed where it is the question, twice the allowed change elsewhere.
SPEED_GATES = (
    Gate("`min_speedup(x)`", 1.0, 0.9, min_speedup),
    Gate('`within_baseline("speedup")`', 1 - ALLOWED["speedup"].relative, 0.9, speedup_kept),
    Gate("mean of 5, decode rate, limit 10 %", 0.9, 0.9, mean_of_five(0.10, ratio=False)),
    Gate("mean of 5, decode rate, limit 5 %", 0.95, 0.9, mean_of_five(0.05, ratio=False)),
    Gate("mean of 5 per arm, speedup, limit 10 %", 0.9, 0.9, mean_of_five(0.10, ratio=True)),
    Gate("mean of 5 per arm, speedup, limit 5 %", 0.95, 0.9, mean_of_five(0.05, ratio=True)),
)
OTHER_GATES = tuple(
    Gate(
        f'`within_baseline("{metric}")`',
        1 + sign * ALLOWED[metric].relative,
        1 + 2 * sign * ALLOWED[metric].relative,
        kept(metric, measure),
    )
    for metric, sign, measure in (
        ("curve", 1, curve),
        ("draft_cost", 1, draft_cost),
        ("forward_share", -1, timeline),
        ("overhead", 1, rounds),
    )
)


def simulate(gate: Gate, sessions: int, *, noise: Noise | None = None, seed: int = 0) -> Rates:
    """Hold a gate `sessions` times each: unchanged, at its limit, and beyond."""
    random = np.random.default_rng(seed)

    def session() -> Machine:
        return Machine(random, noise or Noise())

    answers = {
        change: [gate.judge(session, change) for _ in range(sessions)]
        for change in {1.0, gate.at_limit, gate.beyond}
    }
    failed = {change: mean(answer.failed for answer in said) for change, said in answers.items()}
    taken = mean(answer.pairs for said in answers.values() for answer in said)
    return Rates(failed[1.0], failed[gate.at_limit], failed[gate.beyond], taken)


def tables(rates: Mapping[Gate, Rates]) -> str:
    """Return both tables in Markdown."""
    lines = [
        "| gate | fails when nothing changed | at the limit | when 10 % slower | pairs on average |",
        "|---|---|---|---|---|",
    ]
    for gate in SPEED_GATES:
        seen = rates[gate]
        at_limit = "as left" if gate.at_limit == 1.0 else f"{seen.at_limit:.1%}"
        lines.append(
            f"| {gate.name} | {seen.unchanged:.1%} | {at_limit} | {seen.beyond:.1%} | {seen.pairs:.0f} |"
        )
    lines += [
        "",
        "| gate | fails when nothing changed | at the limit | at twice the limit |",
        "|---|---|---|---|",
    ]
    for gate in OTHER_GATES:
        seen = rates[gate]
        lines.append(f"| {gate.name} | {seen.unchanged:.1%} | {seen.at_limit:.1%} | {seen.beyond:.1%} |")
    return "\n".join(lines)


def _failed(live: Measurement, stored: Measurement, metric: str) -> bool:
    return within_baseline(live, stored, metric=metric).outcome is Outcome.FAIL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    gates = (*SPEED_GATES, *OTHER_GATES)
    print(tables({gate: simulate(gate, args.sessions, seed=args.seed) for gate in gates}))


if __name__ == "__main__":
    main()
