"""Sessions, futures, retries and limits of the server, with the real SDK and with requests by hand."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker_server_thread import RunningTinker, running_tinker

from mas.core.errors import RefusedRequest
from mas.serving.model import BaseModel
from mas.tinker.futures import Futures, OrderedTurns

PROTO = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def http(server: RunningTinker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.address}/api/v1") as found:
        yield found


def session_of(http: httpx.Client) -> str:
    answer = http.post("/create_session", json={"tags": [], "user_metadata": None, "sdk_version": "0.38.0"})
    return str(answer.json()["session_id"])


def fetched(http: httpx.Client, key: str, accept: str = "application/json") -> httpx.Response:
    for _ in range(20):
        answer = http.post("/retrieve_future", json={"request_id": key}, headers={"Accept": accept}, timeout=60)
        if accept != "application/json" or answer.json().get("type") != "try_again":
            return answer
    raise AssertionError(key)


def model_of(http: httpx.Client, base: str, session: str, number: int = 0) -> str:
    asked = {"session_id": session, "model_seq_id": number, "base_model": base, "lora_config": {"rank": 2, "seed": 1}}
    key = http.post("/create_model", json=asked).json()["request_id"]
    return str(fetched(http, key).json()["model_id"])


def batch(model: str, number: int, token: int = 5) -> bytes:
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([3, 4]),
        loss_fn_inputs={"target_tokens": [4, token], "weights": [1.0, 1.0]},  # type: ignore[dict-item]
    )
    given = types.ForwardBackwardInput(data=[datum], loss_fn="cross_entropy")
    request = types.ForwardBackwardRequest(forward_backward_input=given, model_id=model, seq_id=number)
    return forward_backward_request_to_proto(request).SerializeToString()


def loss_of(answer: httpx.Response) -> float:
    message = pb.ForwardBackwardOutput()
    message.ParseFromString(answer.content)
    return float(message.metrics["loss:sum"])


def test_the_server_says_what_it_has_and_that_it_is_well(server: RunningTinker, base: BaseModel) -> None:
    rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
    models = rest.get_server_capabilities().result().supported_models
    assert [one.model_name for one in models] == [server.base, "tiny"]
    assert {one.max_context_length for one in models} == {base.limits.context}
    assert httpx.get(f"{server.address}/api/v1/healthz").json() == {"status": "ok"}


def test_telemetry_is_taken_and_dropped(
    server: RunningTinker, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Even its secrets: nothing of it is logged or kept."""
    caplog.set_level(logging.DEBUG, "mas")
    events = [{"event": "GENERIC_EVENT", "event_data": {"text": "s3cret"}}]
    answer = http.post("/telemetry", json={"events": events, "platform": "x", "sdk_version": "1", "session_id": "y"})
    assert answer.json() == {"status": "accepted"}
    assert "s3cret" not in caplog.text
    assert list(server.service.folder.directory.rglob("*s3cret*")) == []


def test_a_session_lives_by_its_heartbeats_and_ends_with_all_that_it_has(base: BaseModel, tmp_path: Path) -> None:
    """Its client says that it is over, or gives no sign for long."""
    with (
        running_tinker(base, tmp_path, idle_s=3600.0) as server,
        httpx.Client(base_url=f"{server.address}/api/v1") as http,
    ):
        service, now = server.service, [0.0]
        service.sessions._now = lambda: now[0]
        quiet, lively = session_of(http), session_of(http)
        for session in (quiet, lively):
            model_of(http, server.base, session)
        now[0] = 3000.0
        assert http.post("/session_heartbeat", json={"session_id": lively}).status_code == 200
        now[0] = 4000.0
        third = session_of(http)
        assert {model.owner for model in service.training.models.values()} == {lively}
        assert http.post("/session_heartbeat", json={"session_id": quiet}).status_code == 410
        assert http.post("/session_heartbeat", json={"session_id": "nobody"}).status_code == 404
        done = http.post(f"/sessions/{lively}/finish", json={"reason": {"type": "success"}, "detail": None})
        assert done.status_code == 200
        assert service.training.models == {}
        late = http.post("/forward_backward", content=batch(f"{lively}:train:0", 1), headers=PROTO)
        assert late.status_code == 404
        assert http.post("/session_heartbeat", json={"session_id": third}).status_code == 200


def test_an_answer_that_is_not_there_yet_is_asked_for_again(base: BaseModel, tmp_path: Path) -> None:
    """The SDK polls until it comes; by hand one sees `try_again`."""
    with (
        running_tinker(base, tmp_path, poll_s=0.05) as server,
        httpx.Client(base_url=f"{server.address}/api/v1") as http,
        server.client() as client,
    ):
        gate = threading.Event()
        server.service.base._thread.submit(gate.wait, 60)
        asked = {"session_id": session_of(http), "model_seq_id": 0, "base_model": "tiny", "lora_config": {"rank": 2}}
        key = http.post("/create_model", json=asked).json()["request_id"]
        waiting = client.create_lora_training_client("tiny", rank=2)
        pending = http.post("/retrieve_future", json={"request_id": key}).json()
        assert pending == {"type": "try_again", "request_id": key, "queue_state": "active"}
        gate.set()
        assert fetched(http, key).json()["type"] == "create_model"
        assert waiting.result().get_info().lora_rank == 2
        gone = http.post("/retrieve_future", json={"request_id": "nothing"})
        assert gone.status_code == 410


def test_a_request_that_is_sent_again_is_carried_out_once(server: RunningTinker, http: httpx.Client) -> None:
    """Creations, data and steps: the answer is that of the first, and the weights change once."""
    session = session_of(http)
    model = model_of(http, server.base, session)
    assert model_of(http, server.base, session) == model
    adapter = server.service.training.models[model].adapter
    first = http.post("/forward_backward", content=batch(model, 1), headers=PROTO).json()["request_id"]
    again = http.post("/forward_backward", content=batch(model, 1), headers=PROTO).json()["request_id"]
    assert first == again
    assert loss_of(fetched(http, first, PROTO["Content-Type"])) == loss_of(fetched(http, again, PROTO["Content-Type"]))
    other = http.post("/forward_backward", content=batch(model, 1, token=9), headers=PROTO)
    assert other.status_code == 400
    assert "another request was sent as" in other.json()["detail"]
    step = {"model_id": model, "seq_id": 2, "adam_params": {"learning_rate": 0.1}}
    keys = {http.post("/optim_step", json=step).json()["request_id"] for _ in range(3)}
    assert len(keys) == 1
    assert "grad_norm" in fetched(http, keys.pop()).json()["metrics"]
    assert adapter.steps == 1
    sampling = {"session_id": session, "sampling_session_seq_id": 0, "base_model": server.base}
    names = {http.post("/create_sampling_session", json=sampling).json()["sampling_session_id"] for _ in range(2)}
    assert len(names) == 1
    asked = {
        "sampling_session_id": names.pop(),
        "seq_id": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [3, 4]}]},
        "sampling_params": {"max_tokens": 6},
    }
    futures = [http.post("/asample", json=asked).json() for _ in range(2)]
    assert futures[0] == futures[1]
    answers = [fetched(http, futures[0]["request_id"], PROTO["Content-Type"]).content for _ in range(2)]
    assert answers[0] == answers[1]  # unseeded: drawn twice they would differ


def test_a_sampling_session_stays_what_it_was_made_of(server: RunningTinker, http: httpx.Client) -> None:
    session, samplers = session_of(http), server.service.samplers
    model, open_ = model_of(http, server.base, session), server.service.sampling.get

    def saved(number: int, **more: Any) -> dict[str, Any]:
        asked = {"model_id": model, "seq_id": number, **more}
        found: dict[str, Any] = fetched(
            http, http.post("/save_weights_for_sampler", json=asked).json()["request_id"]
        ).json()
        return found

    name = saved(1, sampling_session_seq_id=1)["sampling_session_id"]
    target, version = open_(name).target, open_(name).target.version
    assert "is open already" in saved(2, sampling_session_seq_id=1, kind="inflight")["error"]
    asked = {"session_id": session, "sampling_session_seq_id": 1, "base_model": server.base}
    assert "made of something else" in http.post("/create_sampling_session", json=asked).json()["detail"]
    assert (open_(name).target, target.version) == (target, version)
    asked |= {"sampling_session_seq_id": 2, "model_path": saved(3, path="first")["path"]}
    before = len(samplers._held)
    with ThreadPoolExecutor(4) as pool:  # the SDK sends it again where the answer takes long
        answers = list(pool.map(lambda _: http.post("/create_sampling_session", json=asked).json(), range(4)))
    assert {answer["sampling_session_id"] for answer in answers} == {f"{session}:sample:2"}
    assert len(samplers._held) == before + 1


def test_requests_of_a_model_are_carried_out_in_the_order_of_their_numbers(
    server: RunningTinker, http: httpx.Client
) -> None:
    model = model_of(http, server.base, session_of(http))
    step = {"model_id": model, "seq_id": 3, "adam_params": {"learning_rate": 0.1}}
    last = http.post("/optim_step", json=step).json()["request_id"]
    second = http.post("/forward_backward", content=batch(model, 2), headers=PROTO).json()["request_id"]
    assert server.service.training.models[model].adapter.steps == 0
    first = http.post("/forward_backward", content=batch(model, 1), headers=PROTO).json()["request_id"]
    losses = [loss_of(fetched(http, key, PROTO["Content-Type"])) for key in (first, second)]
    assert losses[0] == losses[1]
    assert "metrics" in fetched(http, last).json()
    again = http.post("/optim_step", json={**step, "seq_id": 0})
    assert again.status_code == 400


def test_a_model_that_is_unloaded_frees_its_memory_and_a_place(base: BaseModel, tmp_path: Path) -> None:
    with (
        running_tinker(base, tmp_path, models=1) as server,
        httpx.Client(base_url=f"{server.address}/api/v1") as http,
    ):
        session = session_of(http)
        model = model_of(http, server.base, session)
        waits = http.post("/optim_step", json={"model_id": model, "seq_id": 2, "adam_params": {}}).json()["request_id"]
        asked = {"session_id": session, "model_seq_id": 1, "base_model": "tiny", "lora_config": {"rank": 2}}
        refused = fetched(http, http.post("/create_model", json=asked).json()["request_id"]).json()
        assert "1 models are trained here, and no more are possible" in refused["error"]
        assert refused["category"] == "user"
        for _ in range(2):
            key = http.post("/unload_model", json={"model_id": model}).json()["request_id"]
            assert fetched(http, key).json() == {"type": "unload_model", "model_id": model}
        assert server.service.training.models == {}
        assert "was unloaded" in fetched(http, waits).json()["error"]
        assert http.post("/get_info", json={"model_id": model}).status_code == 404
        assert model_of(http, server.base, session, number=2)


def test_the_key_is_needed_and_other_hosts_and_pages_are_refused(base: BaseModel, tmp_path: Path) -> None:
    with running_tinker(base, tmp_path, key="tml-s3cret") as server:
        with server.client(key="tml-s3cret") as client:
            assert client.create_sampling_client(base_model="tiny").result()
        with pytest.raises(tinker.AuthenticationError, match="this server needs its key"):
            tinker.RestClient(base_url=server.address, api_key="tml-wrong").get_server_capabilities().result()
        with httpx.Client(base_url=server.address) as http:
            where = "/api/v1/get_server_capabilities"
            assert http.get(where).status_code == 401
            assert http.get(where, headers={"Authorization": "Bearer tml-s3cret"}).status_code == 200
            assert http.get(where, headers={"X-API-Key": "tml-s3cret", "Host": "evil.example"}).status_code == 421
            assert (
                http.get(where, headers={"X-API-Key": "tml-s3cret", "Origin": "http://evil.example"}).status_code == 403
            )
            assert http.get("/api/v1/healthz").status_code == 200


def test_hostile_bodies_are_refused_and_the_server_goes_on(server: RunningTinker, http: httpx.Client) -> None:
    model = model_of(http, server.base, session_of(http))
    deep = b"[" * 100_000
    for path, content, headers, status in (
        ("/forward_backward", b"\xff\xff\xff", PROTO, 400),
        ("/forward_backward", b"{}", {"Content-Type": "application/json"}, 415),
        ("/forward_backward", batch(model, 1), {**PROTO, "Content-Encoding": "zstd"}, 415),
        ("/forward_backward", b"x" * (33 * 2**20), PROTO, 413),
        ("/forward_backward", batch(model, 0), PROTO, 400),
        ("/forward_backward", batch("nobody", 1), PROTO, 404),
        ("/optim_step", deep, {"Content-Type": "application/json"}, 400),
        ("/optim_step", b'{"model_id": 3}', {"Content-Type": "application/json"}, 400),
        ("/asample", b"{}", {"Content-Type": "application/json"}, 400),
        ("/nothing", b"{}", {"Content-Type": "application/json"}, 404),
        ("/create_custom_loss", b"{}", {"Content-Type": "application/json"}, 404),
    ):
        answer = http.post(path, content=content, headers=headers)
        assert answer.status_code == status, (path, answer.text[:200])
        assert answer.json()["detail"]
    request = pb.ForwardBackwardRequest(model_id=model, seq_id=1, loss_fn="cross_entropy")
    tensors: list[Any] = [
        pb.Tensor(dtype=pb.DTYPE_INT64, dense=b"abc"),
        pb.Tensor(dtype=pb.DTYPE_INT64, dense=b"x" * 8, shape=[2**40, 2**40]),
        pb.Tensor(dtype=pb.DTYPE_INT64, dense=b"x" * 8, shape=[-1]),
        pb.Tensor(dtype=pb.DTYPE_BFLOAT16, dense=b"x" * 8),
        pb.Tensor(dtype=pb.DTYPE_FLOAT32, dense=b"x" * 8, shape=[2]),
        pb.Tensor(dtype=pb.DTYPE_INT64, shape=[2**31, 2**31], sparse_csr=pb.SparseCsr()),
        pb.Tensor(
            dtype=pb.DTYPE_INT64,
            shape=[1, 2],
            sparse_csr=pb.SparseCsr(values=b"x" * 8, crow_indices=(0).to_bytes(8, "little") + (1).to_bytes(8, "little"),
                                    col_indices=(7).to_bytes(8, "little")),
        ),
    ]  # fmt: skip
    for number, tensor in enumerate(tensors, 1):
        request.seq_id = number
        del request.data[:]
        datum = request.data.add()
        datum.model_input.add().encoded_text.tokens = (3).to_bytes(4, "little")
        datum.loss_fn_inputs["target_tokens"].CopyFrom(tensor)
        key = http.post("/forward_backward", content=request.SerializeToString(), headers=PROTO).json()["request_id"]
        failed = fetched(http, key).json()
        assert failed["category"] == "user", failed
    good = http.post("/forward_backward", content=batch(model, len(tensors) + 1), headers=PROTO).json()["request_id"]
    assert loss_of(fetched(http, good, PROTO["Content-Type"])) > 0


def test_a_batch_that_is_too_large_or_of_another_kind_fails_in_its_turn(
    server: RunningTinker, http: httpx.Client
) -> None:
    """It is answered, the queue of its model goes on, and the step that it belonged to is not made of the rest."""
    model = model_of(http, server.base, session_of(http))
    large = pb.ForwardBackwardRequest(model_id=model, seq_id=2, loss_fn="cross_entropy")
    large.data.add().model_input.add().encoded_text.tokens = bytes(33 * 2**20)
    json_like = {"model_id": model, "seq_id": 4}

    def unsized(content: bytes) -> Iterator[bytes]:
        for begin in range(0, len(content), 2**20):
            yield content[begin : begin + 2**20]

    def ends(number: int, sent: httpx.Response, said: str) -> None:
        step = {"model_id": model, "seq_id": number + 1, "adam_params": {"learning_rate": 0.1}}
        last = http.post("/optim_step", json=step).json()["request_id"]
        assert said in fetched(http, sent.json()["request_id"]).json()["error"]
        assert "no step was made" in fetched(http, last).json()["error"]

    http.post("/forward_backward", content=batch(model, 1), headers=PROTO)
    ends(
        2, http.post("/forward_backward", content=large.SerializeToString(), headers=PROTO), "more than 33554432 bytes"
    )
    ends(4, http.post("/forward_backward", json=json_like), "Content-Type must be application/x-protobuf")
    large.seq_id = 6
    chunked = http.post("/forward_backward", content=unsized(large.SerializeToString()), headers=PROTO)
    ends(6, chunked, "more than 33554432 bytes")
    torn = pb.ForwardBackwardRequest(model_id=model, seq_id=8).SerializeToString() + b"\xff\xff"
    ends(8, http.post("/forward_backward", content=torn, headers=PROTO), "no ForwardBackwardRequest")
    adapter = server.service.training.models[model].adapter
    assert adapter.steps == 0
    good = http.post("/forward_backward", content=batch(model, 10), headers=PROTO).json()["request_id"]
    assert loss_of(fetched(http, good, PROTO["Content-Type"])) > 0


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"type": "dimuon", "learning_rate": 0.1}, "trained by AdamW, not by"),
        ({"learning_rate": -1.0}, "lr is -1"),
        ({"learning_rate": "much"}, "learning_rate"),
    ],
)
def test_a_refused_step_drops_the_gradient_whatever_it_is_refused_for(
    server: RunningTinker, http: httpx.Client, params: dict[str, Any], said: str
) -> None:
    """The step after it learns from its own data alone."""
    model = model_of(http, server.base, session_of(http))
    http.post("/forward_backward", content=batch(model, 1), headers=PROTO)
    refused = http.post("/optim_step", json={"model_id": model, "seq_id": 2, "adam_params": params})
    assert said in fetched(http, refused.json()["request_id"]).json()["error"]
    step = {"model_id": model, "seq_id": 3, "adam_params": {"learning_rate": 0.1}}
    empty = http.post("/optim_step", json=step).json()["request_id"]
    assert "no gradient: send forward_backward" in fetched(http, empty).json()["error"]


def test_the_request_that_all_others_wait_for_is_let_in_however_many_wait(
    server: RunningTinker, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(http, server.base, session_of(http))
    monkeypatch.setattr("mas.tinker.training._MOST_WAITING", 2)
    keys = [
        http.post("/forward_backward", content=batch(model, number), headers=PROTO).json()["request_id"]
        for number in (2, 3)
    ]
    assert http.post("/forward_backward", content=batch(model, 4), headers=PROTO).status_code == 429
    assert http.post("/forward_backward", content=batch(model, 3), headers=PROTO).json()["request_id"] == keys[1]
    monkeypatch.setattr("mas.tinker.futures.MOST_PENDING", 2)
    assert http.post("/forward_backward", content=batch(model, 1), headers=PROTO).status_code == 200
    for key in keys:
        assert loss_of(fetched(http, key, PROTO["Content-Type"])) > 0
    assert http.post("/forward_backward", content=batch(model, 4), headers=PROTO).status_code == 200


def test_a_sample_that_nobody_waits_for_is_stopped(server: RunningTinker, http: httpx.Client) -> None:
    session = session_of(http)
    asked = {"session_id": session, "sampling_session_seq_id": 0, "base_model": "tiny"}
    name = http.post("/create_sampling_session", json=asked).json()["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [3, 4]}]}
    long = {"sampling_session_id": name, "seq_id": 1, "num_samples": 900, "prompt": prompt}
    key = http.post("/asample", json={**long, "sampling_params": {"stop": []}}).json()["request_id"]
    assert http.post("/cancel_future", json={"request_id": key}).status_code == 200
    assert "was stopped" in fetched(http, key).json()["error"]


def test_clients_that_wait_are_told_when_the_server_ends(base: BaseModel, tmp_path: Path) -> None:
    found: list[httpx.Response] = []
    with running_tinker(base, tmp_path) as server:
        address = f"{server.address}/api/v1"
        with httpx.Client(base_url=address) as http:
            model = model_of(http, server.base, session_of(http))
            asked = {"model_id": model, "seq_id": 2, "adam_params": {}}
            key = http.post("/optim_step", json=asked).json()["request_id"]

        def ask() -> None:
            found.append(httpx.post(f"{address}/retrieve_future", json={"request_id": key}, timeout=60))

        asking = threading.Thread(target=ask, name="asks")
        asking.start()
        while server.service.futures.fetching == 0:
            time.sleep(0.01)
        began = time.monotonic()
    asking.join(30)
    assert time.monotonic() - began < 15
    assert "was stopped" in found[0].json()["error"]


async def test_old_answers_are_dropped_and_what_is_under_way_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.tinker.futures.MOST_KEPT_BYTES", 100)
    futures, gate = Futures(), asyncio.Event()

    async def slow() -> bytes:
        await gate.wait()
        return b"slow"

    async def large() -> bytes:
        return b"x" * 60

    futures.begin("slow", b"", slow)
    for number in range(3):
        futures.begin(f"large{number}", b"", large)
        await futures.fetch(f"large{number}", 5)
    gate.set()
    assert await futures.fetch("slow", 5) == b"slow"
    assert await futures.fetch("large2", 5) == b"x" * 60
    with pytest.raises(Exception, match="may have been dropped"):
        await futures.fetch("large0", 5)
    await futures.close()


async def test_turns_come_in_order_and_end_with_an_error() -> None:
    turns, seen = OrderedTurns(1), list[int]()

    async def one(number: int) -> None:
        await turns.begin(number)
        seen.append(number)
        turns.end()

    tasks = [asyncio.create_task(one(number)) for number in (3, 2, 1)]
    await asyncio.gather(*tasks)
    assert seen == [1, 2, 3]
    with pytest.raises(RefusedRequest, match="was carried out before, and 4 comes next"):
        await turns.begin(2)
    late = asyncio.create_task(turns.begin(9))
    await asyncio.sleep(0)
    turns.close("model m was unloaded")
    with pytest.raises(RefusedRequest, match="was unloaded"):
        await late
    with pytest.raises(RefusedRequest, match="was unloaded"):
        await turns.begin(4)
