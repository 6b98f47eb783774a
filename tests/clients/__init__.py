"""Well-known FHIR clients against the service: HAPI's Java client, fhirpy, fhirclient, fhir-kit-client, MedplumClient.

Each is a program of ours that performs the same steps by the client's own functions and prints one JSON line a step.
Versions and hashes are in `pom.xml`, `requirements.txt` and `package-lock.json`.  To renew the latter two:

    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate ...
    npm install --package-lock-only --omit-lockfile-registry-resolved
"""
