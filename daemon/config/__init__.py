"""The configuration: reads TOML into frozen models.

:func:`load_config` reads a file, :func:`parse_config` a text. Both raise :class:`ConfigError`, for which the process
exits with code 78.
"""

from .access import AuthConfig, OAuth2Config, TlsConfig
from .address import HttpAddress, parse_url
from .connection import Connection
from .end import End, parse_end
from .fields import Start, check_issuer_url, parse_start
from .machine import available_memory, cores
from .model import Config, DaemonConfig, PipelineConfig, RollConfig, SinkConfig
from .parser import load_config, parse_config, parse_connection, parse_source
from .problem import ConfigError, Problem
from .schema import json_schema
from .secured import Secured
from .source import SourceConfig, SubscribedSource, TopicChoice
from .spark import SparkConfig, SparkDecode, SparkDedupe, SparkOutput
from .sparksource import SparkBrokers, SparkDataset, SparkSource, SubscribedBrokers
from .text import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "AuthConfig",
    "Config",
    "ConfigError",
    "Connection",
    "DaemonConfig",
    "End",
    "HttpAddress",
    "OAuth2Config",
    "PipelineConfig",
    "Problem",
    "RollConfig",
    "Secured",
    "SinkConfig",
    "SourceConfig",
    "SparkBrokers",
    "SparkConfig",
    "SparkDataset",
    "SparkDecode",
    "SparkDedupe",
    "SparkOutput",
    "SparkSource",
    "Start",
    "SubscribedBrokers",
    "SubscribedSource",
    "TlsConfig",
    "TopicChoice",
    "available_memory",
    "check_issuer_url",
    "cores",
    "format_duration",
    "format_size",
    "json_schema",
    "load_config",
    "parse_config",
    "parse_connection",
    "parse_duration",
    "parse_end",
    "parse_size",
    "parse_source",
    "parse_start",
    "parse_url",
]
