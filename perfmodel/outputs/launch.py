"""What starts a plan, as it is printed."""

from __future__ import annotations

from perfmodel.planning.launch import Launch


def launch_text(answer: Launch) -> str:
    """Return commands or YAML, with what is said of them in comments."""
    return answer.text()
