"""Events of a TANK connection."""

from fastwire.connection import ChunkReady, Lost, More
from fastwire.event import Connected, CorruptFound, FetchDone, Reply
from fastwire.tank.format.message import PartitionRanges, TopicList, TopicResult, Topology
from fastwire.tank.protocol.produce import ProduceAnswer
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import CorruptBundle

__all__ = ["Answer", "ChunkReady", "Connected", "CorruptFound", "Event", "FetchDone", "Lost", "More", "Reply"]

Answer = PartitionRanges | TopicList | TopicResult | Topology | ProduceAnswer

Event = Connected | Lost | Reply[Answer] | FetchDone[Fetched] | ChunkReady | CorruptFound[CorruptBundle] | More
