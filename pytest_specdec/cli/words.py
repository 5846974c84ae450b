"""Values from files, as commands write them: nothing in them reaches a terminal as a control character."""

from __future__ import annotations

import json
from typing import Any


def figure(value: float | None) -> str:
    """Write a summary's number, "-" for none."""
    return "-" if value is None else f"{value:.6g}" if isinstance(value, int) else f"{value:.4g}"


def word(value: Any) -> str:
    """Write a JSON value on one line, texts without quotes, None as "none"."""
    if value is None:
        return "none"
    return json.dumps(value, ensure_ascii=False)[1:-1] if isinstance(value, str) else json.dumps(value)
