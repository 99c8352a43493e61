"""Load: files of history into a topic, each row once, however often it is tried."""
