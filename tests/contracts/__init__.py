"""Contract suites of the ports (`ipf/ports`): the same tests run on PostgreSQL and on the fakes.

A test case derives from a suite and creates the implementation.  The tests run on the wall clock, because PostgreSQL's
clock determines due times.
"""
