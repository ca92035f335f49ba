"""The columns of TANK's messages: those that all systems share. ``offset`` is the sequence number."""

from fastwire.columns.layout import RowLayout

ROW = RowLayout("tank", offset="counter", timestamp="counter")
