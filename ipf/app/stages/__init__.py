"""The stages that run in the background, each built from the stores and started."""
