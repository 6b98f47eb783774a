"""Vendor profiles: archives with the maps, quirks, audit enrichments and regression cases for one source vendor.

`archive` unpacks an archive, `manifest` parses its manifest, `quirks` and `source_fields` define its options, `cases`
runs its regression cases, `profile` validates it, `registry` selects the profile of a message, and `folder` holds the
accepted archives.  Contract: interface specification "Vendor profile (installable archive)";
docs/reference/vendor-profiles.md.
"""
