"""Makes `twistd ipf` known to Twisted.  No __init__.py may ever stand above this file: it would shadow Twisted."""

from twisted.application.service import ServiceMaker

from ipf.wire.mllp.mtls import MutualTlsParser

ipf = ServiceMaker("ipf", "ipf.app.tap", "HL7 v2 in, FHIR R4 stored, subscribers told.", "ipf")

mutual_tls = MutualTlsParser()
