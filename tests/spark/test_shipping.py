"""What is sent to executors: all of Penstock's code, and of the user's folder its modules, not its data."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import penstock
from penstock.pipeline import loading
from penstock.spark import shipping

APP = "from penstock import Pipeline\napp = Pipeline('site')\n"


class Sent:
    """Stands for a Spark context, and keeps what it was given. PySpark's own puts modules on the driver's path too."""

    def __init__(self) -> None:
        self.archive = ""
        self.modules: list[str] = []

    def addArchive(self, path: str) -> None:  # noqa: N802
        self.archive = path

    def addPyFile(self, path: str) -> None:  # noqa: N802
        self.modules = zipfile.ZipFile(path).namelist()
        sys.path.insert(1, path)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    monkeypatch.setattr(loading, "_folders", [])
    return Sent()


def shipped(sent: Sent) -> None:
    shipping.ship(sent)  # type: ignore[arg-type]


def test_all_of_penstock_is_sent_and_unpacked_under_its_name(sent: Sent) -> None:
    shipped(sent)
    path, _, name = sent.archive.partition("#")
    assert name == "penstock"
    package = Path(penstock.__file__).parent
    assert set(zipfile.ZipFile(path).namelist()) == {str(file.relative_to(package)) for file in package.rglob("*.py")}


def test_of_the_users_folder_the_modules_are_sent(sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("app.py", "shelves.py", "rules/__init__.py", "rules/deep/more.py", "data/orders.csv", "data/stray.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(APP if name == "app.py" else "")
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.load_pipeline(str(tmp_path / "app.py"))
    before = list(sys.path)
    shipped(sent)
    assert sent.modules == ["app.py", "rules/__init__.py", "rules/deep/more.py", "shelves.py"]
    assert sys.path == before


def test_a_folder_that_is_not_ours_to_look_into_is_passed_over(
    sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "lost+found").mkdir()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if "lost+found" in path.parts:  # As everybody but root meets it.
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.load_pipeline(str(tmp_path / "app.py"))
    shipped(sent)
    assert sent.modules == ["app.py"]


def test_what_is_installed_is_not_sent_as_the_users(sent: Sent) -> None:
    """The program that runs now is pytest, or one of its workers."""
    shipped(sent)
    assert sent.modules == []


def test_a_program_started_by_its_file_sends_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shelves.py").write_text("")
    (tmp_path / "app.py").write_text("from penstock.spark import shipping\nprint(*shipping._application_folders())\n")
    done = subprocess.run([sys.executable, tmp_path / "app.py"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path.resolve())
