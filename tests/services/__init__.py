"""What an application outgrows one machine with, as real processes on loopback: Kafka brokers, a Spark cluster."""
