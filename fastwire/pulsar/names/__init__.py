"""Names of topics and namespaces, and patterns of them."""
