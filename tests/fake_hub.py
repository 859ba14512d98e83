"""A model hub on this machine: the requests that `huggingface_hub` makes to publish and to download models.

Contents are kept in memory, a commit is the whole mapping of names to contents. Large files go over LFS, as far as the
client does without Xet. `listed` and `sent` let a repository lie about what it holds.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from loopback import in_thread, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

TOKEN = "hf_the-token-of-the-user"
Files = dict[str, bytes]


@dataclass
class FakeRepository:
    """`commits`: id -> files, the newest last. `listed`: name -> size, which the listing says in place of the truth.
    `sent`: name -> what is sent in place of the content, without its length."""

    private: bool = True
    commits: dict[str, Files] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    sent: Files = field(default_factory=dict)
    sha: str | None = None

    @property
    def head(self) -> str:
        return list(self.commits)[-1] if self.commits else "0" * 40

    @property
    def files(self) -> Files:
        return self.commits.get(self.head, {})

    def commit(self, files: Files) -> str:
        content = [
            len(self.commits),
            sorted((name, hashlib.sha256(value).hexdigest()) for name, value in files.items()),
        ]
        name = hashlib.sha1(json.dumps(content).encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = dict(files)
        return name


class FakeHub:
    """`requests`: method, path and headers of all that it was asked. `refuses`: status of every answer."""

    def __init__(self) -> None:
        self.repositories: dict[str, FakeRepository] = {}
        self.objects: Files = {}
        self.requests: list[tuple[str, str]] = []
        self.licenses: dict[str, str] = {}
        self.refuses: tuple[int, str] | None = None
        self.address = ""

    def app(self) -> Starlette:
        models = "/api/models/{org}/{name}"
        routes = [
            Route("/api/repos/create", self._create, methods=["POST"]),
            Route("/api/validate-yaml", self._valid, methods=["POST"]),
            Route(models, self._info),
            Route(f"{models}/revision/{{revision}}", self._info),
            Route(f"{models}/tree/{{revision}}", self._tree),
            Route(f"{models}/preupload/{{revision}}", self._preupload, methods=["POST"]),
            Route(f"{models}/commit/{{revision}}", self._commit, methods=["POST"]),
            Route("/{org}/{name}.git/info/lfs/objects/batch", self._batch, methods=["POST"]),
            Route("/objects/{oid}", self._put, methods=["PUT"]),
            Route("/{org}/{name}/resolve/{revision}/{path:path}", self._resolve, methods=["GET", "HEAD"]),
        ]
        return Starlette(routes=routes)

    def _repository(self, request: Request, *, writes: bool = False) -> FakeRepository | Response:
        """The repository, or why the request gets none."""
        self.requests.append((request.method, request.url.path))
        if self.refuses is not None:
            status, said = self.refuses
            return JSONResponse({"error": said}, status, headers={"X-Error-Message": said})
        name = f"{request.path_params['org']}/{request.path_params['name']}"
        knows = request.headers.get("authorization") == f"Bearer {TOKEN}"
        found = self.repositories.get(name)
        if found is None or (found.private and not knows):
            return JSONResponse({"error": "no"}, 404, headers={"X-Error-Code": "RepoNotFound"})
        if writes and not knows:
            return JSONResponse({"error": "no"}, 403)
        revision = request.path_params.get("revision", "main")
        if revision not in ("main", *found.commits):
            return JSONResponse({"error": "no"}, 404, headers={"X-Error-Code": "RevisionNotFound"})
        return found

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": "no"}, 401)
        url = {"url": f"{self.address}/{name}"}
        if name in self.repositories:
            return JSONResponse({"error": "it exists", **url}, 409)
        is_private = asked.get("private", asked.get("visibility") == "private")
        self.repositories[name] = FakeRepository(private=is_private)
        self.repositories[name].commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        return JSONResponse(url)

    async def _valid(self, request: Request) -> Response:
        content = (await request.json())["content"]
        is_card = content.startswith("---\n")
        return JSONResponse({"errors": [] if is_card else [{"message": "no metadata"}], "warnings": []}, 200)

    async def _info(self, request: Request) -> Response:
        name = f"{request.path_params['org']}/{request.path_params['name']}"
        if name in self.licenses:
            return JSONResponse({"id": name, "sha": "1" * 40, "cardData": {"license": self.licenses[name]}})
        found = self._repository(request)
        if isinstance(found, Response):
            return found
        return JSONResponse({"id": name, "sha": found.sha or found.head, "private": found.private, "siblings": []})

    def _at(self, found: FakeRepository, request: Request) -> Files:
        return found.commits.get(request.path_params["revision"], found.files)

    async def _tree(self, request: Request) -> Response:
        found = self._repository(request)
        if isinstance(found, Response):
            return found
        sizes = {name: len(content) for name, content in self._at(found, request).items()} | found.listed
        files = [
            {"type": "file", "path": name, "size": size, "oid": hashlib.sha1(name.encode()).hexdigest()}
            for name, size in sizes.items()
        ]
        return JSONResponse([*files, {"type": "directory", "path": "adapters", "oid": "2" * 40}])

    async def _preupload(self, request: Request) -> Response:
        found = self._repository(request, writes=True)
        if isinstance(found, Response):
            return found
        names = [file["path"] for file in (await request.json())["files"]]
        modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
        files = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
        return JSONResponse({"files": files})

    async def _batch(self, request: Request) -> Response:
        found = self._repository(request, writes=True)
        if isinstance(found, Response):
            return found
        wanted = (await request.json())["objects"]
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.address}/objects/{one['oid']}", "header": {}}}}
            for one in wanted
        ]
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def _put(self, request: Request) -> Response:
        content = await request.body()
        assert hashlib.sha256(content).hexdigest() == request.path_params["oid"]
        self.objects[request.path_params["oid"]] = content
        return Response()

    async def _commit(self, request: Request) -> Response:
        found = self._repository(request, writes=True)
        if isinstance(found, Response):
            return found
        files = dict(found.files)
        for line in (await request.body()).splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        made = found.commit(files)
        url = f"{self.address}/{request.path_params['org']}/{request.path_params['name']}/commit/{made}"
        return JSONResponse({"commitUrl": url, "commitOid": made, "success": True})

    async def _resolve(self, request: Request) -> Response:
        found = self._repository(request)
        if isinstance(found, Response):
            return found
        name = request.path_params["path"]
        content = self._at(found, request).get(name)
        if content is None:
            return JSONResponse({"error": "no"}, 404, headers={"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha1(content).hexdigest()
        size = found.listed.get(name, len(content))
        headers = {"X-Repo-Commit": request.path_params["revision"], "ETag": f'"{etag}"'}
        if request.method == "HEAD":
            return Response(headers=headers | {"Content-Length": str(size)})
        if name in found.sent:
            return StreamingResponse(iter([found.sent[name]] * 64), headers=headers)
        return Response(content, headers=headers)


@contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    """The address of the hub, as long as the block lasts."""
    with in_thread(lambda: served(hub.app())) as address:
        hub.address = address.removesuffix("/v1")
        yield hub.address
