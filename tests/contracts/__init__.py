"""Contract suites: mixin classes that hold a fake and the real thing to the same behaviour.

A suite says what a port promises (`ipf/ports.py`); a test case mixes it in and says how to make the thing.  Tests run
on the wall clock, since PostgreSQL's own clock decides what is due: waits are kept to tenths of a second.
"""
