"""Completion in a shell: the script is bash that bash accepts, and it answers with commands, options and their values."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
#: The line that README.md gives for ~/.bashrc; then what bash does when Tab is pressed, three times.
SCRIPT = r"""
eval "$(_LABELDP_COMPLETE=source_bash labeldp)"
complete -p labeldp
for line in "labeldp ins" "labeldp privatize --eps" "labeldp train --trust "; do
    COMP_WORDS=($line)
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _labeldp_completion labeldp
    echo "${COMPREPLY[@]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_values():
    done = subprocess.run(["bash", "-c", SCRIPT], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    bound, *completed = done.stdout.splitlines()
    assert "_labeldp_completion" in bound
    assert completed == ["inspect", "--epsilon", "no-one curator"]


@pytest.mark.parametrize(("shell", "mark"), [("zsh", "#compdef labeldp"), ("fish", "complete --command labeldp")])
def test_other_shells_get_a_script_too(shell, mark):
    command = [sys.executable, "-m", "labeldp"]
    asked = {**ENVIRONMENT, "_LABELDP_COMPLETE": f"source_{shell}"}
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=True)
    assert mark in done.stdout
