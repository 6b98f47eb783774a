-- Code systems of the installation, of any size, as `ipfctl terminology import` loads them.
--
-- beside: 33
--
-- Each version of a system has partitions of its own.  An import fills them as tables that nobody reads, then attaches
-- them and takes the earlier version out in one transaction.  They hold no data of patients or tenants.  The indexes are
-- those of the partitions (ipf/store/terminology/loading.py): none has system_id, so that they are read without the rows.

CREATE TABLE code_systems (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- of one import; the names of its partitions end with it
    url text NOT NULL,                       -- canonical URL
    version text NOT NULL,                   -- empty: it has none
    name text NOT NULL,                      -- for people
    is_loaded boolean NOT NULL DEFAULT false, -- false: an import runs, or was ended; the next import removes it
    is_current boolean NOT NULL DEFAULT false, -- the version that is meant where none is named
    is_case_sensitive boolean NOT NULL,      -- false: codes are found in small and in capital letters
    concepts integer NOT NULL DEFAULT 0,     -- how many it has
    properties text NOT NULL DEFAULT '{}',   -- JSON: code of each property and its type
    languages text NOT NULL DEFAULT '',      -- of its designations, separated by blanks
    imported_at timestamptz NOT NULL DEFAULT now() -- when it was taken into use
);
CREATE UNIQUE INDEX code_systems_loaded ON code_systems (url, version) WHERE is_loaded;
CREATE UNIQUE INDEX code_systems_current ON code_systems (url) WHERE is_current;

CREATE TABLE code_system_concepts (
    system_id integer NOT NULL,              -- code_systems.id
    id integer NOT NULL,                     -- from 1, shortest displays first
    code text COLLATE "C" NOT NULL,          -- as the system writes it
    display text NOT NULL,                   -- the code where it has none
    is_active boolean NOT NULL,              -- false: for old data only
    is_abstract boolean NOT NULL,            -- only groups others; not to be selected
    definition text,                         -- NULL: it has none
    words tsvector NOT NULL                  -- of the code, the display and the designations, accents folded
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_designations (
    system_id integer NOT NULL,              -- code_systems.id
    concept_id integer NOT NULL,             -- code_system_concepts.id
    language text NOT NULL,                  -- BCP 47; empty: not known
    use_system text NOT NULL,                -- Coding of its use; empty: not known
    use_code text NOT NULL,                  -- the same
    use_display text NOT NULL,               -- the same
    value text NOT NULL                      -- the name itself
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_properties (
    system_id integer NOT NULL,              -- code_systems.id
    concept_id integer NOT NULL,             -- code_system_concepts.id
    name text COLLATE "C" NOT NULL,          -- code of the property
    value text COLLATE "C" NOT NULL          -- as FHIR writes it; of a Coding the code
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_parents (
    system_id integer NOT NULL,              -- code_systems.id
    child integer NOT NULL,                  -- code_system_concepts.id
    parent integer NOT NULL                  -- code_system_concepts.id
) PARTITION BY LIST (system_id);

-- The closure of the parents.  Each concept is its own ancestor.
CREATE TABLE code_system_ancestors (
    system_id integer NOT NULL,              -- code_systems.id
    ancestor integer NOT NULL,               -- code_system_concepts.id
    descendant integer NOT NULL              -- code_system_concepts.id
) PARTITION BY LIST (system_id);
