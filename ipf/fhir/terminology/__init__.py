"""Terminology: membership and translation of codes in the loaded code systems, value sets and concept maps."""

from ipf.fhir.terminology.service import Terminology

__all__ = ["Terminology"]
