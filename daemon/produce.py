"""Writing entries to a Pulsar topic by the binary protocol: lookups, producers, receipts (Pulsar 24).

For load, demos and tests, against the embedded broker or a real one. At least once: what was not confirmed when a
connection broke or a topic moved is sent again, in order.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from struct import Struct
from typing import Any

from fastwire import __version__
from fastwire.errors import FastwireError, ProtocolError, UnsupportedError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.command import PROTOCOL_VERSION, decode_command, encode_command
from fastwire.pulsar.payload import Entry, encode_send
from fastwire.pulsar.request import BrokerError
from fastwire.pulsar.topic import Address, Topic, parse_address, parse_service_url, parse_topic

from .auth import Credentials, NoCredentials
from .backoff import Backoff
from .transport import Transport, open_transport

__all__ = ["ProduceError", "Produced", "TopicWriter", "open_topic", "produce"]

PENDING_ENTRIES = 1000  # per partition, sent and not confirmed
PENDING_BYTES = 16 << 20  # for the whole topic
REQUEST_TIMEOUT_S = 30.0
PATIENCE_S = 30.0  # without a single receipt or a connection, before giving up
RETRY_S = 5.0  # at most between two tries
REDIRECTS = 20
BUFFER_BYTES = 256 << 10  # everything that a producer is ever told is small

Command = pb.BaseCommand
# Answers after which trying again is of no use (Pulsar 21).
FATAL = {
    pb.AuthenticationError,
    pb.AuthorizationError,
    pb.UnsupportedVersionError,
    pb.TopicNotFound,
    pb.TopicTerminatedError,
    pb.InvalidTopicName,
    pb.IncompatibleSchema,
    pb.NotAllowedError,
    pb.ProducerFenced,
}

Connect = Callable[[Transport[pb.BaseCommand], str, int], Awaitable[None]]


class ProduceError(FastwireError):
    """The topic cannot be written to; says what the broker answered last."""


@dataclass(slots=True)
class Produced:
    """What was confirmed so far."""

    records: int = 0
    entries: int = 0
    bytes: int = 0


@asynccontextmanager
async def open_topic(
    url: str, topic: str, *, credentials: Credentials | None = None, connect: Connect = open_transport
) -> AsyncIterator["TopicWriter"]:
    """Open a topic for writing; leaving the block normally waits until everything is confirmed.

    ``connect`` opens the socket: ``open_transport`` with a TLS context bound to it, for example.
    """
    client = _Client(url, credentials or NoCredentials(), connect)
    try:
        writer = TopicWriter(client, parse_topic(topic))
        await writer.open()
        try:
            yield writer
            await writer.flush()
        finally:
            await writer.close()
    finally:
        client.close()


async def produce(
    url: str,
    topic: str,
    entries: Iterable[tuple[int, Entry]],
    *,
    credentials: Credentials | None = None,
    connect: Connect = open_transport,
    progress: Callable[[int], None] = lambda records: None,
) -> Produced:
    """Send entries, each with the partition it is for, and return when all are confirmed.

    ``progress`` is called with the number of confirmed records now and then. The partition of a topic without
    partitions is 0. Raises ProduceError.
    """
    async with open_topic(url, topic, credentials=credentials, connect=connect) as writer:
        for number, (partition, entry) in enumerate(entries):
            await writer.send(partition, entry)
            if number % 16 == 0:
                await asyncio.sleep(0)  # receipts are read meanwhile
                progress(writer.produced.records)
        await writer.flush()
        progress(writer.produced.records)
        return writer.produced


class TopicWriter:
    """All partitions of one topic."""

    def __init__(self, client: "_Client", topic: Topic) -> None:
        self.topic = topic
        self.produced = Produced()
        self.partitions = 0
        self.changed = asyncio.Event()  # something was confirmed, or nothing more will be
        self.failure: ProduceError | None = None
        self.pending_bytes = 0
        self._client = client
        self._writers: list[_PartitionWriter] = []

    async def open(self) -> None:
        """Ask for the partitions and open a producer for each."""
        try:
            self.partitions = await self._client.partitions(str(self.topic))
        except (FastwireError, TimeoutError) as exc:
            raise ProduceError(f"{self.topic}: {exc}") from exc
        names = [self.topic.of_partition(index) for index in range(self.partitions)] or [self.topic]
        self._writers = [_PartitionWriter(self, self._client, str(name), index) for index, name in enumerate(names)]
        for writer in self._writers:
            writer.start()

    async def send(self, partition: int, entry: Entry) -> None:
        """Send one entry; waits while too much is not confirmed."""
        writer = self._writers[partition]
        while len(writer.pending) >= PENDING_ENTRIES or self.pending_bytes >= PENDING_BYTES:
            await self._change()
        if self.failure is not None:
            raise self.failure
        writer.send(entry)

    async def flush(self) -> None:
        """Wait until everything is confirmed."""
        while any(writer.pending for writer in self._writers):
            await self._change()

    async def close(self) -> None:
        """Close the producers, whether everything is confirmed or not."""
        await asyncio.gather(*(writer.close() for writer in self._writers))

    async def _change(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.changed.clear()
        await self.changed.wait()

    def confirm(self, entry: Entry) -> None:
        """Count a confirmed entry."""
        self.produced.records += entry.messages
        self.produced.entries += 1
        self.produced.bytes += len(entry.body)
        self.pending_bytes -= len(entry.body)
        self.changed.set()

    def fail(self, error: ProduceError) -> None:
        """Give up on the topic."""
        self.failure = self.failure or error
        self.changed.set()


class _PartitionWriter:
    """One producer: keeps itself open, and sends again what was not confirmed when it was not."""

    def __init__(self, owner: TopicWriter, client: "_Client", topic: str, producer_id: int) -> None:
        self.pending: deque[Entry] = deque()
        self._owner = owner
        self._client = client
        self._topic = topic
        self._producer_id = producer_id
        self._name = ""  # the broker gives it with the first success
        self._epoch = 0
        self._link: _Link | None = None
        self._broken = asyncio.Event()
        self._heard_at = 0.0
        self._trouble = "no answer"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def send(self, entry: Entry) -> None:
        self.pending.append(entry)
        self._owner.pending_bytes += len(entry.body)
        if self._link is not None:
            self._link.write(encode_send(self._producer_id, entry))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        link, self._link = self._link, None
        if link is None or not link.open:
            return
        close = pb.CommandCloseProducer(producer_id=self._producer_id, request_id=self._client.next_id())
        try:
            await link.request(close.request_id, type=Command.CLOSE_PRODUCER, close_producer=close)
        except (FastwireError, TimeoutError):
            pass  # it is closed as well when the connection is
        link.producers.pop(self._producer_id, None)

    # What the link tells.

    def confirmed(self, receipt: pb.CommandSendReceipt) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if not self.pending or receipt.sequence_id < self.pending[0].sequence_id:
            return  # of a SEND that was repeated
        if receipt.sequence_id > self.pending[0].sequence_id:
            self.broken(f"a receipt for {receipt.sequence_id}, the next one is {self.pending[0].sequence_id}")
            return
        self._owner.confirm(self.pending.popleft())

    def refused(self, error: pb.CommandSendError) -> None:
        refusal = BrokerError(error.error, error.message)
        if error.error == pb.ChecksumError:  # what is sent again would be refused again
            self._owner.fail(ProduceError(f"{self._topic}: {refusal}"))
        if self._link is not None:
            self._link.abort(refusal)

    def broken(self, why: str) -> None:
        self._trouble = why
        self._link = None
        self._broken.set()

    # Staying open.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(most_s=RETRY_S)
        self._heard_at = loop.time()
        while self._owner.failure is None:
            self._broken.clear()
            try:
                await self._open()
                backoff.reset()
                await self._stay()
            except BrokerError as exc:
                self._trouble = str(exc)
                if exc.code in FATAL:
                    self._owner.fail(ProduceError(f"{self._topic}: {exc}"))
            except (FastwireError, TimeoutError) as exc:
                self._trouble = str(exc) or "no answer in time"
            self._link = None
            if loop.time() - self._heard_at > PATIENCE_S:
                self._owner.fail(ProduceError(f"{self._topic}: {self._trouble}"))
            await asyncio.sleep(backoff.next())

    async def _open(self) -> None:
        link = await self._client.link(await self._client.owner(self._topic))
        link.producers[self._producer_id] = self
        request = pb.CommandProducer(
            topic=self._topic, producer_id=self._producer_id, request_id=self._client.next_id(), epoch=self._epoch
        )
        if self._name:
            request.producer_name = self._name
            request.user_provided_producer_name = False
        answer = await link.request(request.request_id, type=Command.PRODUCER, producer=request)
        self._name = answer.producer_success.producer_name
        self._epoch += 1
        if self._broken.is_set():
            raise ProtocolError("producer", detail=self._trouble)
        self._link = link
        for entry in self.pending:
            link.write(encode_send(self._producer_id, entry))

    async def _stay(self) -> None:
        """Return when the producer is open no longer; TimeoutError if receipts stay away."""
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(PATIENCE_S / 3):
                    await self._broken.wait()
            except TimeoutError:
                if not self.pending:
                    self._heard_at = loop.time()
                elif loop.time() - self._heard_at > PATIENCE_S:
                    raise TimeoutError("no receipt in time") from None


class _Client:
    """Connections by address, requests about topics."""

    def __init__(self, url: str, credentials: Credentials, connect: Connect) -> None:
        self._service = parse_service_url(url)
        self._credentials = credentials
        self._connect = connect
        self._links: dict[Address, asyncio.Task[_Link]] = {}
        self._ids = count(1)
        self._host = 0

    def next_id(self) -> int:
        return next(self._ids)

    def close(self) -> None:
        for task in self._links.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()

    async def link(self, address: Address) -> "_Link":
        """Return the connection to a broker, made if there is none."""
        task = self._links.get(address)
        if task is not None and task.done() and (task.cancelled() or task.exception() or not task.result().open):
            task = None
        if task is None:
            task = self._links[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(task)

    async def partitions(self, topic: str) -> int:
        """Ask how many partitions a topic has; 0 if it is not partitioned."""
        request = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=self.next_id())
        link = await self._any_link()
        answer = await link.request(request.request_id, type=Command.PARTITIONED_METADATA, partitionMetadata=request)
        found = answer.partitionMetadataResponse
        if found.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
            raise BrokerError(found.error, found.message)
        return found.partitions

    async def owner(self, topic: str) -> Address:
        """Ask which broker serves a topic."""
        link, authoritative = await self._any_link(), False
        for _ in range(REDIRECTS):
            request = pb.CommandLookupTopic(topic=topic, request_id=self.next_id(), authoritative=authoritative)
            answer = await link.request(request.request_id, type=Command.LOOKUP, lookupTopic=request)
            found = answer.lookupTopicResponse
            if found.response == pb.CommandLookupTopicResponse.Failed:
                raise BrokerError(found.error, found.message)
            address = parse_address(found.brokerServiceUrlTls if self._service.tls else found.brokerServiceUrl)
            if found.response == pb.CommandLookupTopicResponse.Connect:
                return address
            authoritative = found.authoritative
            link = await self.link(address)
        raise UnsupportedError(f"{topic}: more than {REDIRECTS} redirects")

    async def _any_link(self) -> "_Link":
        addresses = self._service.addresses
        failure: Exception | None = None
        for _ in addresses:
            try:
                return await self.link(addresses[self._host % len(addresses)])
            except (FastwireError, TimeoutError) as exc:
                failure = exc
                self._host += 1
        raise failure or TimeoutError

    async def _open(self, address: Address) -> "_Link":
        link = _Link(self._credentials)
        await self._connect(link.transport, address.host, address.port)
        await link.handshake()
        return link


class _Link:
    """One connection: requests with their answers, and receipts to their producers."""

    def __init__(self, credentials: Credentials) -> None:
        self.producers: dict[int, _PartitionWriter] = {}
        self._credentials = credentials
        self._machine = _Machine()
        self.transport = Transport[pb.BaseCommand](self._machine, on_events=self._heard, on_lost=self._lost)
        self._waiting: dict[int, asyncio.Future[pb.BaseCommand]] = {}

    @property
    def open(self) -> bool:
        return self.transport.open

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop, together with what else is said in it."""
        if not self._machine.out:
            asyncio.get_running_loop().call_soon(self.transport.flush)
        self._machine.out.append(frame)

    async def handshake(self) -> None:
        connect = pb.CommandConnect(client_version=f"fastwire-{__version__}", protocol_version=PROTOCOL_VERSION)
        connect.feature_flags.supports_auth_refresh = True
        if self._credentials.method:
            connect.auth_method_name = self._credentials.method
            connect.auth_data = self._credentials.data() or b""
        await self.request(_HANDSHAKE, type=Command.CONNECT, connect=connect)

    async def request(self, request_id: int, **parts: Any) -> pb.BaseCommand:
        """Send one command and return its answer; raises BrokerError, ProtocolError, TimeoutError."""
        future: asyncio.Future[pb.BaseCommand] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self.write(encode_command(Command(**parts)))
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await future
        finally:
            del self._waiting[request_id]

    def close(self) -> None:
        self.transport.close()

    def abort(self, why: Exception) -> None:
        self.transport.abort(why)

    def _heard(self, commands: Sequence[pb.BaseCommand]) -> None:
        for command in commands:
            self._handle(command)
        self.transport.flush()

    def _handle(self, command: pb.BaseCommand) -> None:
        kind = command.type
        if kind == Command.SEND_RECEIPT:
            if (producer := self.producers.get(command.send_receipt.producer_id)) is not None:
                producer.confirmed(command.send_receipt)
        elif kind == Command.SEND_ERROR:
            if (producer := self.producers.get(command.send_error.producer_id)) is not None:
                producer.refused(command.send_error)
        elif kind == Command.CLOSE_PRODUCER:
            if (producer := self.producers.pop(command.close_producer.producer_id, None)) is not None:
                producer.broken("the broker closed the producer")
        elif kind == Command.PING:
            self._machine.out.append(encode_command(Command(type=Command.PONG, pong=pb.CommandPong())))
        elif kind == Command.AUTH_CHALLENGE:
            self._answer_challenge()
        elif kind == Command.CONNECTED:
            self._answer(_HANDSHAKE, command)
        elif kind == Command.ERROR:
            # Before CONNECTED there is one question only, whatever number the answer has.
            number = _HANDSHAKE if _HANDSHAKE in self._waiting else command.error.request_id
            self._answer(number, BrokerError(command.error.error, command.error.message))
        elif kind == Command.PRODUCER_SUCCESS:
            if command.producer_success.producer_ready:
                self._answer(command.producer_success.request_id, command)
        elif kind == Command.SUCCESS:
            self._answer(command.success.request_id, command)
        elif kind == Command.LOOKUP_RESPONSE:
            self._answer(command.lookupTopicResponse.request_id, command)
        elif kind == Command.PARTITIONED_METADATA_RESPONSE:
            self._answer(command.partitionMetadataResponse.request_id, command)

    def _answer(self, request_id: int, answer: pb.BaseCommand | Exception) -> None:
        future = self._waiting.get(request_id)
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _answer_challenge(self) -> None:
        data = pb.AuthData(auth_method_name=self._credentials.method, auth_data=self._credentials.data() or b"")
        response = pb.CommandAuthResponse(
            client_version=f"fastwire-{__version__}", response=data, protocol_version=PROTOCOL_VERSION
        )
        self._machine.out.append(encode_command(Command(type=Command.AUTH_RESPONSE, authResponse=response)))

    def _lost(self, why: Exception | None) -> None:
        lost = ProtocolError("connection", detail=f"lost: {why or 'closed by the broker'}")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(lost)
        producers, self.producers = self.producers, {}
        for producer in producers.values():
            producer.broken(str(why or "the broker closed the connection"))


_HANDSHAKE = -1  # stands for the request id that CONNECT does not have


class _Machine:
    """Frames in, frames out: what a transport drives."""

    more = False

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.get_buffer: Callable[[int], memoryview] = self._room
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0

    @property
    def awaiting(self) -> bool:
        return True  # a producer always waits for receipts

    def receive(self, nbytes: int, now: float) -> Sequence[pb.BaseCommand]:
        self._filled += nbytes
        commands, at = [], 0
        while self._filled - at >= 8:
            total, size = _SIZES.unpack_from(self._buffer, at)
            if total > BUFFER_BYTES - 4 or size > total - 4:
                raise ProtocolError("totalSize", at, detail=f"{total} with a command of {size} for a producer")
            if self._filled - at < 4 + total:
                break
            try:
                commands.append(decode_command(bytes(self._buffer[at + 8 : at + 8 + size])))
            except UnsupportedError:
                pass  # newer than us, so not for us
            at += 4 + total
        self._buffer[: self._filled - at] = self._buffer[at : self._filled]
        self._filled -= at
        return commands

    def take_outbound(self) -> list[bytes]:
        out, self.out = self.out, []
        return out

    def tick(self, now: float) -> Sequence[pb.BaseCommand]:
        return ()

    def suspend(self, now: float) -> None: ...

    def resume(self, now: float) -> None: ...

    def close(self) -> None:
        self.out.clear()

    def _room(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]


_SIZES = Struct(">II")
