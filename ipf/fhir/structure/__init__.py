"""The structure of R4 resources: known elements, JSON shapes, formats of primitives, required bindings of codes.

Every write is checked by `check.check_structure`, in every validation mode.
"""
