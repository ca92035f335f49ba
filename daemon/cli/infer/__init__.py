"""The command ``infer``: recognises the values of topics, and prints a schema and the table ``[decode]`` for them."""
