"""Single values of a configuration: their text, their type, and messages about them."""
