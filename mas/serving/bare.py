"""The bare base as an adapter of zeros, for engines that mix it with adapters wrongly.

vLLM's CPU kernels give rows without an adapter the adapter in their last slot (`lora_weights[-1]`), which is wrong as
soon as that slot was ever used. An adapter that adds nothing is the base, whatever the kernels do.
"""

from mas.core.engine import AdapterRef
from mas.core.errors import EngineError
from mas.serving.model import BaseModel
from mas.serving.peft_files import to_files
from mas.serving.publication import AdapterVersion
from mas.serving.version_files import VersionFiles

_NUMBER = 2**30
"""Far above the numbers that the store gives away one by one."""


def bare_version(base: BaseModel, files: VersionFiles) -> AdapterVersion:
    """A version that changes nothing, with its files; no store knows it.

    Raises:
        EngineError: they cannot be written.
    """
    weights = base.bank.create(base.options.lora.model_copy(update={"rank": 1}), 0)
    try:
        path = files.write("base", to_files(weights, base.origin))
    except OSError as error:
        raise EngineError(f"the files of an adapter cannot be written: {error}") from error
    return AdapterVersion(AdapterRef("base", 0), _NUMBER, weights, path)
