"""The protocol buffers of the Tinker API, as the SDK sends and reads them.

Shape legend: T tokens of a datum, K targets at each place.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from mas.core.engine import Generation
from mas.core.errors import RefusedRequest
from mas.endpoint.errors import Refused
from mas.training.client_adapter import ClientDatum, ClientLossOutput

PROTOBUF = "application/x-protobuf"
_MODEL_ID, _SEQ_ID = b"\x0a", b"\x10"
"""What the first two fields of a ForwardBackwardRequest begin with."""
_DTYPES: Mapping[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_INT32: np.dtype("<i4"),
}
_MOST_DENSE = 2**26
"""Numbers of all tensors of a request that are sent sparse, written out."""
_EMPTY_LOGPROB = -99999.0
"""In a cell of the most likely tokens that there is none for."""
RequestT = TypeVar("RequestT", bound=BaseModel)
Array = NDArray[np.generic]


def read_json(kind: type[RequestT], body: bytes) -> RequestT:
    """A request of the SDK's types.

    Raises:
        Refused: it is none; says which field is wrong.
    """
    try:
        return kind.model_validate_json(body)
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise Refused(400, "the request nests too deeply") from None
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"]))
        raise Refused(400, f"{place + ': ' if place else ''}{detail['msg']}", param=place or None) from None


def owner_of(body: bytes) -> tuple[str, int] | None:
    """The model and the number of a request, of JSON or of the beginning of a `ForwardBackwardRequest`, whose first
    fields they are; None: it cannot be seen."""
    try:
        if body[:1] == _MODEL_ID:
            length, at = _varint(body, 1)
            name, at = body[at : at + length].decode(), at + length
            return (name, _varint(body, at + 1)[0]) if body[at : at + 1] == _SEQ_ID else None
        given = json.loads(body)
    except (ValueError, IndexError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    model, number = given.get("model_id"), given.get("seq_id")
    return (model, number) if isinstance(model, str) and isinstance(number, int) else None


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number as protocol buffers write it, and where it ends."""
    value = shift = 0
    while True:
        value |= (body[at] & 127) << shift
        if body[at] < 128 or shift > 63:
            return value, at + 1
        at, shift = at + 1, shift + 7


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """A request of `forward_backward` whose data are read when it has its turn."""

    message: pb.ForwardBackwardRequest

    @classmethod
    def read(cls, body: bytes) -> "ForwardBackward":
        """Raises Refused for what is no such request."""
        message = pb.ForwardBackwardRequest()
        try:
            message.ParseFromString(body)
        except DecodeError:
            raise Refused(400, "the body is no ForwardBackwardRequest of tinker's protocol buffers") from None
        return cls(message)

    @property
    def config(self) -> Mapping[str, float | str]:
        """The settings of the loss, by name."""
        if self.message.loss_fn_config_v2:
            return {
                name: value.text if value.HasField("text") else value.number
                for name, value in self.message.loss_fn_config_v2.items()
            }
        return dict(self.message.loss_fn_config)

    def data(self) -> list[ClientDatum]:
        """Raises RefusedRequest for tensors that cannot be read, or are too large when they are written out."""
        inputs = (one for datum in self.message.data for one in datum.loss_fn_inputs.values())
        shapes = [[*one.shape] for one in inputs if one.HasField("sparse_csr")]
        if sum(math.prod(shape) for shape in shapes if min(shape, default=0) >= 0) > _MOST_DENSE:
            raise RefusedRequest(f"sparse tensors are {_MOST_DENSE:,} numbers at most when they are written out")
        return [_datum(number, datum) for number, datum in enumerate(self.message.data)]


def _datum(number: int, message: pb.Datum) -> ClientDatum:
    where = f"datum {number}"
    tokens: list[Array] = []
    for chunk in message.model_input:
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise RefusedRequest(f"{where} has a chunk {kind!r}; this server reads tokens alone (encoded_text)")
        tokens.append(_numbers(chunk.encoded_text.tokens, np.dtype("<i4"), where))
    found = {name: _tensor(one, f"{where}, {name}") for name, one in message.loss_fn_inputs.items()}
    targets = found.pop("target_tokens", None)
    if targets is None:
        raise RefusedRequest(f"{where} has no target_tokens in loss_fn_inputs")
    if targets.dtype.kind != "i":
        raise RefusedRequest(f"{where}: target_tokens are {targets.dtype}; whole numbers are needed")
    return ClientDatum(
        tokens=np.concatenate([np.empty(0, np.int64), *tokens]).astype(np.int64),
        targets=targets.astype(np.int64),
        inputs={name: one.astype(np.float32) for name, one in found.items()},
    )


def _numbers(content: bytes, dtype: np.dtype[np.generic], where: str) -> Array:
    if len(content) % dtype.itemsize:
        raise RefusedRequest(f"{where}: {len(content)} bytes are no whole number of {dtype}")
    return np.frombuffer(content, dtype)


def _tensor(message: pb.Tensor, where: str) -> Array:
    """One tensor, written out where it comes sparse: what is not listed is 0."""
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise RefusedRequest(f"{where}: numbers of kind {message.dtype}; float32, int64 and int32 can be read")
    shape = tuple(message.shape)
    if any(size < 0 for size in shape):
        raise RefusedRequest(f"{where}: the shape {[*shape]} is impossible")
    if not message.HasField("sparse_csr"):
        flat = _numbers(message.dense, dtype, where)
        if shape and int(np.prod(shape, dtype=object)) != flat.size:
            raise RefusedRequest(f"{where}: {flat.size} numbers have not the shape {[*shape]}")
        return flat.reshape(shape or (flat.size,))
    sparse = message.sparse_csr
    values = _numbers(sparse.values, dtype, where)
    rows, columns = (_numbers(one, np.dtype("<i8"), where) for one in (sparse.crow_indices, sparse.col_indices))
    counts = np.diff(rows)
    is_whole = len(shape) == 2 and shape[0] * shape[1] <= _MOST_DENSE and len(rows) == shape[0] + 1
    if not is_whole or rows[0] != 0 or (counts < 0).any() or not (rows[-1] == len(values) == len(columns)):
        raise RefusedRequest(f"{where}: its rows do not fit its shape {[*shape]}")
    if len(columns) and not (columns.min() >= 0 and columns.max() < shape[1]):
        raise RefusedRequest(f"{where}: a column is outside 0 to {shape[1] - 1}")
    dense: Array = np.zeros(shape, dtype)
    dense[np.repeat(np.arange(shape[0]), counts), columns] = values
    return dense


def forward_backward_bytes(output: ClientLossOutput) -> bytes:
    """What the SDK reads as ForwardBackwardOutput. Data whose targets have different K are records of their own."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics={"loss:sum": output.loss})
    begin = 0
    while begin < len(output.logprobs):
        trailing = output.logprobs[begin].shape[1:]
        end = begin
        while end < len(output.logprobs) and output.logprobs[end].shape[1:] == trailing:
            end += 1
        arrays = output.logprobs[begin:end]
        offsets = np.cumsum([0, *(4 * one.size for one in arrays)], dtype=np.int64)
        record = message.loss_fn_outputs.add(num_datums=len(arrays))
        field = record.fields["logprobs"]
        field.data = b"".join(one.astype("<f4").tobytes() for one in arrays)
        field.offsets, field.dtype = offsets.tobytes(), pb.DTYPE_FLOAT32
        field.trailing_shape.extend(trailing)
        begin = end
    return bytes(message.SerializeToString())


Alternatives = Sequence[Sequence[tuple[int, float]]]


def sample_bytes(
    sequences: Sequence[Generation],
    prompt_logprobs: Sequence[float | None] | None,
    topk_prompt: Alternatives | None,
    topk: int,
) -> bytes:
    """What the SDK reads as SampleResponse.

    Args:
        prompt_logprobs: of every token of the prompt, None where there is none; None: they were not asked for.
        topk_prompt: the most likely tokens at every token of the prompt; None: they were not asked for.
        topk: how many of the most likely tokens the sequences have at each place; 0: none.
    """
    message = pb.SampleResponse()
    for one in sequences:
        added = message.sequences.add(
            stop_reason=pb.STOP_REASON_STOP if one.finish == "stop" else pb.STOP_REASON_LENGTH,
            tokens=np.asarray(one.token_ids, "<i4").tobytes(),
            logprobs=np.asarray(one.logprobs, "<f4").tobytes(),
        )
        if topk:
            added.topk_sampled_logprobs.CopyFrom(_likeliest(one.alternatives, topk))
    if prompt_logprobs is not None:
        numbers = [np.nan if one is None else one for one in prompt_logprobs]
        message.prompt_logprobs = np.asarray(numbers, "<f4").tobytes()
    if topk_prompt is not None:
        message.topk_prompt_logprobs.CopyFrom(_likeliest(topk_prompt, max(map(len, topk_prompt), default=0) or 1))
    return bytes(message.SerializeToString())


def _likeliest(places: Alternatives, k: int) -> pb.TopkLogprobs:
    ids, logprobs = np.zeros((len(places), k), "<i4"), np.full((len(places), k), _EMPTY_LOGPROB, "<f4")
    for row, found in enumerate(places):
        for column, (token, logprob) in enumerate(found[:k]):
            ids[row, column], logprobs[row, column] = token, logprob
    return pb.TopkLogprobs(token_ids=ids.tobytes(), logprobs=logprobs.tobytes(), k=k, length=len(places))


def prompt_ids(prompt: types.ModelInput) -> tuple[int, ...]:
    """The tokens of a prompt.

    Raises:
        RefusedRequest: it has something else than tokens.
    """
    if kinds := [chunk.type for chunk in prompt.chunks if not isinstance(chunk, types.EncodedTextChunk)]:
        raise RefusedRequest(f"the prompt has a chunk {kinds[0]!r}; this server reads tokens alone (encoded_text)")
    return tuple(prompt.to_ints())
