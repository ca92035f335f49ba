"""TubeMQ's hot path: messages into columns, and the flow of requests."""
