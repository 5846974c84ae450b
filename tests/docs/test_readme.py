"""The README says what the code does."""

from __future__ import annotations

from pathlib import Path

from pytest_specdec.checks.baseline.limits import ALLOWED
from pytest_specdec.marks import LIMITS
from pytest_specdec.marks import METRICS
from pytest_specdec.settings import OPTIONS


README = Path(__file__).parents[2] / "README.md"


def settings_table() -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in sorted(OPTIONS.values(), key=lambda option: not option.run):
        default = "" if option.default in (None, ()) else f"`{option.kind.show(option.default)}`"
        lines.append(f"| `{option.flag}` | {default} | {option.help} |")
    return "\n".join(lines)


def test_the_settings_table_is_the_options() -> None:
    text = README.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- settings: ")
    table = rest.partition("-->\n")[2].partition("<!-- settings end -->")[0]
    assert table.strip() == settings_table()


def test_what_baselines_allow_is_what_the_checks_allow() -> None:
    rows = [line.split(" | ") for line in README.read_text(encoding="utf-8").splitlines()]
    told = {row[0]: row[2].removesuffix(" |") for row in rows if len(row) == 3}
    assert {metric: told[f"| `{metric}`"] for metric in METRICS} == {
        metric: ALLOWED[metric].told(None) if metric in ALLOWED else "anything" for metric in METRICS
    }


def test_every_mark_is_in_the_table_of_marks() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [name for name in LIMITS if f"| `{name}(" not in text]
    assert not missing
