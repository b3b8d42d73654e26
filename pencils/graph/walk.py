"""Ways through an expression graph, however deep it is."""

from __future__ import annotations

from collections.abc import Iterable

from pencils.graph.array import Array


def in_order(outputs: Iterable[Array]) -> list[Array]:
    """List all nodes that outputs need, each after what it is computed from.

    The order follows from the graph alone, and is the same in every run.
    """
    found: dict[Array, None] = {}
    for output in outputs:
        stack = [output]
        while stack:
            node = stack[-1]
            if node in found:
                stack.pop()
                continue
            missing = [other for other in node.inputs if other not in found]
            if missing:
                stack.extend(reversed(missing))
            else:
                found[node] = None
                stack.pop()
    return list(found)
