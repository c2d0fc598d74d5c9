"""The table of implemented operators, known without torch and the code that runs them.

`scripts/write_operators.py` writes the table next to this module from the registry; a test
compares the two. Commands that only look at a model start two seconds sooner with it.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

from ltp_pipeline.graph.nodes import normalize_domain

TABLE = "operators.json"


@cache
def _load_table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def is_implemented(name: str, version: int, domain: str = "") -> bool:
    """Return True if an operator has an implementation for a version of its schema."""
    since = _load_table()["since"].get(_get_key(name, domain))
    return since is not None and since <= version


def get_attributes(name: str, domain: str) -> dict[str, bool]:
    """Return the attributes of an operator that onnx does not define; True if one is required."""
    attributes: dict[str, bool] = _load_table()["attributes"].get(_get_key(name, domain), {})
    return attributes


def render_table() -> str:
    """Return the table as JSON, as the registry has it now."""
    from ltp_pipeline.stages.import_model import ops, registry  # noqa: F401 - ops fills the registry

    since: dict[str, int] = {}
    attributes: dict[str, dict[str, bool]] = {}
    for op in registry.iter_ops():
        key = _get_key(op.name, op.domain)
        since[key] = min(op.since, since.get(key, op.since))
        if op.domain:
            attributes[key] = op.attributes
    return json.dumps({"since": since, "attributes": attributes}, indent=1, sort_keys=True) + "\n"


def _get_key(name: str, domain: str) -> str:
    domain = normalize_domain(domain)
    if domain:
        return f"{domain}/{name}"
    return name
