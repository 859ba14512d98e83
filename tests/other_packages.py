"""Packages of others, as pip leaves them in a folder of packages: modules, and the record of their entry points."""

from collections.abc import Mapping
from pathlib import Path


def put_package(folder: Path, name: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """`points`: group -> name -> place; `modules`: name -> source. The folder must be on `sys.path`."""
    record = folder / f"{name}-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {place}\n" for key, place in of.items()) for group, of in points.items()
    ]
    (record / "entry_points.txt").write_text("\n".join(lines))
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
