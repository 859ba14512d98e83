"""Objects of a local cluster: files in a directory that only this user can enter, read by workers as they need them."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mas.cluster.records import Ref
from mas.core.errors import ClusterError


class ObjectFiles:
    """A directory of objects. A file is removed when its object is freed and no call uses it.

    Raises:
        ClusterError: no temporary directory can be made.
    """

    def __init__(self) -> None:
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="mas-cluster-"))  # mode 0700
        except OSError as error:
            raise ClusterError(f"no directory for objects in {tempfile.gettempdir()}: {error}; set TMPDIR") from error
        self._refs: dict[str, Ref] = {}
        self._uses: Counter[str] = Counter()
        self._next = 0

    async def put(self, content: bytes) -> Ref:
        """Write an object.

        Raises:
            ClusterError: the disk is full, or the directory is gone.
        """
        ref = Ref(key=f"{self._next:06d}", size=len(content))
        self._next += 1
        path = self._path(ref)
        try:
            await asyncio.to_thread(path.write_bytes, content)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise ClusterError(f"an object of {len(content) >> 20} MiB cannot be written to {path}: {error}") from error
        self._refs[ref.key] = ref
        return ref

    def free(self, ref: Ref) -> None:
        """Forget an object; nothing if it is not there."""
        if self._refs.get(ref.key) == ref:
            del self._refs[ref.key]
            self._remove_unused(ref)

    @contextmanager
    def using(self, refs: Sequence[Ref]) -> Iterator[list[str]]:
        """The names of the objects' files, which stay at least as long as the block.

        Raises:
            ClusterError: one was freed, or is of another cluster.
        """
        for ref in refs:
            if self._refs.get(ref.key) != ref:
                raise ClusterError(f"object {ref.key} of {ref.size} bytes has been freed, or is of another cluster")
        self._uses.update(ref.key for ref in refs)
        try:
            yield [ref.key for ref in refs]
        finally:
            self._uses.subtract(ref.key for ref in refs)
            for ref in refs:
                self._remove_unused(ref)

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _remove_unused(self, ref: Ref) -> None:
        if ref.key not in self._refs and self._uses[ref.key] <= 0:
            del self._uses[ref.key]
            self._path(ref).unlink(missing_ok=True)

    def _path(self, ref: Ref) -> Path:
        return self.directory / ref.key
