"""What people read: the rows of views, in SQLite or PostgreSQL.

A `store` keeps tables of Arrow rows and hands them back as they were (`values`, `keys`, `texts`); `sqlite` and
`postgres` are two databases behind one interface. Beside the rows: who may write (`owner`, `takeover`), how far a view
has come (`fence`), its generations (`catalog`), who ran it (`runs`), and what it sends to topics (`outbox`).
"""
