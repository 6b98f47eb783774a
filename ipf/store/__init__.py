"""The ports on PostgreSQL.  Only this package contains SQL and uses the PostgreSQL driver.

`postgres`: driver, connection pool, transactions, quoting, migration, embedded server, notifier.  `schema`: the tables.
`inbox`: messages.  `resources`: FHIR resources.  `deliveries`: events for subscribers.  `audit`: the audit trail.
"""
