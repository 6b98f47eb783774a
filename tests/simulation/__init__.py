"""The whole service in one thread under a seeded clock: see `tests/simulation/world.py`."""
