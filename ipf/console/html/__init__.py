"""Rendering: templates, texts of each language, static files, compression."""
