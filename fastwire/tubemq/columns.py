"""The columns of TubeMQ's messages.

``offset`` is where the GET of a message began and ``row`` its number from there, which together are its position.
``eventTime`` is ``$msgTime$``, and ``msgType`` is ``$msgType$``, empty without; both stay among the headers.
"""

from fastwire.columns.layout import RowLayout
from fastwire.columns.schema import StoredColumn

ROW = RowLayout(
    "tubemq",
    offset="constant",
    timestamp="constant",
    own=(
        StoredColumn("broker", "constant", stats=True, storage="int32"),
        StoredColumn("row", "counter", storage="int32"),
        StoredColumn("messageId", "plain", storage="int64"),
        StoredColumn("eventTime", "counter", storage="rare time"),
        StoredColumn("msgType", "constant", storage="strings"),
    ),
    place=("offset", "row"),
)
