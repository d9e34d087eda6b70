"""Functions that find out, on a machine without a GPU, how TensorFlow would run a graph on a GPU.

They read TensorFlow's registry of kernels, which lists its GPU kernels on every machine.

Many operations that take or give int32 have a GPU kernel that runs on the host (the CPU) and keeps
these tensors in the host's memory. If an operation on the device (the GPU) needs a tensor that is
on the host, TensorFlow copies the tensor, and if an operation on the host needs one from the
device, it also waits until the device has computed the tensor.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.training.saver import export_meta_graph

INPUT = "Placeholder"
ON_HOST = {tf.int32, tf.string, tf.resource}
"""Types of inputs that are on the host when TensorFlow calls a graph."""
SCOPES = {
    "/cond/then/": "if a sentence is done",
    "/cond/else/": "if no sentence is done",
    "while/": "position",
}
"""Part of an operation's name -> how often the search runs the operation. All others run once in
each call.
"""


def optimized(function: Any) -> Any:
    """Returns the graph that TensorFlow runs for a concrete function: without dead operations,
    loops made explicit.
    """
    meta_graph = export_meta_graph(graph_def=function.graph.as_graph_def(), graph=function.graph)
    names = [tensor.name for tensor in function.graph.outputs] + [
        op.name for op in function.graph.control_outputs
    ]
    meta_graph.collection_def["train_op"].node_list.value.extend(names)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def without_kernel(graph: Any) -> set[str]:
    """Returns the operations of an optimized graph that have no GPU kernel for their types; not
    those on text.
    """
    return {
        node.op
        for node in graph.node
        if node.op != INPUT and not _kernel(node) and not _is_on_text(node)
    }


def copies(graph: Any) -> Counter[str]:
    """Returns the number of tensors of each kind that TensorFlow copies between host and device.

    A kind is a text such as "position: Any bool to host": how often, which operation's output, its
    type, and where to.

    Several operations that need the same tensor share a copy.
    """
    nodes = {node.name: node for node in graph.node}
    found = set()
    for node in graph.node:
        if _is_anywhere(node):
            continue
        wanted = [place for _, place in _places(node, op_def_registry.get(node.op).input_arg)]
        data = [name for name in node.input if not name.startswith("^")]
        for name, is_wanted_on_host in zip(data, wanted, strict=True):
            source, _, output = name.partition(":")
            if _is_anywhere(nodes[source]):
                continue
            outputs = list(_places(nodes[source], op_def_registry.get(nodes[source].op).output_arg))
            dtype, is_on_host = outputs[int(output or 0)]
            if is_on_host != is_wanted_on_host and dtype not in (tf.string, tf.resource):
                found.add(
                    (_scope(node.name), nodes[source].op, dtype.name, name, is_wanted_on_host)
                )
    return Counter(
        f"{scope}: {op} {dtype} to {'host' if to_host else 'device'}"
        for scope, op, dtype, _, to_host in found
    )


def _is_anywhere(node: Any) -> bool:
    """Returns whether the node is an operation that runs on the host anyway, or a constant, which
    may be anywhere.
    """
    return node.op == "Const" or (node.op != INPUT and not _kernel(node))


def _is_on_text(node: Any) -> bool:
    definition = op_def_registry.get(node.op)
    args = [*definition.input_arg, *definition.output_arg]
    return any(dtype == tf.string for dtype, _ in _places(node, args))


def _scope(name: str) -> str:
    return next((scope for part, scope in SCOPES.items() if part in name), "call")


@functools.cache
def _kernels(op: str) -> list[Any]:
    """Returns the kernels that TensorFlow may use on a GPU for an operation, in the order of its
    choice.
    """
    registered = kernels.get_registered_kernels_for_op(op).kernel
    usable = [kernel for kernel in registered if kernel.device_type in ("GPU", "DEFAULT")]
    return sorted(usable, key=lambda kernel: (kernel.device_type != "GPU", -kernel.priority))


def _kernel(node: Any) -> Any:
    """Returns the kernel that TensorFlow uses for a node on a GPU, or None."""

    def fits(constraint: Any) -> bool:
        attribute = node.attr[constraint.name]
        types = attribute.list.type if attribute.HasField("list") else [attribute.type]
        return set(types) <= set(constraint.allowed_values.list.type)

    return next((kernel for kernel in _kernels(node.op) if all(map(fits, kernel.constraint))), None)


def _places(node: Any, args: Any) -> Iterator[tuple[tf.DType, bool]]:
    """Yields the type of each of the node's inputs or outputs, and whether it is on the host."""
    kernel = None if node.op == INPUT else _kernel(node)
    for arg in args:
        if arg.type_list_attr:
            types = list(node.attr[arg.type_list_attr].list.type)
        else:
            count = node.attr[arg.number_attr].i if arg.number_attr else 1
            types = [node.attr[arg.type_attr].type if arg.type_attr else arg.type] * count
        for dtype in map(tf.as_dtype, types):
            yield dtype, dtype in ON_HOST if kernel is None else arg.name in kernel.host_memory_arg
