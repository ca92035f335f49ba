"""SQL for each row: which queries are row-wise, the process that runs them, and their columns."""
