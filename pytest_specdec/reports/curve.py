"""The verify cost T(N) as text: one table and one sparkline, with cliffs, drops and dips marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_specdec.reports import text


if TYPE_CHECKING:
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


def curve_lines(curve: VerifyCurve, steps: StepMap, *, last: VerifyCurve | None = None) -> list[str]:
    """Return a table of N, T(N) and its MAD in ms, T(N)/T(1), cost per token in ms, and the step before N.

    `last` adds what a pass takes when only the last row's logits are asked for. Where N = 1 was not measured,
    the smallest N takes its place.
    """
    from pytest_specdec.theory.stats import mad

    medians = curve.medians_ms()
    spread = {
        n: mad([ms for calls in blocks for ms in calls])
        for n, blocks in zip(curve.n, curve.samples_ms, strict=True)
    }
    base = curve.n[0]
    before = {step.n: step for step in steps.steps}
    words = marks(curve, steps)
    beside = last.medians_ms() if last else {}
    header = ["N", "T(N) ms", "±MAD", f"T(N)/T({base})", "ms/token", "step", "bounds"]
    rows = []
    for n in curve.n:
        row = [str(n), text.number(medians[n]), text.number(spread[n])]
        row += [text.number(medians[n] / medians[base]), text.number(medians[n] / n)]
        row += _step_cells(before.get(n))
        if last:
            row.append(text.number(beside[n]) if n in beside else "-")
        rows.append([*row, words[n]])
    if last:
        header.append("last row ms")
    return text.table([*header, ""], rows, left=(len(header),))


def place(step: Step) -> str:
    """Return where a step is: "at 9", or "in (8, 12]" when sizes between were not measured."""
    return f"at {step.n}" if step.n == step.after + 1 else step.where()


def quotient(step: Step) -> str:
    """Return what a step's ratio is the ratio of: "T(9)/T(8)"."""
    return f"T({step.n})/T({step.after})"


def evidence(step: Step) -> str:
    """Return a step's ratio with its bounds: "T(9)/T(8) = 1.76, bounds 1.75-1.78"."""
    return f"{quotient(step)} = {text.number(step.ratio)}, bounds {text.interval(step.low, step.high)}"


def curve_section(curve: VerifyCurve, steps: StepMap) -> str:
    """Return the evidence under a failure: how it was measured, the table, the sparkline."""
    blocks = len(curve.samples_ms[0])
    asked = "logits of all rows" if curve.rows == "all" else "logits of the last row"
    how = f"verify cost at depth {curve.depth}, {asked}, {text.plural(blocks, 'block')} ({curve.source})"
    medians = curve.medians_ms()
    line = text.sparkline([medians[n] for n in curve.n])
    return "\n".join([how, *curve_lines(curve, steps), f"T(N): {line}  N = {text.sizes(curve.n)}"])


def _step_cells(step: Step | None) -> list[str]:
    return ["", ""] if step is None else [text.number(step.ratio), text.interval(step.low, step.high)]
