"""Resources of other FHIR servers become resources of this one: docs/reference/normalization.md.

What arrives: a resource that was fetched from a polled source, or the result of a map of the source's profile.  What
leaves: the same resources with identifiers and references that hold here, without the vendor's extensions, with the
US Core profiles that they meet, and a Provenance.  Pure functions; notes say what was changed.
"""
