"""What can be wrong with a setting, or with a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors.base import PenstockError, did_you_mean
from penstock.redacted import redacted_url


class SettingsError(PenstockError):
    """Something in penstock.toml, the environment or a flag is wrong. `where` says which of them, and the line."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        super().__init__(text)


class SettingsFileError(SettingsError):
    """The settings file is missing, unreadable or not TOML."""

    def __init__(self, path: Path, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(
            str(path),
            f"settings: {path} cannot be read: {found}\n"
            "  expected: a TOML file with sections such as [log] and [spark]\n"
            "  mend it, or point PENSTOCK_CONFIG at another file",
        )


class SettingsFileUntrusted(SettingsError):
    """Another user wrote the settings file, or may change it."""

    def __init__(self, path: Path, found: str, remedy: str = "") -> None:
        self.path = path
        self.found = found
        remedy = remedy or f"chown $(id -u) {path}; or name it, if you trust its owner: PENSTOCK_CONFIG={path}"
        super().__init__(
            str(path),
            f"settings: {path} is not read: {found}\n"
            "  expected: a file that belongs to you or to root, and that other users cannot change\n"
            f"  to use it: {remedy}",
        )


class UnknownSetting(SettingsError):
    """Nothing has that name. A setting that is silently ignored would be worse than none."""

    def __init__(self, name: str, where: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(
            where,
            f"settings: nothing is named {name!r}\n  {where}\n"
            f"  known names: {', '.join(known)}{did_you_mean(name, known)}",
        )


class SettingValueError(SettingsError):
    """The value is not one that the setting can have."""

    def __init__(self, name: str, where: str, expected: str, found: object) -> None:
        self.name = name
        self.expected = expected
        self.found = redacted_url(found) if isinstance(found, str) else found
        if isinstance(found, Mapping):
            self.found = dict.fromkeys(found, "***")
        super().__init__(
            where,
            f"settings: {name} cannot be {self.found!r}\n  {where}\n  expected: {expected}\n"
            "  every setting and its default: docs/settings.md",
        )


class LogIsPrivate(SettingsError):
    """A log that should be shared with a group is in a folder that is its owner's alone."""

    def __init__(self, folder: Path, mode: int) -> None:
        self.folder = folder
        self.mode = mode
        super().__init__(
            "log.access",
            f"settings: log.access is 'group', but the log in {folder} is not shared with a group\n"
            f"  expected: mode 2770; found: mode {mode:04o}\n"
            f"  to share it: chgrp -R GROUP {folder}; chmod -R g+rwX {folder}; "
            f"find {folder} -type d -exec chmod g+s {{}} +",
        )


class CommandRefused(PenstockError):
    """A command that would do harm, or cannot be done as it was given. Nothing was done."""

    def __init__(self, what: str, why: str, hint: str) -> None:
        self.what = what
        self.why = why
        self.hint = hint
        super().__init__(f"penstock: {what}\n  {why}\n  {hint}")


class DemoFailed(PenstockError):
    """A part of the demo ended by itself."""

    def __init__(self, part: str, code: int, said: str) -> None:
        self.part = part
        self.code = code
        self.said = said
        shown = "".join(f"  | {line}\n" for line in said.splitlines()) or "  it said nothing\n"
        super().__init__(
            f"demo: {part} ended by itself, with exit code {code}\n"
            f"{shown}"
            "  nothing of the demo is left running\n"
            "  to look into it: penstock demo --keep DIR, then penstock run weblogs.py in that folder"
        )
