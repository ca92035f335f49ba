"""Consumer groups: membership, assignment, subscriptions."""
