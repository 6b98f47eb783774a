-- Bodies up to nearly a page stay in their row: one that is put aside (the default above 2 kB, where patients and visits
-- often are) takes two rows and two index entries more to write, and a further look-up to read.
ALTER TABLE resource_versions SET (toast_tuple_target = 8160);
