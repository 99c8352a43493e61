"""Which relations a SQL text reads: what stands after FROM, JOIN, TABLE and the commas between them.

Strings and comments are passed over, backquotes respected, and a name that WITH introduces is not a relation where it
can be seen. Spark itself says later whether the text is right; here only the names are found, without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[rR]?'(?:\\.|''|[^'\\])*'|[rR]?"(?:\\.|""|[^"\\])*")
    |`(?P<quoted>(?:``|[^`])+)`
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[0-9][A-Za-z0-9_]*)
    |(?P<sign>\|>|.)""",
    re.VERBOSE | re.DOTALL,
)
_BEGIN_QUERY = {"SELECT", "WITH", "FROM", "TABLE", "VALUES", "MAP", "REDUCE", "("}
_END_RELATIONS = {
    "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "QUALIFY",
    "SELECT", "UNION", "EXCEPT", "MINUS", "INTERSECT", "PIVOT", "UNPIVOT", "|>", ";",
}  # fmt: skip
_NO_RELATION = {"LATERAL", "VALUES", "SELECT"}


@dataclass
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        """A keyword or sign, in capitals; nothing for backquoted names and texts."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


@dataclass
class _Group:
    """What stands between two parentheses, or the whole text."""

    is_query: bool
    names: set[str] = field(default_factory=set)
    """Names that WITH introduced here, so far."""
    defining: str | None = None
    """The name whose AS (...) comes next."""
    is_body: bool = False
    """It is that which stands behind such an AS."""
    in_with: bool = False
    is_recursive: bool = False
    in_values: bool = False
    in_relations: bool = False
    """Between FROM and the clause after it: a comma is followed by a further relation."""
    is_expected: bool = False
    """The next token is a relation."""


def relations_of(sql: str) -> tuple[str, ...]:
    """The names that the text reads, in lower case as Spark compares them, each once, in the order of the text.

    >>> relations_of("WITH o AS (SELECT * FROM orders) SELECT * FROM o JOIN customers c USING (id), `days`")
    ('orders', 'customers', 'days')
    """
    found: dict[str, None] = {}
    tokens = list(_tokens(sql))
    groups = [_Group(is_query=True)]
    position = 0
    while position < len(tokens):
        token, group = tokens[position], groups[-1]
        if token.word == "(":
            following = tokens[position + 1].word if position + 1 < len(tokens) else ""
            # `FROM (orders JOIN ...)`: a relation in parentheses, as good as one without.
            is_relation = group.is_expected and following not in _BEGIN_QUERY
            groups.append(_Group(following in _BEGIN_QUERY or is_relation, in_relations=is_relation))
            groups[-1].is_expected = is_relation
            groups[-1].is_body = group.in_with and tokens[position - 1].word == "AS"
            group.is_expected = False
        elif token.word == ")":
            if len(groups) > 1 and groups.pop().is_body and groups[-1].defining is not None:
                groups[-1].names.add(groups[-1].defining)
                groups[-1].defining = None
        elif group.is_expected and _is_name(token):
            name, position = _dotted(tokens, position)
            group.is_expected = False
            is_function = position + 1 < len(tokens) and tokens[position + 1].word == "("
            if not is_function and not any(name in each.names for each in groups):
                found[name] = None
        else:
            _follow(group, tokens, position)
        position += 1
    return tuple(found)


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or ""
        if kind == "quoted":
            yield _Token(kind, match["quoted"].replace("``", "`"))
        elif kind != "space":
            yield _Token(kind, match[0])


def _is_name(token: _Token) -> bool:
    return token.kind in ("quoted", "number") or (token.kind == "word" and token.word not in _NO_RELATION)


def _dotted(tokens: list[_Token], position: int) -> tuple[str, int]:
    """A name with its parts, `a.b`, and the position of its last token."""
    name = tokens[position].text
    while position + 2 < len(tokens) and tokens[position + 1].text == "." and _is_name(tokens[position + 2]):
        position += 2
        name += "." + tokens[position].text
    return name.lower(), position


def _follow(group: _Group, tokens: list[_Token], position: int) -> None:
    """Takes notice of a token that is neither a parenthesis nor a relation."""
    token = tokens[position]
    word = token.word
    before = tokens[position - 1].word if position else ""
    following = tokens[position + 1].word if position + 1 < len(tokens) else ""
    group.is_expected = False
    if before == ".":
        return
    if not group.is_query:
        # `f(TABLE orders)` hands a relation to a function; in extract(day FROM time) there is none.
        group.is_expected = word == "TABLE" and before in ("(", ",", ">")
    elif word == "WITH" and (position == 0 or before in ("(", "")):
        group.in_with = True
    elif group.in_with and word == "RECURSIVE":
        group.is_recursive = True
    elif group.in_with and group.defining is None and _is_name(token) and word not in _BEGIN_QUERY:
        group.defining = token.text.lower()
        if group.is_recursive:
            group.names.add(group.defining)
    elif word == "LATERAL" and following == "VIEW":
        group.in_relations = False
    elif (word == "FROM" and before != "DISTINCT") or word == "JOIN" or (word == "TABLE" and before != "|>"):
        group.in_relations = group.is_expected = True
        group.in_with = group.in_values = False
    elif word == "VALUES":
        group.in_values = True
    elif word in _END_RELATIONS:
        group.in_relations = group.in_with = False
    elif word == "," and group.in_relations:
        group.is_expected = not (group.in_values and following in ("(", ""))
    elif word == "LATERAL":
        group.is_expected = following == "("
