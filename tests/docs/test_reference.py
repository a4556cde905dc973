"""What the documentation says of commands and functions, against the commands and functions."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest

import perfmodel
from perfmodel.cli import run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import cli_reference  # noqa: E402

COMMANDS = dict(cli_reference.commands())
SECTIONS = dict(re.findall(r"^## (perfmodel.*?)\n(.*?)(?=^## |\Z)", cli_reference.PAGE.read_text("utf-8"), re.M | re.S))
PUBLIC = [getattr(perfmodel, name) for name in perfmodel.__all__]


def test_the_reference_is_that_of_the_commands() -> None:
    page = cli_reference.PAGE.read_text(encoding="utf-8")
    assert page == cli_reference.reference(), "run: python docs/_ext/cli_reference.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_verb_is_in_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Read off ``--help``, which the reference is not made from."""
    assert run([*name.split()[1:], "--help"]) == 0
    helped = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.M)) - {"--help"}
    assert helped <= set(re.findall(r"`(--[\w-]+)", SECTIONS[name]))


QUESTIONS = {
    "predict",
    "compare",
    "sweep",
    "fit",
    "size",
    "capacity",
    "tco",
    "explain",
    "solve",
    "simulate",
    "launch",
    "export",
    "whatif",
}


def interface(heading: str) -> dict[str, str]:
    """Names in the first column of a table of the design, with what the last column says; planned ones left out."""
    table = (ROOT / "docs" / "design.md").read_text("utf-8").partition(f"\n| {heading} | ")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    found: dict[str, str] = {}
    for names, _, *last in (row for row in rows if "(planned)" not in row[0]):
        for name in re.findall(r"`([^`]+)`", names):
            assert name.partition(" ")[0] not in found or heading == "verb", f"{name} stands twice"
            found[name if heading == "verb" else name.partition(" ")[0].partition("[")[0]] = last[0] if last else ""
    return found


def test_the_design_has_each_verb_and_each_option_once_with_its_verbs() -> None:
    assert set(interface("verb")) == {name.removeprefix("perfmodel ") for name in COMMANDS}
    taken: dict[str, set[str]] = {"--cite": {"every verb"}, "--color": {"every verb"}}
    for name, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                taken.setdefault(option.opts[0], set()).add(name.removeprefix("perfmodel "))
    said = {name: set(verbs.split(", ")) for name, verbs in interface("option").items()}
    assert taken == {
        name: (verbs - {"questions"}) | (QUESTIONS if "questions" in verbs else set()) for name, verbs in said.items()
    }


def test_every_public_name_is_in_the_interface() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r":: perfmodel\.(\w+)$", page, re.M)) == set(perfmodel.__all__)


@pytest.mark.parametrize("thing", PUBLIC, ids=perfmodel.__all__)
def test_every_public_name_has_a_docstring(thing: object) -> None:
    assert inspect.getdoc(thing)
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        assert name.startswith("_") or not callable(member) or inspect.getdoc(member), name


README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def commands_of_the_readme() -> list[str]:
    blocks = re.findall(r"^```.*?$(.*?)^```", README + COMMAND_PAGE, re.M | re.S)
    return [line for block in blocks for line in re.findall(r"^(?:\$ )?(perfmodel .*)$", block, re.M)]


@pytest.mark.parametrize("line", commands_of_the_readme())
def test_commands_of_the_readme_are_taken(line: str) -> None:
    """Each is one that the command line reads; what it answers is tested elsewhere."""
    # Any verb takes --cite, which is read before the verb is.
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--cite"]
    verbs = 2 if words[0] in ("specs", "runs") else 1
    COMMANDS[" ".join(["perfmodel", *words[:verbs]])].make_context(words[0], words[verbs:])


QUICK = {"predict", "compare", "sweep", "fit", "explain", "solve", "specs"}


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in commands_of_the_readme()
        if line.split()[1] in QUICK and not re.search(r"path/to|my-", line)  # files that the reader has
    ],
)
def test_quick_commands_of_the_readme_answer(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(line, comments=True)[1:]) == 0


def test_the_answer_in_the_readme_is_what_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who types it must not find other numbers."""
    monkeypatch.setenv("COLUMNS", "80")
    block = re.search(r"^```\n\$ (perfmodel compare .*?)\n(.*?)^```", README, re.M | re.S)
    assert block
    assert run(shlex.split(block[1])[1:]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == block[2].rstrip("\n").splitlines()


@pytest.mark.parametrize("page", ["llms.txt", "README.md", "docs/skill.md", "docs/commands.md", "docs/trust.md"])
def test_links_of_what_is_read_first_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), target


def test_commands_for_assistants_are_commands() -> None:
    block = re.search(r"^```\n(perfmodel .*?)^```", (ROOT / "docs" / "skill.md").read_text("utf-8"), re.M | re.S)
    assert block
    for line in block[1].splitlines():
        words = shlex.split(line)[1:]
        COMMANDS[f"perfmodel {words[0]}"].make_context(words[0], words[1:])
