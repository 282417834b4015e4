"""A daemon's OpenAPI document, and what is held to it: its own answers and events, and canned ones."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema_rs
from harness import Cluster

# Messages of the stream, which the document has as parts of answers, and what each has besides.
EVENTS = {"job": "Job", "event": "Event", "nodes": "ListNodesResponse", "step": "StepMetrics",
          "datasets": "ListDatasetsResponse"}  # fmt: skip
BESIDES = {"event: step": {"job_id", "generation", "time_us"}, "event: datasets": {"gone"}}


class Document:
    """Answers go by their path with stars for names (`jobs/*/metrics`), events of the stream as `event: job`."""

    def __init__(self, cluster: Cluster) -> None:
        url = f"http://{cluster.host}:{cluster.web_port}/api/v1/openapi.json"
        with urllib.request.urlopen(url, timeout=30) as answer:
            document = json.load(answer)
        # Path without /api/v1/, and what a GET of it gives, where that has an end.
        self.gets: dict[str, dict[str, Any]] = {
            path.removeprefix("/api/v1/"): operations["get"]["responses"]["200"]["content"]
            for path, operations in document["paths"].items()
            if path.startswith("/api/v1/") and "get" in operations and path != "/api/v1/stream"
        }
        schemas = {f"event: {name}": {"$ref": f"#/components/schemas/{message}"} for name, message in EVENTS.items()}
        schemas |= {re.sub(r"\{[^}]+\}", "*", path): content["application/json"]["schema"]
                    for path, content in self.gets.items() if "application/json" in content}  # fmt: skip
        self.validators = {
            name: jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
            for name, schema in schemas.items()
        }

    def faults(self, name: str, body: dict[str, Any]) -> dict[str, str]:
        """What is wrong with it, by its place; a star is any of a list."""
        if name == "event: job_gone":
            return {} if [*body] == ["id"] and body["id"].isdigit() else {name: str(body)}
        if name == "event: live":
            return {name: str(body)} if body else {}
        besides = BESIDES.get(name, set())
        found = {f"{name}: {key}": "is missing" for key in besides - body.keys()}
        for error in self.validators[name].iter_errors({key: body[key] for key in body.keys() - besides}):
            place = "/".join("*" if isinstance(part, int) else part for part in error.instance_path)
            found[f"{name}: {place}"] = error.message
        return found


def events_of(stream: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of a GET of /api/v1/stream: the kind of each event and its data."""
    kind = ""
    for line in stream:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            kind = rest
        elif word == "data":
            yield kind, json.loads(rest)
