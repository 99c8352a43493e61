"""The HTTP service over views and log: `penstock serve`.

The way of a request, and of the files:

    server.py       starts it and ends it; refuses to be open to others without tokens
    connection.py   slow clients are cut off, and no more connections than allowed
    guard.py        who may ask: host, origin, token; what every answer carries
    tokens.py       the tokens, kept as hashes
    application.py  all routes
    short_way.py    past them, for what is asked most often
    service.py      what they share
    part.py         the topics of one pipeline alone
    views.py        the routes of views
    topics.py       the routes of topics
    by_key.py       a row by its key, quickly
    rows.py         which rows of a view are meant
    records.py      which records of a topic are meant
    gathering.py    events that wait for the disk together
    posting.py      events in, each once
    streams.py      server-sent events and WebSockets
    feed.py         what they tell: read once for all who follow
    bell.py         what wakes them
    answers.py      rows and records as JSON, CSV and Arrow
    models.py       what answers look like, for OpenAPI
    problems.py     errors as answers
    work.py         blocking work in a few threads, for a bounded time
    metrics.py      what Prometheus reads
"""
