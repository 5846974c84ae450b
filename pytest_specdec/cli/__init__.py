"""The `specdec` command: measure curves and kernel maps, read others', advise, look after baselines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn


OK = 0
REGRESSION = 1
UNDECIDED = 2
USAGE = 3

# Name -> module and what it does. A module has add_arguments(parser) and run(arguments) -> exit code.
COMMANDS = {
    "curve": ("pytest_specdec.cli.curve", "verify cost T(N) of a model on this machine, cliffs and drops"),
    "kernels": ("pytest_specdec.cli.kernels", "batch sizes at which the kernel path changes, told by bits"),
    "steps": ("pytest_specdec.cli.steps", "cliffs and drops in a table, a baseline or llama-bench output"),
    "doctor": ("pytest_specdec.cli.doctor", "structural probes of a pair: what breaks speculation, and why"),
    "layerskip": (
        "pytest_specdec.cli.layerskip",
        "a draft of some of the target's blocks, given or searched for",
    ),
    "fit": ("pytest_specdec.cli.fit", "medusa or eagle heads, from what the target says itself"),
    "advise": ("pytest_specdec.cli.advise", "the ledger of speculation, and the draft length to use"),
    "variants": ("pytest_specdec.cli.variants", "every way to get drafts, side by side on one target"),
    "upgrade": ("pytest_specdec.cli.upgrade", "an old build of llama.cpp and a new one, side by side"),
    "baseline": ("pytest_specdec.cli.baseline", "list, show, compare, accept and prune baselines"),
    "history": ("pytest_specdec.cli.history", "figures of green runs over time, and what changed"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser that ends with this command's exit code for bad usage."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Exit codes: 0 fine, 1 a regression, 2 it could not be decided, 3 bad usage or nothing to measure.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    about = "Is speculative decoding still lossless, sound and fast enough on this machine?"
    parser = Parser(prog="specdec", description=about)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, told) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=told, description=told[0].upper() + told[1:] + ".")
        # Only the command that runs is imported: the others may need what is not installed.
        if name in given[:1]:
            import_module(module).add_arguments(subparser)
    arguments = parser.parse_args(given)
    try:
        code: int = import_module(COMMANDS[arguments.command][0]).run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("specdec: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python must not try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return code
