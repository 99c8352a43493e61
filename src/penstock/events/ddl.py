"""Spark DDL, read without Spark: "time timestamp, tags array<string>, price decimal(10,2) NOT NULL".

A reader for the part of Spark's grammar that a topic can keep. Whoever reads a schema here and reads it with Spark
gets the same columns; what Spark would read but a topic cannot keep is refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.errors import SchemaError, did_you_mean

# Which kind of type, field or array it is, is known at run time only.
ArrowType: TypeAlias = Any
ArrowField: TypeAlias = Any
ArrowArray: TypeAlias = Any

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

SIMPLE_TYPES: dict[str, ArrowType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_INSTEAD = {
    "char": "string",
    "character": "string",
    "varchar": "string",
    "text": "string",
    "void": "the type it shall have later",
    "interval": "bigint, and count microseconds",
    "time": "bigint, and count microseconds since midnight",
    "variant": "string, and keep the JSON text",
    "object": "string, and keep the JSON text",
    "geometry": "binary, and keep the WKB bytes",
    "geography": "binary, and keep the WKB bytes",
    "uuid": "string",
    "datetime": "timestamp",
}
_KNOWN = (*SIMPLE_TYPES, *_ALIASES, "decimal", "array", "map", "struct")
_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<name>[A-Za-z0-9_]+)
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<mark>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NUMBER = re.compile(r"[0-9]+(?:e[0-9]+)?(?:l|s|y|f|d|bd)?", re.IGNORECASE)
_NOT_KEPT = {
    "default": "a topic stores what was sent; fill in defaults in a view",
    "generated": "a topic stores what was sent; compute columns in a view",
    "collate": "a topic keeps strings as they are; collate in a view",
}
_DEPTH_MAX = 64


def parse_ddl(ddl: str) -> pa.Schema:
    """The columns that a Spark DDL text names, as an Arrow schema. Raises `SchemaError` that points at the place.

    A comment is kept in the field's metadata as b"comment". Names beginning with "_" belong to the log, and two names
    that differ only in case are one name to Spark: both are refused.

    >>> parse_ddl("time timestamp, status int NOT NULL").field("status")
    pyarrow.Field<status: int32 not null>
    """
    return _Reader(ddl).schema()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


class _Reader:
    """One pass over one DDL text; `token` is the next token not yet taken."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens = self._tokens()
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def schema(self) -> pa.Schema:
        fields = self._fields(self._column, end="end")
        return pa.schema(fields)

    def _tokens(self) -> list[_Token]:
        tokens, position = [], 0
        while position < len(self.ddl):
            match = _TOKEN.match(self.ddl, position)
            if match is None:
                found = self.ddl[position]
                unclosed = {"`": "a closing `", "'": "a closing '", '"': 'a closing "'}.get(found)
                raise SchemaError(
                    self.ddl,
                    position,
                    unclosed or "a column's name or type",
                    f"no end to {found}" if unclosed else repr(found),
                    "" if unclosed else "a name with anything but a-z, 0-9 and _ needs `backticks`",
                )
            assert match.lastgroup is not None
            if match.lastgroup != "blank":
                tokens.append(_Token(match.lastgroup, match.group(), position))
            position = match.end()
        tokens.append(_Token("end", "", len(self.ddl)))
        return tokens

    def _fields(self, field: Callable[[], ArrowField], end: str) -> list[ArrowField]:
        """Fields separated by commas, up to the token `end` (not taken)."""
        fields: list[ArrowField] = []
        seen: dict[str, str] = {}
        while True:
            name = self.token
            fields.append(field())
            lower = fields[-1].name.lower()
            if lower in seen:
                expected = "each name once (Spark takes upper and lower case for the same)"
                raise self._error(expected, f"{name} beside {seen[lower]!r}", at=name)
            seen[lower] = fields[-1].name
            if self._is(",") and self.tokens[self.index + 1].kind != "end":
                self._take(",")
            elif self._is(end):
                return fields
            else:
                raise self._error(f"',' or {'the end' if end == 'end' else repr(end)}")

    def _column(self) -> ArrowField:
        token = self.token
        field = self._field()
        if field.name.startswith("_"):
            raise self._error(
                "a name that does not begin with '_'",
                repr(field.name),
                "names such as _offset and _arrived belong to the log",
                at=token,
            )
        return field

    def _field(self) -> ArrowField:
        name = self._name()
        if self._is(":"):
            self._take(":")
        data_type = self._type()
        is_nullable = not self._is_word("not")
        if not is_nullable:
            self._take("not")
            if not self._is_word("null"):
                raise self._error("NULL after NOT")
            self._take("null")
        comment = None
        if self._is_word("comment"):
            self._take("comment")
            comment = {b"comment": self._text().encode()}
        for word, hint in _NOT_KEPT.items():
            if self._is_word(word):
                raise self._error("',' or the end", None, hint)
        return pa.field(name, data_type, is_nullable, comment)

    def _type(self) -> ArrowType:
        token = self.token
        if token.kind != "name":
            raise self._error("a type, such as string, bigint or timestamp")
        self.index += 1
        word = _ALIASES.get(token.text.lower(), token.text.lower())
        if word in SIMPLE_TYPES:
            if self._is("("):
                raise self._error(f"{word} without a size")
            return SIMPLE_TYPES[word]
        if word == "decimal":
            return self._decimal()
        if word in ("array", "map", "struct"):
            return self._nested(word, token)
        if word in _INSTEAD:
            raise self._error("a type that a topic keeps", repr(token.text), f"write {_INSTEAD[word]}", at=token)
        known = [*SIMPLE_TYPES, "decimal(p,s)", "array<...>", "map<...>", "struct<...>"]
        hint = did_you_mean(word, _KNOWN).strip()
        raise self._error("one of " + ", ".join(known), repr(token.text), hint, at=token)

    def _decimal(self) -> ArrowType:
        if not self._is("("):
            return pa.decimal128(10, 0)
        self._take("(")
        precision = self._number("a precision from 1 to 38", 1, 38)
        scale = 0
        if self._is(","):
            self._take(",")
            scale = self._number(f"a scale from 0 to {precision}", 0, precision)
        self._take(")")
        return pa.decimal128(precision, scale)

    def _nested(self, word: str, token: _Token) -> ArrowType:
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise self._error(f"at most {_DEPTH_MAX} types inside each other", repr(token.text), at=token)
        self._take("<")
        if word == "array":
            result: ArrowType = pa.list_(pa.field("element", self._type()))
        elif word == "map":
            key_token = self.token
            key = self._type()
            if pa.types.is_map(key):
                raise self._error("a map's key that is not a map", "a map", at=key_token)
            self._take(",")
            result = pa.map_(key, self._type())
        else:
            # Parquet cannot store a struct without fields, so `struct<>` is refused here.
            result = pa.struct(self._fields(self._field, end=">"))
        self._take(">")
        self.depth -= 1
        return result

    def _name(self) -> str:
        token = self.token
        if token.kind == "quoted" and len(token.text) > 2:
            self.index += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind == "name" and not _NUMBER.fullmatch(token.text):
            self.index += 1
            return token.text
        raise self._error("a column's name", None, "a topic needs at least one column" if not self.ddl.strip() else "")

    def _number(self, expected: str, least: int, most: int) -> int:
        token = self.token
        if not (token.text.isascii() and token.text.isdigit() and least <= int(token.text[:6]) <= most):
            raise self._error(expected)
        self.index += 1
        return int(token.text)

    def _text(self) -> str:
        """One text, or several in a row, which are one."""
        if self.token.kind != "text":
            raise self._error("a text in 'quotes'")
        text = ""
        while self.token.kind == "text":
            quote, inside = self.token.text[0], self.token.text[1:-1]
            # Between escapes, the quote itself is written twice.
            text += "".join(
                piece.replace(quote * 2, quote) if number % 2 == 0 else _unescaped(piece)
                for number, piece in enumerate(_ESCAPE.split(inside))
            )
            self.index += 1
        return text

    def _is(self, mark: str) -> bool:
        return self.token.kind == "end" if mark == "end" else self.token.kind == "mark" and self.token.text == mark

    def _is_word(self, word: str) -> bool:
        return self.token.kind == "name" and self.token.text.lower() == word

    def _take(self, text: str) -> None:
        if self.token.text.lower() != text:
            raise self._error(repr(text))
        self.index += 1

    def _error(
        self, expected: str, found: str | None = None, hint: str = "", *, at: _Token | None = None
    ) -> SchemaError:
        token = at or self.token
        return SchemaError(self.ddl, token.position, expected, found or str(token), hint)


def _unescaped(escape: str) -> str:
    """What stands behind a backslash in a text, as Spark has it."""
    if len(escape) == 1:
        return _ESCAPES.get(escape, escape)
    number = int(escape, 8) if escape.isdigit() else int(escape[1:], 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
