"""The endpoint described for programs (`/openapi.json`, OpenAPI 3.1) and for people (`/docs`, without scripts)."""

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from mas.core.version import VERSION
from mas.endpoint.responses import ResponsesRequest
from mas.endpoint.wire import LABELS, NEUTRAL, ChatRequest, CompletionRequest

Json = dict[str, Any]
_POSTS: Mapping[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatRequest, "Continue a conversation, or ask a team"),
    "/v1/completions": (CompletionRequest, "Continue a raw prompt, or ask a team"),
    "/v1/responses": (ResponsesRequest, "Continue a conversation, in the form of the Responses API"),
}
_GETS = {
    "/v1/models": "What is served: the base, adapters, teams",
    "/v1/models/{model}": "One of them",
    "/v1/questions": "Open questions to people",
    "/health": "200 while requests are served; needs no key",
    "/metrics": "Prometheus metrics",
    "/openapi.json": "This description",
    "/docs": "This description as a page",
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {name: {"type": ["string", "null"]} for name in ("message", "type", "param", "code")},
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def description() -> Json:
    """The whole description."""
    schemas: Json = {"Error": _ERROR}
    paths: Json = {}
    for path, (kind, what) in _POSTS.items():
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["properties"] |= {name: {"description": "taken and not used"} for name in LABELS}
        if "max_completion_tokens" in schema["properties"]:
            schema["properties"]["max_tokens"] = schema["properties"]["max_completion_tokens"]
        schemas |= schema.pop("$defs", {}) | {kind.__name__: schema}
        body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
        paths[path] = {"post": _operation(path, what) | {"requestBody": {"required": True, "content": body}}}
    answer = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    paths["/v1/questions/{id}"] = {
        "post": _operation("/v1/questions/{id}", "Answer a question to a person")
        | {"requestBody": {"required": True, "content": {"application/json": {"schema": answer}}}}
    }
    for path, what in _GETS.items():
        paths[path] = {"get": _operation(path, what)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mas", "version": VERSION, "description": _ignored()},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _operation(path: str, what: str) -> Json:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    error = {"description": "What is wrong", "content": {"application/json": {"schema": {"$ref": _REF}}}}
    return {
        "summary": what,
        "operationId": path.strip("/").replace("/", "_").replace(".", "_").replace("{", "").replace("}", ""),
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names],
        "responses": {"200": {"description": "The answer"}, "default": error},
    }


_REF = "#/components/schemas/Error"


def _ignored() -> str:
    neutral = ", ".join(f"{name}={' or '.join(map(json.dumps, values)) or 'null'}" for name, values in NEUTRAL.items())
    labels = ", ".join(sorted(LABELS))
    return f"Taken and not used: {labels}. Taken only with a value that changes nothing: {neutral}."


def page() -> str:
    """The description for people."""
    described = description()
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>mas: the endpoint</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td,th{padding:.2rem .6rem;text-align:left;vertical-align:top;"
        "border-bottom:1px solid #8884}code{font-size:.9em}:root{color-scheme:light dark}</style>"
        f'<h1>mas {html.escape(VERSION)}: the endpoint</h1><p><a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(_sections(described))}<p>{html.escape(described['info']['description'])}</p></html>"
    )


def _sections(described: Json) -> Iterator[str]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            what = html.escape(operation["summary"])
            yield f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{what}.</p>"
        if path in _POSTS:
            yield _fields(described["components"]["schemas"][_POSTS[path][0].__name__])


def _fields(schema: Json) -> str:
    """A request's fields as a table: name, what it may be, what it is without."""
    rows = []
    for name, field in schema["properties"].items():
        usual = "required" if name in schema.get("required", ()) else json.dumps(field.get("default"))
        rows.append(f"<tr><td><code>{html.escape(name)}</code><td>{html.escape(_kind(field))}<td>{html.escape(usual)}")
    return f"<table><tr><th>field<th>value<th>default{''.join(rows)}</table>"


def _kind(field: Json) -> str:
    """What a field may be, in a few words."""
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(_kind(one) for one in field.get("anyOf") or field["oneOf"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "enum" in field or "const" in field:
        return " or ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = " ".join(f"{sign} {field[name]:g}" for name, sign in bounds.items() if name in field)
    return f"{field.get('type', 'any')} {limits}".strip()
