"""Registers `twistd ipf` with Twisted.  These folders must have no __init__.py: it would shadow Twisted itself."""

from twisted.application.service import ServiceMaker

from ipf.wire.tls import OWN, TlsParser

ipf = ServiceMaker("ipf", "ipf.app.tap", "HL7 v2 messages to FHIR R4 resources and notifications.", "ipf")

tls = TlsParser(OWN)
mutual_tls = TlsParser("mtls")
