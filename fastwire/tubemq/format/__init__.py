"""TubeMQ's wire format: frames, texts, signatures, error codes."""
