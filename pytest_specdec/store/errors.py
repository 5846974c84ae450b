"""What can be wrong with a baseline; every message names the file and says what to do."""

from __future__ import annotations

import re
from pathlib import Path


RECORD_ANEW = "restore it from version control, or delete it and record anew with --specdec-update=new"


class BaselineError(Exception):
    """A baseline that cannot be read, written or used on this machine.

    ``path`` is the file or folder, ``problem`` what is wrong with it, ``remedy`` what to do.
    """

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        # A tampered file may hold what no terminal should get: control characters, lone surrogates.
        super().__init__(
            re.sub(
                r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]",
                "\N{REPLACEMENT CHARACTER}",
                f"{path}: {problem}; {remedy}",
            )
        )


class NoBaseline(BaselineError):
    """No baseline for this machine or pair; the known ones are listed."""
