"""Kafka for Spark: offsets asked for by the driver, ranges fetched by the executors, all of it blocking."""
