"""The columns of the toy system's records: those that all systems share."""

from fastwire.columns.layout import RowLayout

ROW = RowLayout("toy", offset="counter", timestamp="counter")
