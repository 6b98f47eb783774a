"""The HTTP and MLLP listeners, built over the stores and opened."""
