"""`specdec advise`: the ledger of speculation, the draft length to use, and why; or not to speculate."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

from pytest_specdec.cli import OK
from pytest_specdec.cli import USAGE
from pytest_specdec.cli import files
from pytest_specdec.cli import terms
from pytest_specdec.cli.arguments import number
from pytest_specdec.cli.output import show
from pytest_specdec.cli.steps import pick
from pytest_specdec.cli.steps import remarks as curve_remarks
from pytest_specdec.cli.terms import Known
from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.read import KNOWN
from pytest_specdec.reports import text
from pytest_specdec.reports.advice import advice_lines
from pytest_specdec.reports.advice import ledger_lines
from pytest_specdec.reports.advice import percent
from pytest_specdec.store import BaselineError
from pytest_specdec.store.published import machine_baselines


if TYPE_CHECKING:
    from pytest_specdec.theory.ledger import Advice
    from pytest_specdec.theory.ledger import FreeDraft
    from pytest_specdec.theory.ledger import Ledger

# T(N) of a size that was not measured is read off a plateau flat to this share.
FLAT: Final = 0.10
# Draft lengths that fit overhead and draft cost; the others test them.
FIT: Final = 3
YIELDS: Final = ("yields", "acceptance", "positions", "alpha")


@dataclass(frozen=True, slots=True)
class Account:
    """What is known, the terms used, the ledger over the measured draft lengths, and the advice."""

    known: Known
    draft_ms: float
    overhead_ms: float
    fitted: tuple[int, ...]
    ledger: Ledger | None
    advice: Advice
    left_out: tuple[int, ...]

    @property
    def free(self) -> tuple[int, FreeDraft]:
        """The best draft length if drafting cost nothing, and what it would give."""
        from pytest_specdec.theory.ledger import free_draft

        found = [
            (row.k, free_draft(row.verify.ms, row.tokens_per_round, self.advice.plain_ms, self.overhead_ms))
            for row in self.advice.table
        ]
        return max(found, key=lambda one: one[1].speedup)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the terms come from."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", metavar="FILE", nargs="?", help=f"{KNOWN}; - for standard input")
    told = "a published machine's name, or the folder of a machine's baselines"
    source.add_argument("--replay", metavar="NAME|PATH", help=told)
    parser.add_argument("--pair", metavar="PAIR", help="which pair of the machine (default: the only one)")
    parser.add_argument("--curve", metavar="NUMBER|TEXT", help="which curve of FILE (default: the only one)")
    by_k = partial(_by_k, low=0.0)
    given = parser.add_argument_group("what the draft yields, where FILE does not tell (one of these)")
    one = given.add_mutually_exclusive_group()
    one.add_argument(
        "--yields", type=by_k, metavar="K=TOKENS,…", help="tokens per round, bonus included, by k"
    )
    one.add_argument("--acceptance", type=by_k, metavar="K=SHARE,…", help="accepted ÷ drafted tokens, by k")
    told = "share of rounds whose first i drafts were all accepted, for i = 1, 2, …"
    one.add_argument("--positions", type=_shares, metavar="SHARE,…", help=told)
    one.add_argument(
        "--alpha", type=_share, metavar="SHARE", help="acceptance per token, the same everywhere"
    )
    costs = parser.add_argument_group("what it costs")
    cost = costs.add_mutually_exclusive_group()
    at_least_0 = _limited(low=0.0)
    cost.add_argument("--draft-ms", type=at_least_0, metavar="MS", help="time to draft a token")
    cost.add_argument("--draft-cost", type=at_least_0, metavar="C", help="the same as a share of T(1)")
    costs.add_argument("--overhead-ms", type=at_least_0, metavar="MS", help="time per round that is neither")
    told = "decode rates with speculation, tokens/s, by k"
    costs.add_argument("--measured", type=partial(_by_k, above=0.0), metavar="K=RATE,…", help=told)
    told = "decode rate without speculation, tokens/s (default: T(1))"
    costs.add_argument("--plain", type=_limited(above=0.0), metavar="RATE", help=told)
    told = (
        f"fit overhead and draft cost on these k (default: the {FIT} shortest measured, if no cost is given)"
    )
    costs.add_argument("--fit", type=_ks, metavar="K,K,…", help=told)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(arguments: argparse.Namespace) -> int:
    """Advise; what is missing or wrong goes to stderr."""
    try:
        account = account_of(known_of(arguments), arguments)
    except (BadFile, BaselineError, ValueError) as error:
        print(f"specdec advise: {error}", file=sys.stderr)
        return USAGE
    if arguments.json:
        print(json.dumps(to_json(account), indent=1, allow_nan=False))
    else:
        show(lines(account))
    return OK


def known_of(arguments: argparse.Namespace) -> Known:
    """Collect what the file or the replay knows, the command line's own values over it.

    Raises:
        BadFile, BaselineError: the file or the machine can't be used.
        ValueError: a choice of pair or curve is wanted.
    """
    given = any(getattr(arguments, name) is not None for name in YIELDS)
    if arguments.replay is not None:
        known = _of_machine(arguments.replay, arguments.pair, with_runs=not given)
    else:
        known = _of_file(arguments.file, arguments.curve, with_runs=not given)
    base = known.curve.verify.medians_ms().get(1)
    changes: dict[str, Any] = {}
    if given:
        changes |= {"yields": _yields(arguments), "rates": {}}
    if arguments.measured is not None:
        changes["rates"] = arguments.measured
    if arguments.draft_ms is not None:
        changes |= {"draft_ms": arguments.draft_ms, "draft_cost": None}
    if arguments.draft_cost is not None:
        if base is None:
            raise ValueError("--draft-cost is a share of T(1), which the curve has not: give --draft-ms")
        changes |= {"draft_ms": arguments.draft_cost * base, "draft_cost": arguments.draft_cost}
    if arguments.plain is not None:
        changes |= {"plain_ms": 1000.0 / arguments.plain, "plain_source": "--plain"}
    return replace(known, **changes)


def account_of(known: Known, arguments: argparse.Namespace) -> Account:
    """Settle the terms, by fitting where enough was measured, and advise.

    Raises:
        ValueError: a term is missing or doesn't fit.
    """
    from pytest_specdec.theory.ledger import Ledger
    from pytest_specdec.theory.ledger import best_draft_length

    curve = known.curve.verify.medians_ms()
    by_k = {} if arguments.alpha is not None or arguments.positions is not None else known.yields
    costed = {k for k in {*by_k, *known.rates} if _has_cost(curve, k + 1)}
    rates = {k: rate for k, rate in known.rates.items() if k in costed}
    yields = {k: tokens for k, tokens in by_k.items() if k in costed}
    if not by_k and arguments.alpha is None and arguments.positions is None:
        raise ValueError(
            "nothing tells what a round yields: give --yields, --acceptance, --positions or --alpha"
        )
    if by_k and not yields:
        raise ValueError(f"T(N) is not known for any k of {_listed(by_k)}: measure N = k + 1 too")
    overhead_ms, draft_ms, ledger = arguments.overhead_ms or 0.0, known.draft_ms, None
    plain: dict[str, Any] = {}
    if known.plain_ms is not None:
        plain = {"plain_ms": known.plain_ms, "plain_source": known.plain_source}
    fit_on = _fit_on(yields, rates, arguments)
    both = {k: rates[k] for k in rates if k in yields}
    if fit_on:
        ledger = Ledger.fit(curve, yields, both, fit_on, flat=FLAT, **plain)
        overhead_ms, draft_ms = ledger.overhead_ms, ledger.draft_ms
    if draft_ms is None:
        raise ValueError("nothing tells what drafting a token costs: give --draft-ms or --draft-cost")
    if both and ledger is None:
        ledger = Ledger.from_terms(
            curve, yields, both, draft_ms=draft_ms, overhead_ms=overhead_ms, flat=FLAT, **plain
        )
    source = {"alpha": arguments.alpha, "positions": arguments.positions, "yields": yields or None}
    advice = best_draft_length(
        curve,
        draft_ms,
        overhead_ms=overhead_ms,
        candidates=sorted(yields) or None,
        measured=rates or None,
        flat=FLAT,
        step_map=known.curve.steps(),
        **source,
        **plain,
    )
    left_out = tuple(sorted({*by_k, *known.rates} - costed))
    return Account(known, draft_ms, overhead_ms, tuple(fit_on), ledger, advice, left_out)


def lines(account: Account) -> list[str]:
    """Return what the terminal shows: sources, the ledger's table, its terms, the advice."""
    known, advice = account.known, account.advice
    verify = known.curve.verify
    found = [
        known.title,
        f"T(N): N = {text.sizes(verify.n)}; {known.curve.origin}",
        "",
        *ledger_lines(advice, account.fitted),
        *(f"k = {row.k}: {row.note}" for row in advice.table if row.note and row.note not in advice.reason),
        "",
        _terms(account),
    ]
    if account.ledger is not None and account.ledger.tested:
        residuals = [row.residual for row in account.ledger.tested]
        tested = _listed([row.k for row in account.ledger.tested])
        found.append(
            f"held against what was measured: k = {tested} predicted within {percent(min(residuals))} to "
            f"{percent(max(residuals))}"
        )
    found.append(_plain(account))
    k, free = account.free
    found.append(
        f"ceiling: a draft that cost nothing would be worth {free.speedup:.2f}x, at k = {k} (overhead kept)"
    )
    found += ["", *advice_lines(advice)]
    notes = [*known.remarks, *curve_remarks(known.curve)]
    if account.left_out:
        notes.append(f"left out, because T(k + 1) is not known: k = {_listed(account.left_out)}")
    return [*found, "", *notes] if notes else found


def to_json(account: Account) -> dict[str, Any]:
    """Return the account in builtin types."""
    known = account.known
    k, free = account.free
    return {
        "title": known.title,
        "curve": {
            "name": known.curve.name,
            "origin": known.curve.origin,
            "medians_ms": {str(n): ms for n, ms in known.curve.verify.medians_ms().items()},
        },
        "terms": {
            "draft_ms": account.draft_ms,
            "overhead_ms": account.overhead_ms,
            "fitted_on": list(account.fitted),
            "draft_ms_alone": known.draft_ms,
            "draft_cost": known.draft_cost,
        },
        "advice": account.advice.to_json(),
        "ledger": None if account.ledger is None else account.ledger.to_json(),
        "free_draft": {"k": k, "ms_per_token": free.ms_per_token, "speedup": free.speedup},
        "left_out": list(account.left_out),
        "remarks": [*known.remarks, *curve_remarks(known.curve)],
    }


def _of_machine(name: str, pair: str | None, *, with_runs: bool) -> Known:
    from pytest_specdec.engine.replay import Replay

    machine, baselines = machine_baselines(name)
    by_pair = {baseline.pair: baseline for baseline in baselines}
    if pair is None and len(by_pair) > 1:
        raise ValueError(f"{machine} has several pairs: choose one with --pair: {', '.join(by_pair)}")
    wanted = next(iter(by_pair)) if pair is None else pair
    if wanted not in by_pair:
        raise ValueError(f"{machine} has no pair {wanted}; it has {', '.join(by_pair)}")
    entries = by_pair[wanted].entries.values()
    told = Replay(machine, {wanted: entries}).told
    title = f"{wanted} on {machine}: {told}"
    return terms.of_entries(entries, title, str(by_pair[wanted].path), with_runs=with_runs)


def _of_file(path: str, wanted: str | None, *, with_runs: bool) -> Known:
    text, name = files.text_of(path), files.name_of(path)
    baseline = files.baseline_of(path, text)
    if baseline is not None:
        title = f"{baseline.pair} on {baseline.machine_name}"
        return terms.of_entries(baseline.entries.values(), title, path, with_runs=with_runs)
    found = pick(files.curves(path, text), wanted, name)
    if len(found) > 1:
        listed = "; ".join(f"{number}: {curve.name}" for number, curve in enumerate(found, 1))
        raise ValueError(f"{name} has several curves: choose one with --curve: {listed}")
    own = found[0].name
    return Known(f"{name}{f': {own}' if own else ''}", found[0])


def _yields(arguments: argparse.Namespace) -> Mapping[int, float]:
    if arguments.acceptance is None:
        return arguments.yields or {}
    for k, share in arguments.acceptance.items():
        if share > 1:
            raise ValueError(f"--acceptance: {share:g} at k = {k} is no share: give 0 to 1, or a percentage")
    return {k: 1.0 + k * share for k, share in arguments.acceptance.items()}


def _fit_on(
    yields: Mapping[int, float], rates: Mapping[int, float], arguments: argparse.Namespace
) -> list[int]:
    """Return the k to fit on; none where costs are given, or too few k were measured to leave one over."""
    if arguments.fit is not None:
        if not yields:
            raise ValueError("--fit needs tokens per round by k: --yields, --acceptance or a baseline")
        return list(arguments.fit)
    both = sorted(set(yields) & set(rates))
    costs = (arguments.draft_ms, arguments.draft_cost, arguments.overhead_ms)
    if len(both) < FIT or any(cost is not None for cost in costs):
        return []
    return both[: min(FIT, len(both) - 1)]


def _has_cost(curve: Mapping[int, float], n: int) -> bool:
    from pytest_specdec.theory.ledger import verify_cost

    try:
        verify_cost(curve, n, flat=FLAT)
    except ValueError:
        return False
    return True


def _terms(account: Account) -> str:
    draft = f"draft {text.number(account.draft_ms)} ms per token"
    overhead = f"overhead {text.number(account.overhead_ms)} ms per round"
    if not account.fitted:
        return f"terms: {draft}, {overhead}, not fitted"
    alone = ""
    if account.known.draft_ms is not None:
        cost = account.known.draft_cost
        share = f", {text.number(cost, 3)} of a target pass" if cost is not None else ""
        alone = f"; drafting alone was measured at {text.number(account.known.draft_ms)} ms{share}"
    return f"terms: {draft}, {overhead}, fitted on k = {_listed(account.fitted)} (*){alone}"


def _plain(account: Account) -> str:
    advice = account.advice
    told = (
        f"without speculation: {text.number(1000.0 / advice.plain_ms)} tokens/s, "
        f"{text.number(advice.plain_ms)} ms per token ({advice.plain_source})"
    )
    base = account.known.curve.verify.medians_ms().get(1)
    if base is None or abs(base / advice.plain_ms - 1) < 0.01:
        return told
    return f"{told}; T(1) of the curve is {text.number(base)} ms, {percent(base / advice.plain_ms - 1)}"


def _listed(values: Any) -> str:
    return ", ".join(str(value) for value in sorted(values))


def _limited(**bounds: float) -> Callable[[str], float]:
    def read(given: str) -> float:
        return number(given, **bounds)

    return read


def _share(given: str) -> float:
    """Read a share from 0 to 1, or a percentage."""
    stripped = given.strip()
    value = number(stripped.removesuffix("%"), low=0.0) / (100.0 if stripped.endswith("%") else 1.0)
    if value > 1:
        raise argparse.ArgumentTypeError(f"must be a share from 0 to 1, or a percentage, not {given}")
    return value


def _shares(given: str) -> list[float]:
    return [_share(part) for part in given.split(",")]


def _ks(given: str) -> list[int]:
    return [_k(part, given) for part in given.split(",")]


def _by_k(given: str, **bounds: float) -> dict[int, float]:
    """Read "1=1.71,2=2.23"; values may be percentages."""
    found: dict[int, float] = {}
    for part in given.split(","):
        name, separator, value = part.partition("=")
        k = _k(name, given)
        if not separator or k in found:
            raise argparse.ArgumentTypeError(f"must be K=VALUE,K=VALUE with each K once, not {given!r}")
        stripped = value.strip()
        share = 100.0 if stripped.endswith("%") else 1.0
        found[k] = number(stripped.removesuffix("%"), **bounds) / share
    return found


def _k(text: str, whole: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"must name draft lengths such as 3, not {text.strip()!r} in {whole!r}"
        )
    return int(text)
