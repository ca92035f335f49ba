import time, pytest
from tests.crash.feed import Feed
from tests.real.raw import _CursorConnection
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.command import encode_command
B=pb.BaseCommand
@pytest.mark.parametrize("kind",["Failover","Exclusive","Shared"])
@pytest.mark.parametrize("wait",[0,1.0])
@pytest.mark.parametrize("created",[False,True])
def test_x(plain_pulsar, fresh_name, kind, wait, created):
    t="persistent://public/default/"+fresh_name("raw")
    plain_pulsar.admin.create_topic(t)
    Feed(plain_pulsar.service_url,t).add(15)
    if created: plain_pulsar.admin.create_subscription(t,"s")
    c=_CursorConnection(plain_pulsar.service_url,t,"s",kind,None)
    c._ask(B(type=B.SUBSCRIBE,subscribe=pb.CommandSubscribe(topic=t,subscription="s",consumer_id=1,request_id=10,consumer_name="x",subType=kind,initialPosition=pb.CommandSubscribe.Earliest)),B.SUCCESS)
    a=c._ask(B(type=B.GET_LAST_MESSAGE_ID,getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1,request_id=11)),B.GET_LAST_MESSAGE_ID_RESPONSE).getLastMessageIdResponse
    time.sleep(wait)
    ack=pb.CommandAck(consumer_id=1,ack_type=pb.CommandAck.Individual if kind=="Shared" else pb.CommandAck.Cumulative,request_id=12)
    ack.message_id.add(ledgerId=a.last_message_id.ledgerId,entryId=a.last_message_id.entryId)
    r=c._ask(B(type=B.ACK,ack=ack),B.ACK_RESPONSE)
    c._ask(B(type=B.CLOSE_CONSUMER,close_consumer=pb.CommandCloseConsumer(consumer_id=1,request_id=13)),B.SUCCESS)
    c.__exit__(None,None,None)
    print("RESULT",kind,wait,created,"backlog",plain_pulsar.admin.backlog(t,"s"),r.ackResponse.error if r.ackResponse.HasField("error") else "", plain_pulsar.admin.mark_deleted(t,"s"))
