"""FHIR search without a store: parameters in, a `Query` of tests out, and its evaluation on one resource.

`language.query.parse_query` is the usual way in; `values` reads what stands behind the `=`, `evaluation` does in
memory what the store does in SQL, `parameters` holds compartments and the SearchParameters beyond those of R4.
"""
