"""Terminology, enough to live: code systems and value sets that are loaded, what is in them, and what is not known."""

from ipf.fhir.terminology.service import Terminology

__all__ = ["Terminology"]
