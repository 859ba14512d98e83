"""Topics keep every name apart, URLs say which process is where, and options and presences are checked."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions, parse_broker
from mas.bus.mqtt.presence import PeerObserver, Peers, Presence, read_presence
from mas.bus.mqtt.topics import Peer, Topics, share_group
from mas.core.errors import ConfigError, Malformed

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
hostile = st.one_of(names, st.text("/+#$%", min_size=1, max_size=6))


def test_topics_read_as_documented():
    topics = Topics(space="lab")
    peer = Peer("alice", "p/1")
    assert topics.to("team/solver", "alice") == "mas/lab/to/team%2Fsolver/alice"
    assert topics.listen("team/solver", None) == "$share/team%2Fsolver/mas/lab/to/team%2Fsolver/+"
    group = share_group("team/solver", "secret")
    assert topics.listen("team/solver", "secret") == f"$share/{group}/mas/lab/to/team%2Fsolver/+"
    assert topics.back(peer, "bob") == "mas/lab/back/alice/p%2F1/bob"
    assert topics.replies(peer) == "mas/lab/back/alice/p%2F1/+"
    assert topics.presence(peer) == "mas/lab/presence/alice/p%2F1"
    assert topics.presences == "mas/lab/presence/+/+"


@given(hostile, hostile, hostile, hostile)
def test_no_name_reaches_beyond_its_level_and_each_is_read_back(space, principal, process, sender):
    topics = Topics(space=space)
    peer = Peer(principal, process)
    for topic, levels in ((topics.back(peer, sender), 6), (topics.presence(peer), 5), (topics.to(process, sender), 5)):
        assert not set("+#$") & set(topic)
        assert len(topic.split("/")) == levels
    assert topics.arrival(topics.back(peer, sender)) == ("back", sender, process, "")
    assert topics.arrival(topics.presence(peer)) == ("presence", principal, process, "")
    assert topics.arrival(topics.to(process, sender)) == ("to", sender, "", process)


@pytest.mark.parametrize("topic", ["mas/other/to/a/b", "mas/lab/to/a", "mas/lab/back/a/b/c/d", "mas/lab/what/a/b", ""])
def test_other_topics_are_none_of_a_space(topic):
    assert Topics(space="lab").arrival(topic) is None


def test_a_url_says_where_and_as_whom(monkeypatch):
    monkeypatch.setenv("MAS_BUS_PASSWORD", "secret")
    broker = parse_broker("mqtt://al%40ice@broker.example/lab")
    assert (broker.host, broker.port, broker.principal, broker.space) == ("broker.example", 1883, "al@ice", "lab")
    assert (broker.password, broker.tls) == ("secret", None)
    assert "secret" not in repr(broker)


def test_mqtts_means_tls_with_verified_certificates(monkeypatch):
    monkeypatch.delenv("MAS_BUS_PASSWORD", raising=False)
    broker = parse_broker("mqtts://alice@broker.example/lab")
    assert (broker.port, broker.password) == (8883, None)
    assert broker.tls is not None
    assert broker.tls.verify_mode is ssl.CERT_REQUIRED
    assert broker.tls.check_hostname


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://alice@h/lab", "begins with 'http'"),
        ("mqtt:///lab", "names no host"),
        ("mqtt://h/lab", "names no user"),
        ("mqtt://alice@h", "needs one space"),
        ("mqtt://alice@h/lab/more", "needs one space"),
        ("mqtt://alice@h:port/lab", "is none"),
        ("mqtt://alice@h/lab?tls=1", "has a query"),
        ("mqtt://alice:secret@h/lab", "holds a password.*MAS_BUS_PASSWORD"),
        ("mqtt://relay/planner:secret@h/lab", "holds a password.*MAS_BUS_PASSWORD"),
        ("mqtt://relay/planner@h", "needs one space"),
    ],
)
def test_a_wrong_url_is_one_clear_error(url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_broker(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("user", ["relay%2Fplanner", "relay/planner"])
def test_a_slash_in_the_users_name_is_understood_with_and_without_escape(user):
    broker = parse_broker(f"mqtt://{user}@bus.lan:1884/lab")
    assert (broker.principal, broker.host, broker.port, broker.space) == ("relay/planner", "bus.lan", 1884, "lab")


def test_a_file_of_certificates_must_be_one_and_be_of_use(tmp_path: Path):
    with pytest.raises(ConfigError, match="does nothing with mqtt://"):
        parse_broker("mqtt://alice@h/lab", ca_file=tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match="cannot be used"):
        parse_broker("mqtts://alice@h/lab", ca_file=tmp_path / "missing.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot be used"):
        parse_broker("mqtts://alice@h/lab", ca_file=tmp_path / "ca.pem")


@pytest.mark.parametrize("wrong", [{"outbox": 0}, {"ack_s": -1.0}, {"absent_s": float("nan")}, {"keepalive_s": 0}])
def test_an_option_that_cannot_be_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"{name} is .*above 0"):
        MqttOptions(**wrong)


async def test_two_buses_of_one_process_have_names_of_their_own():
    first, second = (MqttBus.connect("mqtt://alice@h/lab") for _ in range(2))
    assert first.me != second.me
    assert MqttBus.connect("mqtt://alice@h/lab", process="one").me == Peer("alice", "one")


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"since": 1}', b'{"since": 1, "addresses": {"a": 1}}', b"\xff"])
def test_what_is_no_presence_is_refused(payload):
    with pytest.raises(Malformed, match="not a presence"):
        read_presence(payload)


class Watched(PeerObserver):
    """Peers with a clock that the test moves, and who went."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.went: list[Peer] = []
        self.peers = Peers(clock=lambda: self.time_s, options=MqttOptions(absent_s=5.0))
        self.peers.observers = (self,)

    def peer_gone(self, peer: Peer, presence: Presence) -> None:
        self.went.append(peer)


ALICE = Peer("alice", "p")
PRESENCE = Presence(since=0.0, addresses={"solver": "solver"})


def test_a_process_that_leaves_is_gone_at_once():
    watched = Watched()
    watched.peers.take(ALICE, PRESENCE)
    assert watched.peers.listeners("solver") == [ALICE]
    watched.peers.take(ALICE, Presence(since=0.0, addresses={}, is_leaving=True))
    watched.peers.take(ALICE, None)
    assert watched.peers.listeners("solver") == []
    assert watched.went == [ALICE]


def test_a_process_that_vanishes_is_gone_after_a_while_unless_it_shows():
    watched = Watched()
    watched.peers.take(ALICE, PRESENCE)
    watched.peers.take(ALICE, None)
    watched.time_s = 4.9
    watched.peers.give_up()
    assert watched.peers.suspects == (ALICE,)
    watched.peers.seen(ALICE)
    watched.time_s = 20.0
    watched.peers.give_up()
    assert watched.went == []
    watched.peers.suspect(ALICE)
    watched.time_s = 24.0
    watched.peers.suspect(ALICE)
    watched.time_s = 25.0
    watched.peers.give_up()
    assert watched.went == [ALICE], "five seconds after it was suspected first"


def test_after_a_reconnection_everybody_has_the_whole_while():
    watched = Watched()
    watched.peers.take(ALICE, PRESENCE)
    watched.peers.suspect(ALICE)
    watched.time_s = 4.0
    watched.peers.suspect_all()
    watched.time_s = 8.0
    watched.peers.give_up()
    assert watched.went == []
