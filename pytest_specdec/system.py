"""What is asked of the operating system, files and commands; tests put recorded answers in its place."""

from __future__ import annotations

import subprocess
import sys


class System:
    """The files and commands of a platform; what can't be read or run is empty.

    ``command_s`` is how long a command may take, in seconds.
    """

    platform: str = sys.platform
    command_s: float = 20.0

    def text(self, path: str) -> str:
        """The content of a file, empty where it can't be read."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def output(self, *command: str) -> str:
        """What a command prints, empty where it can't be run."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.command_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace")
