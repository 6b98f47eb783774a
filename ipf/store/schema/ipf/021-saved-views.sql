-- Names that people give to the filters and columns of a list of the console.  Filters may name patients, so these views
-- are here, where an erasure finds them.

CREATE TABLE saved_views (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    person text NOT NULL,                    -- whose: as the audit trail names him
    area text NOT NULL,                      -- list of the console: messages
    name text NOT NULL,                      -- as the person wrote it
    query text NOT NULL,                     -- of the list's URL
    UNIQUE (person, area, name)
);
