"""Consumer groups of the Master: registration, heartbeats, assignment."""
