"""The dashboard: what people watch in a browser, on the same address as the service.

The way of a number, and of the files:

    beat.py           log, views, runs and alerts, read at one moment
    history.py        moments before that one, and how fast things grow
    pulse.py          one beat a second for all who watch, none for nobody
    entrance.py       what of /dashboard is answered by whom
    login.py          the page to give a token at
    sessions.py       and the cookie one gets for it
    stage.py          NiceGUI, in a thread of its own
    pages.py          all pages by their address
    screen.py         one page in one browser: its frame, and what keeps it true
    markup.py         plain elements
    sheet.py          tables of text
    chart.py          lines, dots and bars
    control.py        what can be chosen
    diagram.py        boxes and arrows
    numbers.py        numbers and times as people read them

    overview.py       Overview
    pipeline_page.py  Pipeline, from graph.py: who reads whom, and where it is drawn
    topics.py         Topics
    topic.py          one of them, with recent.py: its newest records
    views.py          Views
    view.py           one of them, with windows.py: rows as lines, and which were corrected
    clocks.py         Clocks
    runs.py           Runs
    alerts.py         Alerts
    alert.py          one of them

In static/ is what browsers load: a stylesheet, and one script for each of sheet, chart, control and diagram.
"""
