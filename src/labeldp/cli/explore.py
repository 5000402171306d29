"""`labeldp explore`: a page on this machine where epsilon can be dragged."""

from __future__ import annotations

from typing import Annotated

import typer

from labeldp.cli._screen import errors, output


def explore(
    *,
    port: Annotated[int, typer.Option("--port", help="The port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Serve the explorer on loopback: drag epsilon, classes, prior and cluster size, and see what becomes of labels.

    It reads no data and asks no network. Leave with Ctrl-C.

    [bold]Examples[/bold]

      labeldp explore

      labeldp explore --port 8765 --no-browser
    """
    import webbrowser

    from labeldp.report.explorer import serve

    def ready(url: str) -> None:
        output().print(f"The explorer is at {url} (Ctrl-C to stop).", soft_wrap=True)
        if browser and not webbrowser.open(url):
            errors().print("No browser could be opened; open the address yourself.")

    try:
        serve(port=port, ready=ready)
    except KeyboardInterrupt:
        output().print("Stopped.")
