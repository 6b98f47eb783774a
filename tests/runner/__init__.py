"""`bin/test`: runs test modules in worker processes, measures each test, and sums up.

    units of modules -> workers (trial, one module after the other) -> one JSON line a test -> report

Nothing is run twice: a test that fails has failed.
"""
