"""The report as one page of HTML that needs nothing else. Everything that comes from data or code is escaped."""

from __future__ import annotations

from html import escape
from string import Template

from penstock.pipeline.place import Place
from penstock.verify.report import COLUMNS, Difference, Failure, Line, Report, cells, explained_lines, row_text

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>verify $pipeline</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.bad td { background: #fdecea; } code, pre { font: 13px/1.4 ui-monospace, monospace; }
pre { background: #f6f6f6; padding: .6rem; overflow-x: auto; }
.verdict { padding: .6rem 1rem; border-left: .4rem solid; }
.good { border-color: #2e7d32; background: #edf7ed; } .failed { border-color: #c62828; background: #fdecea; }
</style>
</head>
<body>
<h1>verify: pipeline $pipeline</h1>
<p class="verdict $mood">$verdict</p>
<p>Records: $records. Seed: $seed.</p>
$failures
<h2>Runs</h2>
<table>
<tr>$heads</tr>
$lines
</table>
<p>$notes</p>
<p>$compared</p>
</body>
</html>
""")


def page(report: Report) -> str:
    """The report as HTML."""
    failures = [_failure(each) for each in report.failures]
    failures += [f"<p>View {escape(view)} was not run: {escape(why)}.</p>" for view, why in report.not_run.items()]
    return PAGE.substitute(
        pipeline=escape(report.pipeline),
        mood="good" if report.agrees else "failed",
        verdict=escape(report.verdict),
        records=escape(", ".join(f"{count:,} of {topic}" for topic, count in report.records.items())),
        seed=report.seed,
        failures="\n".join(failures),
        heads="".join(_cell("th", number, name) for number, name in enumerate(COLUMNS)),
        lines="\n".join(map(_line, report.lines)),
        notes="<br>".join(map(escape, report.notes)),
        compared=escape(report.compared),
    )


def _line(line: Line) -> str:
    inside = "".join(_cell("td", number, text) for number, text in enumerate(cells(line)))
    return f"<tr>{inside}</tr>" if line.agrees else f'<tr class="bad">{inside}</tr>'


def _cell(tag: str, number: int, text: str) -> str:
    return f"<{tag}>{escape(text)}</{tag}>" if number < 2 else f'<{tag} class="number">{escape(text)}</{tag}>'


def _failure(failure: Failure) -> str:
    places = [failure.place]
    if failure.cause_place != failure.place:
        places.append(failure.cause_place)
    parts = [f"<h2>View {escape(failure.view)}</h2>", *(_place(each) for each in places if each is not None)]
    parts.append(f"<p>{_lines(failure.cause)}<br>{_lines(failure.hint)}</p>")
    if failure.runs:
        parts.append(f"<p>In: {escape('; '.join(failure.runs))}</p>")
    return "\n".join([*parts, *map(_difference, failure.differences)])


def _place(place: Place) -> str:
    return f"<p><code>{escape(place.shown)}</code></p>"


def _difference(difference: Difference) -> str:
    example = difference.example
    lines = [
        f"row     {row_text(example.key) or '(no key)'}: {example.kind} {', '.join(example.columns)}",
        f"batch   {row_text(example.expected)}",
        f"found   {row_text(example.found)}   ({difference.run})",
    ]
    lines += explained_lines(difference.explained)
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
