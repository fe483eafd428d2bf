"""The command ``sdnpu``: finds the sub-command, and turns a fault the user can mend into one line.

A sub-command is a function in a file of its own under ``sdnpu_policy/tools`` and is imported only when it is asked
for, so that ``sdnpu check`` needs neither ROS nor a robot.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sdnpu_policy import __version__
from sdnpu_policy.errors import SdnpuError

COMMANDS: dict[str, tuple[str, str]] = {
    "check": (
        "sdnpu_policy.tools.check:check",
        "Check a policy bundle: its files, its networks, its golden vectors.",
    ),
    "demo": ("sdnpu_policy.tools.demo:demo", "Run the reference policy on a simulated robot cell."),
}
"""Name -> (module:function, the line in ``sdnpu --help``). A command whose module is absent is not offered."""

COULD_NOT_RUN = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``sdnpu`` with the given arguments (those of the process by default) and exit.

    Exit status: 0 all went well, 1 it ran and fell short, 2 it could not run, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app = build_app(arguments)
        app(args=arguments, prog_name="sdnpu")
    except SdnpuError as error:
        _print_error(str(error))
        sys.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application with the real function of the command in ``arguments``, and names only of the others."""
    app = typer.Typer(
        name="sdnpu",
        help="Run a diffusion policy on an edge NPU, a denoising step a tick, and stay safe when a step is late.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    asked = next((argument for argument in arguments if not argument.startswith("-")), "")
    for name, (target, summary) in COMMANDS.items():
        module, _, function = target.partition(":")
        if importlib.util.find_spec(module) is None:
            continue
        run = getattr(importlib.import_module(module), function) if name == asked else _not_asked_for
        app.command(name, short_help=summary, help=None if name == asked else summary)(run)
    return app


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=lambda on: _version(on)
        ),
    ] = False,
) -> None:
    pass


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sdnpu {__version__}")
        raise typer.Exit


def _not_asked_for() -> None:
    """Stands for a command that this call does not run."""


def _print_error(message: str) -> None:
    line = f"sdnpu: error: {' '.join(message.split())}"
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    print(f"\x1b[31m{line}\x1b[0m" if coloured else line, file=sys.stderr)


if __name__ == "__main__":
    main()
