"""The log in Apache Kafka: the same topics, producers, consumers and promises, kept by brokers.

A `topic` is a topic of Kafka whose records are stamped by the broker; what it is (schema, key, clock) is written in a
topic of definitions (`definitions`). Records are JSON or Avro (`values`). `reading` brings ranges of offsets as Arrow
batches, `writing` appends, `sequences` remembers what named producers have stored, in the same transaction. `signals`
wakes those who wait; `groups` are Kafka's own consumer groups.
"""
