"""The worker program: JSON lines in on its standard input, JSON lines out on its standard output.

Both pipes are moved to private descriptors before anything native is loaded; afterwards whatever prints to
standard output lands on standard error, where the plugin keeps the last lines.
"""

import os


def main() -> None:
    """Serve until the request pipe closes."""
    requests = os.dup(0)
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)

    from specdec_worker import server

    server.serve(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))


if __name__ == "__main__":
    main()
