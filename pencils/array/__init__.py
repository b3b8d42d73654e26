"""Fields: `PencilArray`, its base class, and what works on fields of the same pencil.

May import errors, layout, comm, pencil and plan. `base.Field` is a pencil with the block of this
rank; indexing, reductions, stencils and NumPy functions work on it; `pencil_array` composes them.
Methods that lead to higher layers are in `verbs`, which imports these when a method is called.
Begin with `base`, then `pencil_array`.
"""
