"""One view of an ONNX graph for all stages and exporters; nothing here needs torch.

- model.py: a model: a graph and its weights, apart
- storage.py: models in files; wire.py has their bytes
- nodes.py: operators, attributes, nested graphs
- schemas.py: opsets, and what the standard says about an operator
- tensors.py: the tensors that a model stores
- constants.py: values known without running
- view.py: who produces and who uses a value
- edit.py: changes of a graph
- rewrites/: whole rewrites, made of these
"""

from ltp_pipeline.graph.constants import Constants, constants, small_value
from ltp_pipeline.graph.edit import Names, copy_fields, drop_inputs, put_in_order, set_initializers, set_nodes
from ltp_pipeline.graph.model import Model, copy_of
from ltp_pipeline.graph.nodes import (
    STANDARD_DOMAINS,
    attribute,
    every_graph,
    every_node,
    is_standard,
    label,
    standard_domain,
    subgraphs,
)
from ltp_pipeline.graph.schemas import (
    ONNXRUNTIME_DOMAIN,
    Signature,
    allow_onnxruntime,
    opset_of,
    opsets,
    schema_of,
    signature,
    standard_opset,
)
from ltp_pipeline.graph.storage import read, read_with_data, write, write_all
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    LARGEST,
    LARGEST_CONSTANT,
    MASKED,
    MOST_DIMS,
    NUMBER_TYPES,
    TYPE_ATTRIBUTES,
    WEIGHT_TYPES,
    Array,
    Weights,
    byte_size,
    clear_values,
    constant_tensor,
    declared,
    dtype_of,
    elements,
    every_tensor,
    holds_its_values,
    is_constant,
    is_mask,
    make,
    named_tensors,
    stored,
    stored_one_by_one,
    to_array,
    type_name,
)
from ltp_pipeline.graph.view import Use, View, identities, outer_reads, reads

__all__ = [
    "FLOAT_TYPES",
    "LARGEST",
    "LARGEST_CONSTANT",
    "MASKED",
    "MOST_DIMS",
    "NUMBER_TYPES",
    "ONNXRUNTIME_DOMAIN",
    "STANDARD_DOMAINS",
    "TYPE_ATTRIBUTES",
    "WEIGHT_TYPES",
    "Array",
    "Constants",
    "Model",
    "Names",
    "Signature",
    "Use",
    "View",
    "Weights",
    "allow_onnxruntime",
    "attribute",
    "byte_size",
    "clear_values",
    "constant_tensor",
    "constants",
    "copy_fields",
    "copy_of",
    "declared",
    "drop_inputs",
    "dtype_of",
    "elements",
    "every_graph",
    "every_node",
    "every_tensor",
    "holds_its_values",
    "identities",
    "is_constant",
    "is_mask",
    "is_standard",
    "label",
    "make",
    "named_tensors",
    "opset_of",
    "opsets",
    "outer_reads",
    "put_in_order",
    "read",
    "read_with_data",
    "reads",
    "schema_of",
    "set_initializers",
    "set_nodes",
    "signature",
    "small_value",
    "standard_domain",
    "standard_opset",
    "stored",
    "stored_one_by_one",
    "subgraphs",
    "to_array",
    "type_name",
    "write",
    "write_all",
]
