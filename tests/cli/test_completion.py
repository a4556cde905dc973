"""What shells offer, asked of the shells themselves."""

import os
import shutil
import subprocess
import sys

import pytest

from perfmodel.cli import run
from perfmodel.cli.app import VERBS
from perfmodel.cli.completion import offered
from perfmodel.specs import catalog

#: Lines up to the cursor, and words that must be offered.
LINES = {
    "perfmodel pre": ["predict"],
    "perfmodel predict llama-3.3-7": ["llama-3.3-70b"],
    "perfmodel predict llama-3.3-70b --on dgx-h2": ["dgx-h200"],
    "perfmodel predict llama-3.3-70b --concurr": ["--concurrency"],
    "perfmodel size llama-3.3-70b --traffic ra": ["rag"],
    "perfmodel predict llama-3.3-70b --on lpu-v1 --set system.memory.sram.b": ["system.memory.sram.bandwidth="],
    "perfmodel specs sea": ["search"],
}
#: How a shell says what it offers for a line.
ASK = {
    "bash": r"""
        eval "$(perfmodel completion bash)"
        COMP_LINE=$1 COMP_POINT=${#1}
        read -ra COMP_WORDS <<< "$1"
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        compopt() { :; }
        _perfmodel
        printf '%s\n' "${COMPREPLY[@]}"
    """,
    "zsh": r"""
        autoload -Uz compinit && compinit -u -d "$HOME/zcompdump"
        eval "$(perfmodel completion zsh)"
        compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@" }
        words=(${(z)1}) CURRENT=${#words}
        _perfmodel
    """,
    "fish": r"""
        perfmodel completion fish | source
        complete -C "$argv[1]" | string replace -r '\t.*' ''
    """,
}


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_offers_what_can_stand_at_the_cursor(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    program = tmp_path / "perfmodel"
    start = "import sys; from perfmodel.cli import main; sys.exit(main())"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{start}' \"$@\"\n")
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for line, wanted in LINES.items():
        arguments = [line] if shell == "fish" else [shell, line]
        done = subprocess.run(
            [shell, "-c", ASK[shell], *arguments], capture_output=True, text=True, env=env, check=False
        )
        assert done.stdout.split() == wanted, (line, done)


def test_bash_completes_behind_a_colon_and_an_equals_sign(tmp_path):
    # Both break words in bash, which then puts what is offered after them.
    script = r"""
        source /dev/stdin <<< "$SCRIPT"
        compopt() { :; }
        COMP_LINE='perfmodel predict m --on dgx-h100:tp=8 --set x:system.m' COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(perfmodel predict m --on dgx-h100 : tp = 8 --set x : system.m) COMP_CWORD=12
        perfmodel() { printf 'x:system.memory.hbm.bandwidth=\n'; }
        _perfmodel
        printf '%s\n' "${COMPREPLY[@]}"
    """
    from perfmodel.cli.completion import SCRIPTS

    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=os.environ | {"SCRIPT": SCRIPTS["bash"]}, check=True
    )
    assert done.stdout == "system.memory.hbm.bandwidth=\n"


def test_every_verb_and_every_spec_is_offered():
    assert set(VERBS) <= set(offered([""]))
    for kind, words in (("model", ["predict", ""]), ("system", ["predict", "m", "--on", ""])):
        assert set(offered(words)) == {name for name, _, _ in catalog.entries(kind)}
    for verb in VERBS:
        for word in offered([verb, "--"]):
            assert word.startswith("--")


def test_nothing_is_offered_where_nothing_fits():
    assert offered(["no-such-verb", ""]) == []
    assert offered(["specs", "no-such-word", ""]) == []
    assert offered(["predict", "m", "--tp", ""]) == []


def test_an_unknown_shell_is_refused(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "perfmodel: completion tcsh: expected one of bash, zsh, fish\n"
