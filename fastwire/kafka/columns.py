"""The columns of Kafka's records: those that all systems share."""

from fastwire.columns.layout import RowLayout

ROW = RowLayout("kafka", offset="counter", timestamp="counter")
