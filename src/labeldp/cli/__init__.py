"""The command line: talks, and leaves the work to the library. One file per command.

>>> from labeldp.cli import main
>>> main.__name__
'main'

Exit codes: 0 done; 1 unexpected (run again with --debug to see where); 2 a usage error or bad input; 3 the budget
refuses; 4 a damaged file, or one whose promise cannot be trusted.

Design notes. Start-up is most of what a short command takes, so nothing heavy is imported before a command runs: each
command imports what it needs. Answers go to stdout; progress, warnings and errors go to stderr, so that `--json` leaves
exactly one JSON object on stdout.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process."""
    from labeldp.cli.app import app

    app(prog_name="labeldp")
