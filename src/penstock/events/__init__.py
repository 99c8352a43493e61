"""Events: what they may look like, and how they become columns.

`ddl` and `schema` read Spark's DDL without Spark; `encode` fits dicts (`rows`), tables, JSON lines and CSV to a
schema, at once where every value is plain (`columns`), one by one where not (`values`, `times`), and loses none;
`keys` says which partition.
"""
