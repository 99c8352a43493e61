"""Everything the documentation shows is true: its code runs, and prints what the page says it prints."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.conftest import DRIVERS, ROOT
from tests.docs.documentation import BlockFailed, blocks_of, marks_of, run_page

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def page_of(path: Path) -> object:
    names = marks_of(path, blocks_of(path))
    group = [] if "services" in names else [DRIVERS]
    marks = [*(getattr(pytest.mark, name) for name in names), *group]
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [page_of(path) for path in PAGES])
def test_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(blocks_of(page), tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_in_docstrings_print_what_they_show(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def run_text(text: str, folder: Path) -> None:
    (folder / "page.md").write_text(text)
    run_page(blocks_of(folder / "page.md"), folder)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```bash\nfalse\n```\n",
        "```bash\nfalse | true\n```\n",
        "```console\n$ echo 1\n2\n```\n",
        "```python\nraise SystemExit(0)\n```\n",
        "```sh\ntrue\n```\n",
        "1. a list\n\n   ```bash\n   false\n   ```\n",
    ],
)
def test_page_that_is_not_true_fails(text: str, tmp_path: Path) -> None:
    with pytest.raises(BlockFailed, match=r"page.md:\d+: "):
        run_text(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\n```\nand\n```python\nprint(x)\n```\n```text\n1\n```\n",
        "```python\nprint('took 17 ms')\n```\n```text\ntook ... ms\n```\n",
        "<!-- not run: it would fail -->\n```bash\nfalse\n```\n```text\nanything\n```\n",
        "<!-- file: a/b.py -->\n```python\nprint(3)\n```\n```console\n$ python a/b.py\n3\n$ echo 4 \\\n> 5\n4 5\n```\n",
        "```bash\nsleep 60 &\necho started\n```\n```text\nstarted\n```\n",
        "```python\nprint(1)\n```\nA text block further down is not its output:\n```text\n2\n```\n",
    ],
)
def test_page_that_is_true_passes(text: str, tmp_path: Path) -> None:
    run_text(text, tmp_path)


def test_page_says_what_its_test_needs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- marks: services, long -->\n# Title\n```python\nfrom penstock.spark import session\n```\n")
    assert marks_of(page, blocks_of(page)) == ["long", "services", "spark"]
    page.write_text("# Title\n```bash\nexport PENSTOCK_SPARK_MASTER=local\n```\n")
    assert marks_of(page, blocks_of(page)) == []
