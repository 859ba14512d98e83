"""The description of the endpoint: complete, valid, and a page that needs nothing else."""

from typing import Any

import jsonschema
from clients import client, echo, offer
from starlette.routing import Route

from mas.endpoint import build_app
from mas.endpoint.client_keys import Entrance
from mas.endpoint.openapi import description

CHAT = {"model": "a", "messages": [{"role": "user", "content": "hi"}]}


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [name for one in value.values() for name in references(one)]
    return [name for one in value for name in references(one)] if isinstance(value, list) else []


def test_every_route_is_described_and_every_reference_leads_somewhere() -> None:
    described = description()
    routes = {route.path for route in build_app(offer(echo())).routes if isinstance(route, Route)}
    plain = {path.replace("{name:path}", "{model}").replace("questions/{name}", "questions/{id}") for path in routes}
    assert described["paths"].keys() == plain
    for name in references(described):
        assert name.removeprefix("#/components/schemas/") in described["components"]["schemas"]
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(names) == len({*names})


def test_the_schema_of_a_request_takes_what_the_endpoint_takes() -> None:
    described = description()

    def check(kind: str, body: dict[str, Any]) -> None:
        schema = {"$ref": f"#/components/schemas/{kind}", "components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(body)

    check("ChatRequest", CHAT | {"temperature": 0.5, "response_format": {"type": "json_object"}})
    check("CompletionRequest", {"model": "a", "prompt": "hi", "stream": True})
    check("ResponsesRequest", {"model": "a", "input": [{"type": "message", "role": "user", "content": "hi"}]})


async def test_the_page_lists_all_and_loads_nothing() -> None:
    async with client(
        build_app(offer(echo()), entrance=Entrance(key="sesame")), Authorization="Bearer sesame"
    ) as asking:
        page = await asking.get("/docs")
        assert (await asking.get("/openapi.json")).json() == description()
    assert page.headers["content-type"].startswith("text/html")
    for text in ("POST /v1/responses", "tool_choice", "structured_outputs", "GET /metrics"):
        assert text in page.text
    assert "<script" not in page.text
    assert "http" not in page.text.replace("/openapi.json", "")
