"""The composition root.  `startup.start` builds the service, `converter` a converter process.

`runtime` and `maps` are what both have; `stages` run in the background; `listeners` accept connections.
"""
