"""The traps of streaming systems as views of one pipeline, and events that spring each of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType

from penstock import Pipeline

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAN, BIG = float("nan"), Decimal("9" * 27 + ".0000000001")
TEAMS = [{"k": "a", "team": "red"}, {"k": "b", "team": "blue"}, {"k": None, "team": "none"}, {"k": "z", "team": "red"}]

EVENTS = (
    "time timestamp, id bigint, k string, g int, n bigint, wide decimal(38,10), cents decimal(10,2), x double, "
    "f float, ok boolean, tiny tinyint, small smallint, day date, raw binary, tags array<string>"
)

KEPT = {
    # Fold, line by line of its whitelist.
    "numbers": "fold", "types": "fold", "flags": "fold", "some": "fold", "per_hour": "fold", "sliding": "fold",
    "a_day": "fold", "new_york": "fold", "both_topics": "fold", "tagged": "fold", "keyed": "fold", "rows": "fold",
    "teams": "fold", "inner_join": "fold", "left_join": "fold", "semi_join": "fold", "anti_join": "fold",
    "right_join": "fold", "cross_join": "fold", "timely": "fold", "nan_key": "fold", "started": "fold", "one": "fold",
    # With a record that fails.
    "failing": "fold", "over_failing": "fold",
    # What must not be folded.
    "having": "redo", "plus_one": "redo", "sessions": "redo", "latest": "redo", "distinct_ids": "redo",
    "having_hour": "redo", "slid_distinct": "redo", "batch_looking": "whole",
    # Views over views.
    "lagged": "whole", "by_count": "fold", "by_size": "fold", "biggest": "redo", "all_sizes": "fold", "people": "fold",
    "per_team": "fold", "oldest": "redo", "events_of_teams": "redo", "few": "fold", "most": "whole",
    "last_having": "redo",
    # A union with rows that no input brings.
    "with_names": "redo", "with_names_hidden": "redo", "with_an_hour": "redo", "filled": "redo", "with_blue": "whole",
    # Two windows at once.
    "two_windows": "redo", "two_clocks": "redo",
}  # fmt: skip


def traps(folder: Path) -> Pipeline:
    """The pipeline; its static table lies in `folder`."""
    (folder / "teams.json").write_text("\n".join(map(json.dumps, TEAMS)))
    app = Pipeline("traps")
    app.topic("events", EVENTS, key="k", event_time="time", lateness="1 hour", partitions=2)
    app.topic("others", "time timestamp, k string, n bigint", event_time="time")
    app.topic("people_changes", "id bigint, team string, age int, salary decimal(38,2)", key="id")
    app.table("names", str(folder / "teams.json"), schema="k string, team string")
    app.table("people", topic="people_changes", key="id")
    _folded(app)
    _joined(app)
    _redone(app)
    _over_views(app)
    _united(app)
    _windowed_twice(app)
    return app


def _folded(app: Pipeline) -> None:
    app.view(
        "numbers",
        key="k",
        sql="""
        SELECT k, count(*) AS c, count(n) AS cn, sum(n) AS n, sum(wide) AS wide, sum(cents) AS cents, sum(x) AS x,
               max(x) AS max_x, min(x) AS min_x, max(n) AS max_n, sum(g) AS g FROM events GROUP BY k""",
    )
    # One record fails, and is set aside.
    app.view("failing", key="k", sql="SELECT k, count(*) AS c, sum(100 DIV (id - 7)) AS n FROM events GROUP BY k")
    app.view("over_failing", key="c", sql="SELECT c, count(*) AS ks, sum(n) AS n FROM failing GROUP BY c")
    every = ", ".join(
        f"min({name}) AS min_{name}, max({name}) AS max_{name}, count({name}) AS count_{name}"
        for name in ("time", "k", "n", "wide", "cents", "x", "f", "ok", "tiny", "small", "day", "raw")
    )
    app.view("types", key="g", sql=f"SELECT g, {every} FROM events GROUP BY g")
    app.view(
        "flags",
        key="g",
        sql="""
        SELECT g, every(ok) AS e, any(ok) AS a, bool_and(n > 0) AS p, bit_and(n) AS b_and, bit_or(small) AS b_or,
               bit_xor(tiny) AS b_xor, count_if(n > 3) AS c, sum(tiny) AS t, sum(small) AS s, sum(f) AS f
        FROM events GROUP BY g""",
    )
    app.view(
        "some",
        key="k",
        sql="SELECT k, count(*) FILTER (WHERE n > 2) AS c, sum(n) FILTER (WHERE ok) AS n FROM events GROUP BY k",
    )
    app.view(
        "per_hour",
        key=["window", "k"],
        sql="""
        SELECT window(time, '1 hour') AS window, k, count(*) AS c, max(x) AS x FROM events GROUP BY 1, 2""",
    )
    app.view(
        "timely",
        key="window",
        late="drop",
        sql="""
        SELECT window(time, '1 hour') AS window, count(*) AS c FROM events GROUP BY 1""",
    )
    app.view(
        "sliding",
        key="window",
        sql="""
        SELECT window(time, '10 minutes', '5 minutes', '2 minutes') AS window, sum(n) AS n FROM events GROUP BY 1""",
    )
    app.view(
        "a_day",
        key="window",
        sql="""
        SELECT window(time, '1 day', '1 day', '5 hours') AS window, count(*) AS c, sum(n) AS n
        FROM events GROUP BY 1""",
    )
    app.view(
        "new_york",
        key="day",
        sql="""
        SELECT date_trunc('day', from_utc_timestamp(time, 'America/New_York')) AS day, count(*) AS c
        FROM events GROUP BY 1""",
    )
    app.view(
        "started",
        key=["since", "k"],
        sql="""
        SELECT w.start AS since, w.end AS until, k, c
        FROM (SELECT window(time, '1 hour') AS w, k, count(*) AS c FROM events GROUP BY 1, 2)""",
    )
    app.view("nan_key", key="x", sql="SELECT x, count(*) AS c FROM events GROUP BY x")
    app.view(
        "both_topics",
        key="k",
        sql="""
        SELECT k, count(*) AS c, sum(n) AS n, max(time) AS t
        FROM (SELECT k, n, time FROM events UNION ALL SELECT k, n, time FROM others) GROUP BY k""",
    )
    app.view("one", key=[], sql="SELECT count(*) AS c, sum(n) AS n, max(wide) AS w FROM events")
    app.view("tagged", sql="SELECT id, p, tag FROM events LATERAL VIEW posexplode(tags) AS p, tag")
    app.view("keyed", key="k", sql="SELECT k, id, n, x FROM events WHERE g IS NOT NULL")
    app.view("rows", sql="SELECT id, upper(k) AS k, n * 2 AS n, time FROM events WHERE n > 1 OR n IS NULL")


def _joined(app: Pipeline) -> None:
    app.view(
        "teams",
        key="team",
        sql="""
        SELECT team, count(*) AS c, sum(n) AS n FROM events JOIN names ON events.k <=> names.k GROUP BY team""",
    )
    app.view("inner_join", sql="SELECT id, team FROM events JOIN names USING (k)")
    app.view("left_join", sql="SELECT id, team FROM events LEFT JOIN names USING (k)")
    app.view("right_join", sql="SELECT id, team FROM names RIGHT JOIN events USING (k)")
    app.view("cross_join", sql="SELECT id, team FROM events CROSS JOIN (SELECT team FROM names WHERE team = 'red')")
    app.view("semi_join", sql="SELECT id, k FROM events LEFT SEMI JOIN names USING (k)")
    app.view("anti_join", sql="SELECT id, k FROM events LEFT ANTI JOIN names USING (k)")


@pandas_udf(DoubleType())  # type: ignore[call-overload, untyped-decorator]
def centred(values: pd.Series) -> pd.Series:
    return values - values.mean()


def _redone(app: Pipeline) -> None:
    app.view("having", key="k", sql="SELECT k, count(*) AS c FROM events GROUP BY k HAVING c < 8")
    app.view("plus_one", key="k", sql="SELECT k, sum(n) + 1 AS n FROM events GROUP BY k")
    app.view("latest", key="k", sql="SELECT k, max_by(id, struct(time, id)) AS id FROM events GROUP BY k")
    app.view("distinct_ids", key="k", sql="SELECT k, count(DISTINCT g) AS g, avg(n) AS n FROM events GROUP BY k")
    app.view(
        "having_hour",
        key="window",
        sql="""
        SELECT window(time, '1 hour') AS window, count(*) AS c FROM events GROUP BY 1 HAVING c < 5""",
    )
    app.view(
        "slid_distinct",
        key="window",
        sql="""
        SELECT window(time, '10 minutes', '5 minutes', '2 minutes') AS window, count(DISTINCT k) AS k,
               max(n) - min(n) AS n
        FROM events GROUP BY 1""",
    )

    @app.view(key=["k", "session_window"], within="k")
    def sessions(events: DataFrame) -> DataFrame:
        return events.groupBy("k", sf.session_window("time", "20 minutes")).agg(sf.count("*").alias("c"))

    @app.view(key="id", kept="whole")
    def batch_looking(events: DataFrame) -> DataFrame:
        return events.filter("x IS NOT NULL AND NOT isnan(x)").repartition(1).select("id", centred("x").alias("x"))


def _over_views(app: Pipeline) -> None:
    app.view(
        "lagged",
        key="window",
        sql="""
        SELECT window, n, lag(n) OVER (ORDER BY window) AS before FROM a_day""",
    )
    # A row of `numbers` moves to another group of these whenever its count changes.
    app.view(
        "by_count", key="c", sql="SELECT c, count(*) AS ks, sum(n) AS n, sum(wide) AS wide FROM numbers GROUP BY c"
    )
    app.view("by_size", key="ks", sql="SELECT ks, count(*) AS counts, sum(n) AS n FROM by_count GROUP BY ks")
    app.view("all_sizes", key=[], sql="SELECT count(*) AS sizes, sum(n) AS n, sum(counts) AS counts FROM by_size")
    app.view("biggest", key="c", sql="SELECT c, max(n) AS n, max(x) AS x FROM numbers GROUP BY c")
    app.view("last_having", key="c", sql="SELECT c, max(k) AS k FROM having GROUP BY c")
    app.view("few", key="k", sql="SELECT k, c, -n AS n FROM numbers WHERE c < 6")
    app.view("most", key="k", sql="SELECT k, c FROM numbers ORDER BY c DESC, k LIMIT 2")
    app.view(
        "per_team",
        key="team",
        sql="""
        SELECT team, count(*) AS c, sum(salary) AS salary, sum(age) AS age FROM people GROUP BY team""",
    )
    app.view("oldest", key="team", sql="SELECT team, max(age) AS age FROM people GROUP BY team HAVING max(age) > 20")
    app.view(
        "events_of_teams",
        key=["id", "person"],
        within={"events": "g", "people": "id"},
        sql="SELECT events.id, people.id AS person, team FROM events LEFT JOIN people ON events.g = people.id",
    )


def _united(app: Pipeline) -> None:
    app.view(
        "with_names",
        key="k",
        sql="""
        SELECT k, count(*) AS c, sum(n) AS n
        FROM (SELECT k, n FROM events UNION ALL SELECT k, 100 FROM names UNION ALL VALUES ('literal', 7)) GROUP BY k""",
    )
    app.view(
        "with_names_hidden",
        key="id",
        sql="""
        SELECT min(id) AS id, count(*) AS c FROM (SELECT k, id FROM events UNION ALL
            SELECT k, CASE k WHEN 'a' THEN -1 WHEN 'b' THEN -2 WHEN 'z' THEN -3 ELSE -4 END FROM names) GROUP BY k""",
    )
    app.view(
        "with_an_hour",
        key="since",
        sql="""
        SELECT w.start AS since, count(*) AS c, count(DISTINCT k) AS ks FROM (
            SELECT window(time, '1 hour') AS w, k FROM (SELECT time, k FROM events UNION ALL
                SELECT TIMESTAMP '2026-01-01 13:10:00', k FROM names)) GROUP BY w""",
    )
    app.view(
        "filled",
        key="k",
        sql="SELECT k, sum(c) AS c FROM (SELECT k, c FROM numbers UNION ALL SELECT k, 0 FROM names) GROUP BY k",
    )
    app.view(
        "with_blue",
        key="k",
        sql="SELECT k, c FROM few UNION ALL SELECT concat(k, '!'), 0 FROM names WHERE team = 'blue'",
    )


def _windowed_twice(app: Pipeline) -> None:
    app.view(
        "two_windows",
        key="w",
        sql="""
        SELECT e.w, count(*) AS c, sum(m) AS m
        FROM (SELECT *, window(time, '1 day') FROM (SELECT window(time, '1 hour') AS w, time FROM events)) e
        JOIN (SELECT *, window(time, '1 day') FROM (SELECT window(time, '1 hour') AS w, time, n AS m FROM others)) o
        ON e.w = o.w GROUP BY e.w""",
    )
    app.view(
        "two_clocks",
        key=["since", "came"],
        sql="""
        SELECT w.start AS since, a.start AS came, count(DISTINCT k) AS ks
        FROM (SELECT *, window(_arrived, '10 minutes') AS a
              FROM (SELECT window(time, '1 hour') AS w, _arrived, k FROM events)) GROUP BY w, a""",
    )


def events(count: int = 40, seed: int = 4) -> tuple[list[dict[str, Any]], list[int]]:
    """Records in the order of their arrival, and when each arrived, in microseconds."""
    random = Random(seed)

    def one_of(*values: Any) -> Any:
        return random.choice(values)

    rows, arrived = [], []
    for number in range(count):
        came = START + timedelta(minutes=4 * number)
        time = came - one_of(timedelta(0), timedelta(minutes=7), timedelta(minutes=55), timedelta(minutes=65))
        rows.append(
            {
                "time": {5: None, 9: datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 13: datetime(2099, 7, 1, tzinfo=UTC),
                         21: datetime(1970, 1, 1, 0, 2, tzinfo=UTC), 30: START - timedelta(days=40)}.get(number, time),
                "id": number, "k": one_of("a", "b", "c", "", None), "g": one_of(0, 1, 2, None),
                "n": one_of(None, -3, 1, 2, 5, 7), "wide": one_of(None, BIG, -BIG, Decimal("0.0000000001")),
                "cents": one_of(None, Decimal("0.01"), Decimal("-99999999.99")),
                "x": one_of(None, NAN, 0.25, -1.5, -0.0, 0.0), "f": one_of(None, 0.5, float("-inf"), -0.0),
                "ok": one_of(True, False, None), "tiny": one_of(None, -128, 127), "small": one_of(None, 3, -32768),
                "day": one_of(None, date(1970, 1, 1), date(2099, 12, 31)), "raw": one_of(None, b"\x00", b"\xff", b""),
                "tags": one_of(None, [], ["p"], ["q", None, "q"]),
            }
        )  # fmt: skip
        arrived.append(int(came.timestamp()) * 1_000_000)
    return rows, arrived


def others(count: int = 12) -> list[dict[str, Any]]:
    return [
        {"time": START + timedelta(minutes=number), "k": ["a", None, "y"][number % 3], "n": number}
        for number in range(count)
    ]


def people() -> list[dict[str, Any]]:
    """Changes of three persons, who move from team to team."""
    moves = [(0, "red"), (1, "red"), (2, "blue"), (0, "blue"), (1, None), (2, "red"), (0, "green"), (1, "blue")]
    return [
        {"id": person, "team": team, "age": 18 + 3 * number, "salary": None if number == 3 else Decimal(number) / 4}
        for number, (person, team) in enumerate(moves)
    ]
