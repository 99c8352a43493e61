"""What to compute: topics, tables, views and alerts, as data.

`pipeline` is what users write with, `definition` what comes of it, `place` where it stands in their file, `sql_names`
what a SQL view reads, `graph` who reads whom. `alerts` is what users say of alerts, `receivers` to whom they may go.
Nothing here opens a log or a database, and building a definition starts no JVM. `loading` finds the pipeline in a
user's file; `tables` reads static tables when a run asks for them.
"""
