"""Protobuf: descriptors, and the compiled walk of messages."""
