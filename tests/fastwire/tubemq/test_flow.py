"""Flow rules, the waits between GETs, error codes and credentials."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED, Credentials, VisitToken, signature
from fastwire.tubemq.format.error import BrokerError, Code, Remedy, advice_of, name_of, remedy_of
from fastwire.tubemq.reading.fetched import Fetched
from fastwire.tubemq.reading.flow import NO_RULES, FlowRules, Pace, minute_of_day, read_rules, wait_ms

TEXT = """[{"type":0,"rule":[{"start":"08:00","end":"17:30","dltInM":1024,"limitInM":20,"freqInMs":1000},
                            {"start":"00:00","end":"24:00","dltInM":2048,"limitInM":10,"freqInMs":2000}]},
 {"type":1,"rule":[{"zeroCnt":3,"freqInMs":700},{"zeroCnt":8,"freqInMs":1500}]},
 {"type":2,"rule":[{"anything":1}]},
 {"type":3,"rule":[{"normFreqInMs":5,"filterFreqInMs":100,"minDataFilterFreqInMs":400}]}]"""
RULES = read_rules(TEXT)
GIB = 1 << 30


def test_a_blank_text_means_no_rules() -> None:
    assert read_rules(" ") == read_rules("") == NO_RULES


def test_the_limit_of_the_greatest_lag_holds() -> None:
    noon, night = 12 * 60, 3 * 60
    assert RULES.limit(GIB, noon) is None
    limit = RULES.limit(GIB + 1, noon)
    assert limit is not None
    assert (limit.bytes_a_minute, limit.wait_ms, limit.bytes_a_window) == (20 << 20, 1000, (20 << 20) // 12)
    assert RULES.limit(GIB + 1, night) is None
    assert RULES.limit(GIB + 1, 17 * 60 + 30) is None
    for minute in (noon, night, 24 * 60 - 1):
        strict = RULES.limit(2 * GIB + 1, minute)
        assert strict is not None
        assert strict.bytes_a_minute == 10 << 20


def test_rules_go_by_the_clock_of_gmt_8() -> None:
    assert minute_of_day(0) == 8 * 60
    assert minute_of_day(16 * 3600 - 1) == 24 * 60 - 1
    assert minute_of_day(16 * 3600) == 0


def test_the_wait_at_the_end_of_a_partition() -> None:
    def waits(**options: object) -> list[int]:
        return [wait_ms(Code.NOT_FOUND, empties=n, **options) for n in (1, 2, 3, 7, 8, 99)]  # type: ignore[arg-type]

    assert waits() == [400] * 6
    assert waits(cluster=RULES) == [400, 400, 700, 700, 1500, 1500]
    group = FlowRules(empties=((1, 10),))
    assert waits(group=group, cluster=RULES) == [10] * 6
    assert waits(cluster=RULES, escaped=True) == [2, 4, 8, 128, 256, 400], "at once, but not in a tight loop"


def test_the_pause_after_messages() -> None:
    assert wait_ms(200) == 0
    assert wait_ms(200, cluster=RULES) == 5
    assert wait_ms(200, cluster=RULES, filtered=True) == 100
    assert wait_ms(200, cluster=RULES, filtered=True, require_slow=True) == 400
    assert wait_ms(200, group=FlowRules(pauses_ms=(1, 2, 3)), cluster=RULES) == 1
    limit = RULES.limit(GIB + 1, 12 * 60)
    assert wait_ms(200, over=limit, min_limit_ms=-1) == 1000
    assert wait_ms(200, over=limit, min_limit_ms=3000) == 3000


@pytest.mark.parametrize(
    ("code", "given_ms", "wait"),
    [(452, 2000, 2000), (452, 0, 400), (452, -1, 400), (301, -1, 200), (400, -1, 300), (403, -1, 2000), (500, -1, 300),
     (503, -1, 300), (999, -1, 300)],
)  # fmt: skip
def test_the_wait_after_an_error(code: int, given_ms: int, wait: int) -> None:
    assert wait_ms(code, min_limit_ms=given_ms) == wait


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(["type", "rule", "start", "end", "dltInM", "limitInM", "freqInMs", "zeroCnt"]), each
            )
        ),
    )
)
def test_any_json_is_read_or_a_protocol_error(value: object) -> None:  # fmt: skip
    try:
        read_rules(json.dumps([{"type": kind, "rule": [value]} for kind in (0, 1, 3)]))
        read_rules(json.dumps(value))
    except ProtocolError:
        pass


@pytest.mark.parametrize("text", ["[", "{}x", '[{"type":0,"rule":[{"start":"25:00"}]}]', "[1]", "[" * 100_000])
def test_rules_of_another_form_are_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError, match="flow rules"):
        read_rules(text)


def test_each_code_has_a_remedy() -> None:
    assert [code for code in Code if remedy_of(code) is Remedy.NONE] == [Code.SUCCESS]
    assert {code for code in Code if remedy_of(code) is Remedy.FATAL} == {*range(424, 430), 431, 450, 455}
    assert {code for code in Code if remedy_of(code) is Remedy.DROP} == {401, 412}
    assert remedy_of(410) is Remedy.LEAVE
    assert remedy_of(411) is Remedy.REGISTER
    assert remedy_of(415) is Remedy.CREDENTIALS
    assert remedy_of(430) is remedy_of(550) is Remedy.WAIT
    assert (name_of(410), name_of(550)) == ("PARTITION_OCCUPIED (410)", "550")
    assert BrokerError(452, "slow").remedy is Remedy.SLOW_DOWN


def test_advice_follows_what_the_server_says() -> None:
    """Each code after which only a person can help has advice."""
    for code in Code:
        assert remedy_of(code) not in (Remedy.FATAL, Remedy.CREDENTIALS) or advice_of(code), code
    assert str(BrokerError(431, "no t")).startswith("TOPIC_NOT_DEPLOYED (431): no t (check the names in topics")
    assert str(BrokerError(411, "who?")) == "HB_NO_NODE (411): who?"
    assert (str(BrokerError(550, "")), advice_of(550)) == ("550", "")


@pytest.mark.parametrize(
    ("user", "password", "timestamp_ms", "nonce", "signed"),
    [
        ("user1", "pass1", 1700000000000, 12345, "ezYNMEmVJIQp3OnTX2RUSGhZcGA%3D"),
        ("alice", "s3cret+/=", 1735689600123, 2147483646, "xva5xZSMHxdrpMb773NboXPEYJ0%3D"),
    ],
)
def test_signatures_equal_those_of_the_java_library(
    user: str, password: str, timestamp_ms: int, nonce: int, signed: str
) -> None:
    assert signature(user, password, timestamp_ms, nonce) == signed
    credentials = Credentials(user, password)
    assert credentials.for_broker(timestamp_ms, nonce) == f"{user} {timestamp_ms} {nonce} {signed}"
    info = credentials.for_master(timestamp_ms, nonce).authInfo
    assert (info.userName, info.timestamp, info.nonce, info.signature) == (user, timestamp_ms, nonce, signed)
    assert info.IsInitialized()
    assert password not in repr(credentials)


def test_the_token_of_the_master_goes_before_that_of_the_credentials() -> None:
    token = VisitToken()
    assert token.for_broker() == pb.AuthorizedInfo(visitAuthorizedToken=UNDEFINED)
    token.store(pb.MasterAuthorizedInfo(visitAuthorizedToken=7))
    token.sign = lambda: "own"
    assert token.for_broker() == pb.AuthorizedInfo(visitAuthorizedToken=7, authAuthorizedToken="own")
    token.store(pb.MasterAuthorizedInfo(visitAuthorizedToken=8, authAuthorizedToken="given"))
    assert token.for_broker() == pb.AuthorizedInfo(visitAuthorizedToken=8, authAuthorizedToken="given")


def fetched(code: int = 200, messages: int = 1, offset: int = 0, nbytes: int = 0, **more: int) -> Fetched:
    values = {"max_offset": 0, "lag_bytes": 0, "min_limit_ms": -1} | more
    return Fetched(
        1, 0, 1, code, "", messages, offset, values["max_offset"], values["lag_bytes"], values["min_limit_ms"],
        False, False, nbytes, False,
    )  # fmt: skip


def test_a_partition_that_has_messages_is_asked_at_once() -> None:
    pace = Pace()
    pace.answered(fetched(), 10.0, 0.0)
    assert pace.due == 10.0


def test_a_broker_that_wants_no_wait_at_the_end_is_asked_soon() -> None:
    pace = Pace()
    pace.answered(replace(fetched(404, 0, -1), escaped=True), 1.0, 0.0)
    assert pace.due == 1.002


def test_a_broker_that_stands_still_is_asked_as_one_at_the_end() -> None:
    pace = Pace()
    pace.answered(fetched(messages=0, offset=28), 1.0, 0.0)
    assert pace.due == 1.0, "the broker has skipped the entries of other partitions"
    pace.answered(fetched(messages=0, offset=56), 1.0, 0.0)
    assert pace.due == 1.0
    pace.answered(fetched(messages=0, offset=56), 1.0, 0.0)
    assert pace.due == 1.4


def test_the_limit_of_the_brokers_is_obeyed() -> None:
    pace = Pace()
    pace.answered(fetched(452, 0, -1, min_limit_ms=2000), 1.0, 0.0)
    assert pace.due == 3.0
    pace.answered(fetched(452, 0, -1), 3.0, 0.0)
    assert pace.due == 3.4


def test_the_bytes_of_five_seconds_are_limited() -> None:
    """A limit of the group passes that of the brokers, which know only the one of the cluster."""
    window = (20 << 20) // 12
    for group, cluster, escape in ((RULES, NO_RULES, True), (NO_RULES, RULES, False)):
        pace = Pace()
        noon = (12 - 8) * 3600.0
        for now, nbytes, due in (
            (100.0, window - 1, 100.0),
            (101.0, 1, 102.0),
            (105.0, window - 1, 105.0),
            (106.0, 1, 107.0),
        ):
            pace.answered(fetched(nbytes=nbytes, lag_bytes=GIB + 1), now, noon, replaced(group), replaced(cluster))
            assert pace.due == due
            assert pace.escape == escape
        pace.answered(fetched(nbytes=window, lag_bytes=0), 107.0, noon, replaced(group), replaced(cluster))
        assert (pace.due, pace.escape) == (107.0, False)


def replaced(rules: FlowRules) -> FlowRules:
    """Leave out the pauses, which every response has."""
    return FlowRules(rules.limits, rules.empties)
