-- An erasure covers all Patients that are merged with each other.  It is noted before the first row is removed.

ALTER TABLE erasures RENAME COLUMN digest TO digests; -- SHA-256 of salt, tenant and reference of each Patient, with NUL
                                                      -- between them; blanks between the digests
-- signature: empty while the erasure is not finished
