"""The command line: one line for a user's mistake, its exit statuses, and nothing imported that is not needed."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from sdnpu_policy import __version__
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.tools import cli


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sdnpu_policy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def exit_status(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return caught.value.code or 0


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module with a sub-command ``try`` that does what its ``act`` does."""
    module = types.ModuleType("sdnpu_try_command")
    module.__spec__ = types.SimpleNamespace(name="sdnpu_try_command")  # type: ignore[assignment]

    def attempt() -> None:
        """Try it."""
        module.act()

    module.attempt = attempt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sdnpu_try_command", module)
    monkeypatch.setitem(cli.COMMANDS, "try", ("sdnpu_try_command:attempt", "Try it."))
    return module


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--version") == 0
    assert capsys.readouterr().out == f"sdnpu {__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--help") == 0
    assert "Check a policy bundle" in capsys.readouterr().out


def test_a_misspelt_command_is_put_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("chekc") == 2
    assert "Did you mean 'check'?" in capsys.readouterr().err


def test_a_command_that_is_not_installed_is_not_offered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "fly", ("sdnpu_policy.tools.fly:fly", "Fly."))
    assert exit_status("--help") == 0
    assert "Fly." not in capsys.readouterr().out
    assert exit_status("fly") == 2


def test_a_mendable_fault_is_one_line_and_status_2(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.act = raising(SdnpuError("policy.yaml: found\n3"))  # type: ignore[attr-defined]
    assert exit_status("try") == 2
    assert capsys.readouterr().err == "sdnpu: error: policy.yaml: found 3\n"


def test_an_interrupt_is_status_130_without_a_traceback(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.act = raising(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert exit_status("try") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_falling_short_is_status_1(command: types.ModuleType) -> None:
    command.act = raising(SystemExit(1))  # type: ignore[attr-defined]
    assert exit_status("try") == 1


def test_a_fault_of_the_program_is_not_hidden(command: types.ModuleType) -> None:
    command.act = raising(ZeroDivisionError())  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_the_module_runs_as_the_command_does() -> None:
    done = run("check", "/no/such/bundle")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(
        "sdnpu: error: /no/such/bundle: there is no such directory: name a policy bundle"
    )
    assert done.stdout == ""


def test_check_imports_neither_ros_nor_a_runtime_before_it_needs_one() -> None:
    code = (
        "import sys\nfrom sdnpu_policy.tools.cli import main\n"
        "try: main(['check', '/no/such/bundle'])\nexcept SystemExit: pass\n"
        "print([name for name in ('rclpy', 'onnxruntime', 'openvino', 'rtde_control') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
