"""Options of vLLM where vLLM itself cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SMALL, BaseFor

from mas.config.options import EngineOptions
from mas.core.errors import ModelError
from mas.serving.vllm_options import vllm_arguments


@pytest.mark.parametrize("raised", ["ImportError", "TypeError"])  # TypeError: an older protobuf than it was built with
def test_a_vllm_that_cannot_be_imported_is_one_error_that_says_why(
    base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"raise {raised}('descriptors cannot be created')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"cannot be imported \(descriptors cannot be created\).*without mas\[bench\]"):
        vllm_arguments(base_for("relay", SMALL), EngineOptions(name="vllm"), 8)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_groups_of_processes_that_vllm_makes_listen_at_the_loopback_interface(
    base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gloo takes the address that the machine's name leads to, unless it is told the interface."""
    pytest.importorskip("vllm")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    model = SMALL.model_copy(update={"tiny": SMALL.tiny.model_copy(update={"head_size": 32})})
    vllm_arguments(base_for("relay", model), EngineOptions(name="vllm"), 8)
    script = """if True:
        import os, tempfile
        from torch import distributed
        place = os.path.join(tempfile.mkdtemp(), "group")
        distributed.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
        with open("/proc/self/net/tcp") as table:
            rows = [line.split() for line in table][1:]
        for file in os.listdir("/proc/self/fd"):
            try:
                name = os.readlink(f"/proc/self/fd/{file}")
            except OSError:
                continue
            print(*(row[1].partition(":")[0] for row in rows if name == f"socket:[{row[9]}]"))
    """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert set(ended.stdout.split()) == {"0100007F"}
