"""Each page has its Markdown beside it, and every link of llms.txt leads to one."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import twins  # noqa: E402


def test_blocks_that_the_build_runs_are_plain_code():
    text = "a\n```{run}\n:exit: 2\nperfmodel predict\n```\n```{python}\nimport perfmodel\n```\n```sh\nls\n```\n"
    assert twins.plain(text) == ("a\n```sh\nperfmodel predict\n```\n```python\nimport perfmodel\n```\n```sh\nls\n```\n")


def test_every_link_of_llms_txt_leads_to_a_twin(tmp_path):
    for page in (ROOT / "docs").rglob("*.md"):
        html = (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html")
        html.parent.mkdir(parents=True, exist_ok=True)
        html.touch()
    twins.write(ROOT / "docs", tmp_path)
    links = re.findall(r"\]\(([^)#]+)\)", (tmp_path / "llms.txt").read_text("utf-8"))
    assert len(links) >= 10
    for link in links:
        assert (tmp_path / link).is_file(), link
        assert "{run}" not in (tmp_path / link).read_text("utf-8")
