"""The verify cost T(N) as text: one table and one sparkline, with cliffs, drops and dips marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.reports import text


if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from pytest_specdec.measurements import VerifyCurve
    from pytest_specdec.theory.steps import Step
    from pytest_specdec.theory.steps import StepMap


def marks(curve: VerifyCurve, steps: StepMap) -> dict[int, str]:
    """Return what each measured N is: "cliff", "cliff?" where the bounds leave it open, "drop", "dip"."""
    found: dict[int, list[str]] = {n: [] for n in curve.n}
    for word, places in (("cliff", steps.cliffs), ("cliff?", steps.straddling), ("drop", steps.drops)):
        for step in places:
            found[step.n].append(word)
    for n in steps.dips:
        found[n].append("dip")
    return {n: " ".join(words) for n, words in found.items()}


def curve_lines(
    curve: VerifyCurve,
    steps: StepMap,
    *,
    last: VerifyCurve | None = None,
    noise_ms: Sequence[float] | None = None,
) -> list[str]:
    """Return a table of N, T(N) and its MAD in ms, T(N)/T(1), cost per token in ms, and the step before N.

    `last` adds what a pass takes when only the last row's logits are asked for; `noise_ms`, the standard
    deviation of each T(N), takes the place of the MAD. Where N = 1 was not measured, the smallest N takes its
    place.
    """
    from pytest_specdec.theory.stats import mad

    medians = curve.medians_ms()
    spread = {
        n: mad([ms for calls in blocks for ms in calls])
        for n, blocks in zip(curve.n, curve.samples_ms, strict=True)
    }
    if noise_ms is not None:
        spread = dict(zip(curve.n, noise_ms, strict=True))
    repeated = {n for n, blocks in zip(curve.n, curve.samples_ms, strict=True) if sum(map(len, blocks)) > 1}
    base = curve.n[0]
    before = {step.n: step for step in steps.steps}
    words = marks(curve, steps)
    beside = last.medians_ms() if last else {}
    header = [
        "N",
        "T(N) ms",
        "±MAD" if noise_ms is None else "±SD",
        f"T(N)/T({base})",
        "ms/token",
        "step",
        "bounds",
    ]
    rows = []
    for n in curve.n:
        # A single value has no spread, which is not the same as none.
        known = spread[n] > 0 if noise_ms is not None else n in repeated
        row = [str(n), text.number(medians[n]), text.number(spread[n]) if known else ""]
        row += [text.number(medians[n] / medians[base]), text.number(medians[n] / n)]
        row += _step_cells(before.get(n))
        if last:
            row.append(text.number(beside[n]) if n in beside else "-")
        rows.append([*row, words[n]])
    if last:
        header.append("last row ms")
    return text.table([*header, ""], rows, left=(len(header),))


def picture(curve: VerifyCurve, steps: StepMap) -> list[str]:
    """Return T(N) as bars, cliffs marked ^, perhaps ones ?, drops v."""
    medians, words = curve.medians_ms(), marks(curve, steps)
    signs = {"cliff": "^", "cliff?": "?", "drop": "v"}
    return text.chart(
        [str(n) for n in curve.n],
        [medians[n] for n in curve.n],
        marks=[next((signs[w] for w in words[n].split() if w in signs), "") for n in curve.n],
        unit="ms",
    )


def findings(curve: VerifyCurve, steps: StepMap, *, more: str) -> list[str]:
    """Return cliffs, drops, dips, plateaus and what they mean for the draft length, one line each.

    `more` says how to get narrower bounds.
    """
    found = [_cliffs(curve, steps)]
    if steps.straddling:
        found.append(f"perhaps a cliff: {_listed(steps.straddling)}: bounds too wide, {more}")
    if steps.drops:
        period = f", every {steps.sawtooth} tokens" if steps.sawtooth else ""
        found.append(f"drops: {_listed(steps.drops)}{period}: the larger batch is the cheaper one")
    if steps.dips:
        found.append(f"dips: N = {text.sizes(steps.dips)} cost more than the next larger size")
    if steps.plateaus:
        flat = ", ".join(f"{start}-{stop}" for start, stop in steps.plateaus)
        found.append(f"plateaus: N = {flat}: further tokens are free there")
    return [*found, *_advice(curve, steps)]


def cheapest(curve: VerifyCurve) -> int:
    """Return the measured N that costs least per token."""
    medians = curve.medians_ms()
    return min(medians, key=lambda n: medians[n] / n)


def place(step: Step) -> str:
    """Return where a step is: "at 9", or "in (8, 12]" when sizes between were not measured."""
    return f"at {step.n}" if step.n == step.after + 1 else step.where()


def quotient(step: Step) -> str:
    """Return what a step's ratio is the ratio of: "T(9)/T(8)"."""
    return f"T({step.n})/T({step.after})"


def evidence(step: Step) -> str:
    """Return a step's ratio with its bounds, if it has any: "T(9)/T(8) = 1.76, bounds 1.75-1.78"."""
    if step.low == step.high:
        return f"{quotient(step)} = {text.number(step.ratio)}, no bounds"
    return f"{quotient(step)} = {text.number(step.ratio)}, bounds {text.interval(step.low, step.high)}"


def curve_section(curve: VerifyCurve, steps: StepMap) -> str:
    """Return the evidence under a failure: how it was measured, the table, the sparkline."""
    blocks = len(curve.samples_ms[0])
    asked = "logits of all rows" if curve.rows == "all" else "logits of the last row"
    how = f"verify cost at depth {curve.depth}, {asked}, {text.plural(blocks, 'block')} ({curve.source})"
    medians = curve.medians_ms()
    line = text.sparkline([medians[n] for n in curve.n])
    return "\n".join([how, *curve_lines(curve, steps), f"T(N): {line}  N = {text.sizes(curve.n)}"])


def _cliffs(curve: VerifyCurve, steps: StepMap) -> str:
    if steps.cliffs:
        return f"cliffs: {_listed(steps.cliffs)}"
    told = f"no cliff {'beyond doubt ' if steps.straddling else ''}up to N = {curve.n[-1]}"
    if steps.largest is None:
        return told
    return f"{told}; the nearest to one is the step {_listed([steps.largest])}"


def _advice(curve: VerifyCurve, steps: StepMap) -> list[str]:
    """Say which draft lengths the cost allows: before the first cliff, and cheaper ones behind."""
    each = {n: ms / n for n, ms in curve.medians_ms().items()}
    best = cheapest(curve)
    safe, doubtful = steps.safe_draft_length, steps.straddling
    if safe is None:
        longest = "verify cost rules out none of the measured lengths"
    else:
        longest = f"k = {safe}, a batch of {safe + 1}, the last before the first cliff"
    if doubtful and (safe is None or doubtful[0].after <= safe):
        longest = f"{longest}; k = {doubtful[0].after - 1} if there is one {place(doubtful[0])} already"
    told = [f"longest safe draft: {longest}"]
    if safe is not None:
        better = _cheap_behind(each, safe + 1)
        if better is not None:
            told.append(
                f"behind the cliff, k = {better - 1} (N = {better}) is better still: "
                f"{text.number(each[better])} ms per token, {text.number(each[safe + 1])} at N = {safe + 1}"
            )
    told.append(
        f"cheapest per token: N = {best} (k = {best - 1}), {text.number(each[best])} ms if every draft is "
        "accepted; how long a draft pays depends on how many are"
    )
    return told


def _cheap_behind(each: Mapping[int, float], safe: int) -> int | None:
    """Return the first N behind `safe` that costs less per token than all smaller and the next larger one."""
    sizes = list(each)
    for before, n, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        if n > safe and each[n] < min(each[m] for m in sizes if m <= before) and each[n] < each[after]:
            return n
    return None


def _listed(steps: Sequence[Step]) -> str:
    return ", ".join(f"{place(step)} ({evidence(step)})" for step in steps)


def _step_cells(step: Step | None) -> list[str]:
    if step is None:
        return ["", ""]
    bounds = "" if step.low == step.high else text.interval(step.low, step.high)
    return [text.number(step.ratio), bounds]
