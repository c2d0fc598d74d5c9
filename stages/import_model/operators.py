"""Which operators have an implementation, known without torch and the code that runs them.

The table beside this module is written from the registry by `scripts/write_operators.py`; a test compares the two.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

from ltp_pipeline.graph.nodes import normalize_domain

TABLE = "operators.json"


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    )
    return found


def is_implemented(name: str, version: int, domain: str = "") -> bool:
    """Whether there is code for an operator in this version of its schema."""
    since = _table()["since"].get(_key(name, domain))
    return since is not None and since <= version


def get_attributes(name: str, domain: str) -> dict[str, bool]:
    """The attributes of an operator that onnx has no schema of, and whether each must be given."""
    found: dict[str, bool] = _table()["attributes"].get(_key(name, domain), {})
    return found


def render_table() -> str:
    """The table as the registry has it now."""
    from ltp_pipeline.stages.import_model import ops, registry  # noqa: F401 - the first fills the second

    since: dict[str, int] = {}
    given: dict[str, dict[str, bool]] = {}
    for op in registry.iter_ops():
        key = _key(op.name, op.domain)
        since[key] = min(op.since, since.get(key, op.since))
        if op.domain:
            given[key] = op.attributes
    return json.dumps({"since": since, "attributes": given}, indent=1, sort_keys=True) + "\n"


def _key(name: str, domain: str) -> str:
    domain = normalize_domain(domain)
    return f"{domain}/{name}" if domain else name
