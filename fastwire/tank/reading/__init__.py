"""TANK's hot path: bundles into columns, and requests for them."""
