"""Run as a program: save again and again in processes of its own, and kill them at random moments.

Arguments: folder, number of kills. Prints one JSON line per kill: how many entries the file holds, or why it
can't be read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from pytest_specdec.store import BaselineError
from pytest_specdec.store import Store

from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import save
from .samples import speculative


def save_for_ever(store: Store, life: int) -> None:
    number = 0
    while True:
        save(store, Made(f"life {life} entry {number}", curve()), Made("again", speculative()), update="all")
        number += 1


def main(folder: str, kills: int) -> None:
    store = Store(Path(folder))
    dice = random.Random(kills)
    save(store, Made("first", curve()))
    for life in range(kills):
        child = os.fork()
        if child == 0:
            save_for_ever(store, life)
        time.sleep(dice.uniform(0.01, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            baseline = store.require("lab", PAIR)
            told: dict[str, object] = {"entries": len(baseline.entries), "first": "first" in baseline.entries}
        except BaselineError as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
