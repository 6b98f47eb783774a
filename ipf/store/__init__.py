"""The ports on PostgreSQL: the only SQL and the only driver of the house.

`quoting` writes values into SQL, `connection` is one wire, `database` the pool and its transactions; `migrate` and
`embedded` bring the databases into being; `notifier` wakes.  On them stand `inbox` (messages), `resources` (FHIR, with
`asks`, `writes` and `search`) and `deliveries` (events to subscribers).  Nothing here knows sockets of ours or HTTP.
"""
