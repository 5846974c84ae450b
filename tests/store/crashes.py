"""Run as a program: change a baseline in every way in processes of its own, ended at random moments.

Arguments: folder, number of deaths, and the signal (SIGKILL, SIGINT). Prints one JSON line per death: how
many entries the file holds, whole and damaged lines of history; or why the file can't be read.
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
from pytest_specdec.store.history import Damaged
from pytest_specdec.store.history import Green
from pytest_specdec.store.history import append
from pytest_specdec.store.history import moment
from pytest_specdec.store.history import read
from pytest_specdec.store.upkeep import move_anchors
from pytest_specdec.store.upkeep import remove

from .samples import PAIR
from .samples import Made
from .samples import curve
from .samples import leave_candidate
from .samples import save
from .samples import speculative


def work_for_ever(store: Store, life: int) -> None:
    number = 0
    while True:
        save(store, Made(f"life {life} entry {number}", curve()), Made("again", speculative()), update="all")
        append(store.history_path("lab"), [Green(moment(), PAIR, "build", "0.1.0", {"again": {"n": number}})])
        save(store, Made("to prune", curve()))
        move_anchors(store, "lab", PAIR, ["again"])
        remove(store, "lab", PAIR, ["to prune"])
        store.accept(leave_candidate(store, Made("accepted", curve())))
        number += 1


def state(store: Store) -> dict[str, object]:
    try:
        entries = store.require("lab", PAIR).entries
    except BaselineError as error:
        return {"error": str(error)}
    lines = [isinstance(line, Damaged) for line in read(store.history_path("lab"))]
    return {
        "entries": sum(key.startswith("life") for key in entries),
        "first": "first" in entries,
        "lines": lines.count(False),
        "damaged": lines.count(True),
    }


def main(folder: str, deaths: int, name: str) -> None:
    store = Store(Path(folder))
    dice = random.Random(deaths)
    save(store, Made("first", curve()))
    for life in range(deaths):
        child = os.fork()
        if child == 0:
            # A background job of a shell ignores the signal, and Python then leaves it so.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                work_for_ever(store, life)
            except KeyboardInterrupt:
                os._exit(0)
            finally:
                os._exit(1)
        time.sleep(dice.uniform(0.02, 0.2))
        os.kill(child, signal.Signals[name])
        os.waitpid(child, 0)
        print(json.dumps(state(store)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
