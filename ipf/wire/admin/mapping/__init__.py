"""Installed maps, the workbench and vendor profiles."""
