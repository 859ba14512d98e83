"""Every error that mas raises on purpose, in one tree.

    MasError
    ├── ConfigError            a wrong key or value in a configuration
    │   └── MissingPackage     what is asked for needs a package that is not installed
    ├── GraphError             a team that is not well formed
    ├── BusError
    │   ├── NoRoute            no listener at the address
    │   ├── Denied             the principal may not read or write there
    │   ├── Expired            the deadline passed before an answer
    │   ├── Dropped            a bounded queue refused the message
    │   ├── Closed             the bus or the subscription is closed
    │   ├── Malformed          a message that cannot travel: unknown kind, wrong shape, too long
    │   ├── NoPayload          a payload by reference that cannot be stored or fetched, or is not what was sent
    │   ├── Unreachable        no broker there, or one that refuses the connection
    │   ├── JournalError       a journal that cannot be read or written, or has no such message
    │   └── ReplayError        a run does something else than the recorded one
    ├── RemoteError            the other side of a request failed; its text is kept
    ├── ClusterError           processes that cannot be started or used as asked
    │   ├── NoResources        more CPUs or GPUs are asked for than there are
    │   ├── WorkerLost         a worker's process ended, hangs, or broke its connection
    │   ├── CallFailed         a worker's factory or method raised; its traceback is kept as text
    │   └── CallExpired        no answer within the time limit; the worker lives on
    ├── EnvironmentFault       an environment was used against its contract
    ├── RewardError            a reward that is no finite number
    ├── EngineError            a request that the engine cannot serve
    │   ├── RefusedRequest     no engine could serve it: its sender's mistake
    │   ├── UnknownAdapter     the adapter is not loaded
    │   ├── EngineLost         the engine's process or server is gone, or does not answer
    │   └── NotServed          an engine computes something else than was trained
    ├── ModelError             a model directory that is not one
    ├── RunError               a team run that cannot go on
    │   ├── AgentFailed        an agent of it has no answer; names the agent and the cause
    │   └── Halted             the team is stopping
    ├── ToolRefused            a call of a tool that cannot be read, is not possible, or failed
    ├── BudgetExceeded         a call that would spend more than a budget holds
    ├── RunDirectoryError      a run directory that cannot be used
    ├── TrustError             stored files name a server, code or a path outside that the user has not allowed
    ├── CheckpointError        a checkpoint that is corrupt or of another run
    ├── HubError               a model hub that does not answer as asked, or a repository on it that holds no safe team
    ├── SandboxError           model-written code cannot be run safely on this machine, or its sandbox broke
    ├── TrainingError          a learning step that broke its own rules
    └── Refused                a request to the endpoint, answered with an HTTP error (`mas.endpoint.errors`)

A bad *sample* is no exception: a text that does not parse is recorded as a `Failure` payload and counted.
"""


class MasError(Exception):
    """Root of all errors raised on purpose; the message says what, which value, what was possible, what to do."""


class ConfigError(MasError):
    """A configuration key or value that does not exist or does not fit."""


class MissingPackage(ConfigError):
    """What is asked for needs a package that is not installed; names the extra that brings it."""


class GraphError(MasError):
    """A team whose graph is not well formed."""


class BusError(MasError):
    """A message that could not be delivered as asked."""


class NoRoute(BusError):
    """Nobody listens at the address."""


class Denied(BusError):
    """The principal may not read or write there."""


class Expired(BusError):
    """The deadline passed before the message was handled."""


class Dropped(BusError):
    """A bounded queue was full and the sender chose not to wait."""


class Closed(BusError):
    """The bus or the subscription is closed."""


class Malformed(BusError):
    """Bytes that are no message, or a message that cannot become bytes."""


class NoPayload(BusError):
    """A payload that travels by reference cannot be stored or fetched, or is not what was sent."""


class Unreachable(BusError):
    """The broker does not answer, or refuses the connection."""


class JournalError(BusError):
    """A journal that cannot be opened, read or written, or that has no such message."""


class ReplayError(BusError):
    """A run that is replayed does something else than the recorded one."""


class RemoteError(BusError):
    """The handler at the other end of a request raised; the message holds its type and text."""


class ClusterError(MasError):
    """A process of a cluster cannot be started, reached or used as asked."""


class NoResources(ClusterError):
    """A worker asks for more CPUs or GPUs than the cluster has, or than are free."""


class WorkerLost(ClusterError):
    """The worker's process ended, does not answer, or sent what is no message; calls in flight have no answer."""


class CallFailed(ClusterError):
    """The worker's factory or method raised; the message holds the remote traceback, `error_type` the class's name and
    `cause` the error's own text."""

    def __init__(self, text: str, error_type: str = "", cause: str = "") -> None:
        super().__init__(text)
        self.error_type, self.cause = error_type, cause


class CallExpired(ClusterError):
    """The worker did not answer a call within its time limit; the worker lives on."""


class EnvironmentFault(MasError):
    """An environment was used against its contract: a seat that may not move, a step after the end."""


class RewardError(MasError):
    """A reward that is NaN, infinite or beyond 1e30: nothing compares with it, so its episode is a recorded failure."""


class EngineError(MasError):
    """A request that the engine cannot serve as asked."""


class RefusedRequest(EngineError):
    """A request that asks for the impossible, whatever state the engine is in: its sender's mistake."""


class UnknownAdapter(EngineError):
    """The adapter, or that version of it, is not loaded."""


class EngineLost(EngineError):
    """The process or server of an engine is gone, cannot be reached, or does not answer; it may come back."""


class NotServed(EngineError):
    """What an engine serves under a name is not what the trainer holds."""


class ModelError(MasError):
    """A model that cannot be loaded."""


class RunError(MasError):
    """A team run that cannot go on."""


class AgentFailed(RunError):
    """An agent gave no answer and nothing stood in for it; `__cause__` is the error that it failed with."""


class Halted(RunError):
    """The team was drained or cancelled before this could begin or end."""


class ToolRefused(MasError):
    """A tool call that is no call, names no tool, does not fit the tool's parameters, or that the tool cannot do."""


class BudgetExceeded(MasError):
    """A call would spend more than is left of a budget, or its time is up; the call was not made, or was stopped."""


class RunDirectoryError(MasError):
    """A run directory that cannot be created, written or resumed."""


class TrustError(MasError):
    """Stored files name a server, a model, code or a path outside, and the user has not allowed it."""


class CheckpointError(MasError):
    """A checkpoint that is corrupt, incomplete, or belongs to another run."""


class HubError(MasError):
    """A model hub that does not answer as asked, or a repository on it that holds no team that is safe to play."""


class SandboxError(MasError):
    """Code cannot be run behind walls: this machine does not offer them, or they broke; no program was at fault."""


class TrainingError(MasError):
    """A learning step that broke one of its own rules, such as a gradient in the wrong adapter."""


def error_named(name: str, text: str) -> MasError:
    """The error of this module with that class name and text; a RemoteError if the module has no such class."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, MasError):
        return found(text)
    return RemoteError(f"{name}: {text}")
