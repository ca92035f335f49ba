"""The commands of ``fastwire-consume``: one module each, with its arguments, options and help."""
