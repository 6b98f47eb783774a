"""Registers `twistd ipf-ui` with Twisted."""

from twisted.application.service import ServiceMaker

ipf_ui = ServiceMaker("ipf-ui", "ipf.app.console_tap", "The operator console of ipf: web pages.", "ipf-ui")
