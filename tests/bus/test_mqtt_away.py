"""A sender with a journal that is gone may come back: the states of its messages are kept for it, for a while."""

from receivers import ALICE, Heard

from mas.bus.mqtt.frames import StateQuery
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.presence import PeerObserver, Peers, Presence
from mas.bus.mqtt.topics import Peer
from mas.testing.bus_suite import answer_to


class Watched(PeerObserver):
    """The processes of a space, a clock that the test moves, and what was told of processes."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.told: list[tuple[str, str]] = []
        self.peers = Peers(clock=lambda: self.time_s, options=MqttOptions(absent_s=5.0, max_processes=9))
        self.peers.observers = (self,)

    def peer_gone(self, peer: Peer, presence: Presence) -> None:
        self.told.append(("gone", peer.process))

    def peer_back(self, peer: Peer) -> None:
        self.told.append(("back", peer.process))

    def peer_forgotten(self, peer: Peer) -> None:
        self.told.append(("forgotten", peer.process))

    def peer_changed(self, peer: Peer, presence: Presence | None) -> None:
        self.told.append(("came" if presence else "went", peer.process))

    def at(self, time_s: float) -> list[tuple[str, str]]:
        """What is told by then."""
        self.time_s = time_s
        self.peers.give_up()
        told, self.told = self.told, []
        return told


def presence(away_s: float) -> Presence:
    return Presence(since=0.0, addresses={}, away_s=away_s)


def test_a_process_is_away_for_as_long_as_its_presence_says_and_a_day_at_most():
    watched = Watched()
    for process, away_s in (("stays", 0.0), ("short", 10.0), ("long", 1e9)):
        watched.peers.take(Peer("alice", process), presence(away_s))
        watched.peers.take(Peer("alice", process), None)
    watched.told.clear()
    assert [word for word in watched.at(5.0) if word[0] == "gone"] == [
        ("gone", "stays"),
        ("gone", "short"),
        ("gone", "long"),
    ]
    assert watched.at(14.9) == []
    assert watched.at(15.0) == [("forgotten", "short")]
    assert watched.at(86_404.9) == []
    assert watched.at(86_405.0) == [("forgotten", "long")]


def test_a_process_that_comes_back_in_time_is_not_forgotten():
    watched, peer = Watched(), Peer("alice", "p")
    watched.peers.take(peer, presence(10.0))
    watched.peers.take(peer, Presence(since=0.0, addresses={}, is_leaving=True, away_s=10.0))
    watched.at(9.0)
    watched.peers.take(peer, presence(10.0))
    assert watched.at(100.0) == [("came", "p"), ("back", "p")]


def test_what_others_said_while_this_process_stood_still_counts():
    watched, peer = Watched(), Peer("alice", "p")
    watched.peers.take(peer, presence(0.0))
    watched.peers.take(peer, None)
    watched.at(3.0)
    watched.time_s = 60.0
    watched.peers.stood_still(57.0)
    assert [word for word in watched.at(61.9) if word[0] == "gone"] == []
    assert [word for word in watched.at(62.0) if word[0] == "gone"] == [("gone", "p")]


async def test_what_became_of_an_absent_senders_messages_outlives_those_of_others():
    heard = Heard(remembered=2)
    async with heard.bus.subscribe("b") as inbox:
        heard.send("kept")
        inbox.done(await inbox.receive())
        await heard.brief_states()
        heard.receiver.peer_gone(ALICE, presence(10.0))
        for number in range(5):
            heard.receiver.query(Peer("bob", "q"), StateQuery("q", [(str(number), 1)]))
        heard.receiver.query(ALICE, StateQuery("p", [("kept", 1)]))
        assert ("kept", 1, "done") in await heard.brief_states()
        heard.receiver.peer_back(ALICE)
        heard.receiver.query(Peer("bob", "q"), StateQuery("q", [("5", 1)]))
        heard.receiver.query(ALICE, StateQuery("p", [("kept", 1)]))
        assert ("kept", 1, "done") in await heard.brief_states()


async def test_of_absent_senders_no_more_is_kept_than_of_present_ones():
    heard = Heard(remembered=2)
    heard.receiver.peer_gone(ALICE, presence(10.0))
    heard.receiver.query(ALICE, StateQuery("p", [(str(number), 1) for number in range(5)]))
    assert len(heard.receiver._messages) == 2
    heard.receiver.peer_forgotten(ALICE)
    assert heard.receiver._messages == {}


async def test_a_request_goes_on_while_its_sender_is_away_and_is_stopped_when_that_is_forgotten():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        for ticket in "12":
            heard.send(ticket, mode="request")
        first, second = await inbox.receive(), await inbox.receive()
        stopped: list[str] = []
        inbox.on_abandoned(second, lambda: stopped.append("2"))
        heard.receiver.peer_gone(ALICE, presence(10.0))
        await heard.bus.reply(first, answer_to(first))
        await heard.brief_states()
        heard.receiver.query(ALICE, StateQuery("p", [("1", 1)]))
        assert len(heard.said) == 2, "the answer, and again when it was queried for"
        assert stopped == []
        heard.receiver.peer_forgotten(ALICE)
        await heard.brief_states()
        assert stopped == ["2"]
        assert set(heard.receiver._finished) == {(ALICE, "2")}
