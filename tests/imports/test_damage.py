"""However a file is damaged, it is read or refused by name: no other error comes out."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pytest_specdec.imports.curve import BadFile
from pytest_specdec.imports.read import curves
from pytest_specdec.measurements import VerifyCurve

from .benchmark import FORMATS
from .benchmark import benches


TABLE = Path(__file__).parent.parent / "data" / "cpu_llama13b_f16_sawtooth.csv"
SOUND = {
    **{form: write(benches({1: 10.0, 2: 11.0, 3: 14.0})) for form, write in FORMATS.items()},
    "table": TABLE.read_text(encoding="utf-8"),
    "own": json.dumps(VerifyCurve((1, 2), (((10.0,), (11.0,)), ((12.0,), (13.0,)))).to_json(), indent=1),
}
SCRAPS = ("", "0", "-1", "1e999", "NaN", '"', "'", ",", "|", "[", "]", "{", "}", "\n", "\0", "é", "null", " ")


@pytest.mark.parametrize("form", SOUND)
def test_damage_is_read_or_refused(form: str) -> None:
    sound = SOUND[form]
    dice = random.Random(20261129)
    refused = []
    for _ in range(150):
        text = sound
        for _ in range(dice.randint(1, 3)):
            start = dice.randrange(len(text) + 1)
            text = text[:start] + dice.choice(SCRAPS) + text[start + dice.choice((0, 1, 1, 5, 100)) :]
        try:
            found = curves(text, "file")
        except BadFile as error:
            refused.append(str(error))
        else:
            assert all(curve.steps() for curve in found)
    assert len(refused) > 10
    assert all(told.startswith("file:") for told in refused)
