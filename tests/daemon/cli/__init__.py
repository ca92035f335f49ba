"""The command line as a stranger meets it: what is printed where, and the four exit codes."""
