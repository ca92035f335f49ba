"""The command ``schema``: prints the JSON Schema of configuration files."""

import typer


def schema() -> None:
    """Print the JSON Schema of configurations, for editors."""
    import json

    from ...config import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
