"""The columns of the toy system's records: those that all systems share."""

from fastwire.columns.layout import RowLayout

__all__ = ["ROW"]

ROW = RowLayout("toy", offset="counter", timestamp="counter")
