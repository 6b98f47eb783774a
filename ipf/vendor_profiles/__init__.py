"""Vendor profiles: archives that bundle the maps, quirks, audit enrichments and regression cases of one source vendor.

`archive` reads the bytes, `manifest` what they say, `quirks` and `sources` are what a profile may ask for, `cases` runs
its regression cases, `profile` puts one together, `shelf` chooses the profile of a message, and `folder` keeps what was
accepted.  Contract: interface specification "Vendor profile (installable archive)"; docs/profiles.md.
"""
