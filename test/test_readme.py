"""What the README says of parameters, topics and commands is what the package has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from sdnpu_policy.ros.parameters import PARAMETERS, Spec

README = Path(__file__).parents[1] / "README.md"


def row(name: str, spec: Spec) -> str:
    """A parameter's line in the README's table."""
    default = spec.default
    shown = ", ".join(map(str, default)) if isinstance(default, list) else str(default)
    allowed = " ".join(spec.choices) or (f"{spec.low:g} … {spec.high:g}" if spec.low is not None else "")
    return f"| `{name}`{' *' if spec.live else ''} | {shown or '–'} | {allowed or '–'} | {spec.text} |"


def table() -> str:
    return "\n".join(
        ["| parameter | default | range | |", "|-|-|-|-|", *(row(n, s) for n, s in PARAMETERS.items())]
    )


def test_the_readme_has_every_parameter_with_its_default_range_and_text() -> None:
    assert table() in README.read_text(encoding="utf-8"), f"put this into the README:\n{table()}"


def test_the_readme_names_the_two_commands_and_the_safety_note() -> None:
    text = README.read_text(encoding="utf-8")
    for word in ("make demo", "make test", "Nothing in this package is a safety function"):
        assert word in text


@pytest.mark.parametrize("picture", ["doc/images/demo_frames.png"])
def test_the_pictures_of_the_readme_exist(picture: str) -> None:
    assert picture in README.read_text(encoding="utf-8")
    assert (README.parent / picture).is_file()
