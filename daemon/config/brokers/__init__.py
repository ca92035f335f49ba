"""The tables for brokers: connections, their login and TLS, and the sources of pipelines and of jobs."""
