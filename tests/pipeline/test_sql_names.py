from __future__ import annotations

import pytest

from penstock.pipeline.sql_names import relations_of


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select a.x from Orders a join REFUNDS b on a.id = b.id", ["orders", "refunds"]),
        ("SELECT * FROM a, b AS x, c y WHERE a.k IN (1, 2)", ["a", "b", "c"]),
        ("SELECT 'FROM x', \"FROM y\", r'FROM z', 'it''s FROM w', 'a\\' FROM v' FROM a", ["a"]),
        ("-- FROM x\nSELECT /* FROM y\n, z */ 1 FROM a", ["a"]),
        ("SELECT `from` FROM `web_access`", ["web_access"]),
        ("SELECT hits FROM access GROUP BY hits, orders", ["access"]),
        ("SELECT * FROM web.access", ["web.access"]),
        ("SELECT extract(day FROM time), trim(BOTH 'x' FROM y) FROM a", ["a"]),
        ("SELECT a.x IS NOT DISTINCT FROM b FROM a", ["a"]),
        ("SELECT * FROM (SELECT * FROM a UNION ALL SELECT * FROM b) JOIN c", ["a", "b", "c"]),
        ("SELECT * FROM (a JOIN b USING (k))", ["a", "b"]),
        (
            "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k) AND k NOT IN (SELECT k FROM c)",
            ["a", "b", "c"],
        ),
        ("SELECT (SELECT max(x) FROM b), c FROM a", ["b", "a"]),
        ("SELECT * FROM a LATERAL VIEW explode(tags) t AS x, y WHERE x > 0", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.k = a.k)", ["a", "b"]),
        ("SELECT * FROM range(10), a", ["a"]),
        ("SELECT * FROM VALUES (1, x), (3, y) AS t(p, q), a", ["a"]),
        ("SELECT sum(x) OVER (PARTITION BY a, b ORDER BY c) FROM d WINDOW w AS (PARTITION BY e, f)", ["d"]),
        ("FROM a SELECT x, y", ["a"]),
        ("TABLE a", ["a"]),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (k) |> SELECT x, c", ["a", "b"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN ('p', 'q'))", ["a"]),
        ("SELECT 1", []),
    ],
)
def test_relations_are_found_and_nothing_else(sql: str, names: list[str]) -> None:
    assert list(relations_of(sql)) == names


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("WITH o AS (SELECT * FROM orders) SELECT * FROM o", ["orders"]),
        ("WITH o (x, y) AS (SELECT * FROM orders), p AS (SELECT * FROM o) SELECT * FROM p JOIN q", ["orders", "q"]),
        ("WITH orders AS (SELECT * FROM orders WHERE x) SELECT * FROM orders", ["orders"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r, a", ["a"]),
        ("SELECT * FROM (WITH o AS (SELECT * FROM a) SELECT * FROM o) JOIN o", ["a", "o"]),
    ],
)
def test_a_name_of_with_shadows_only_where_it_can_be_seen(sql: str, names: list[str]) -> None:
    assert list(relations_of(sql)) == names
