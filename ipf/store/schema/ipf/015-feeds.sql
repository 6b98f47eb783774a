-- Feeds of polled sources: how far each has been read.  The state changes in the transaction that stores the rows of a page.

CREATE TABLE polled_feeds (
    name text PRIMARY KEY,                   -- profile/item/feed of the vendor profile
    mark timestamptz,                        -- every change before it is stored, by the source's clock; NULL = nothing yet
    began timestamptz,                       -- beginning of the pass that is not complete; NULL = the last one is
    next_page text NOT NULL DEFAULT '',      -- URL of the page that follows; empty = the first one
    pages integer NOT NULL DEFAULT 0,        -- pages of this pass so far
    moved boolean NOT NULL DEFAULT false,    -- items changed their place while this pass read: it may have missed one
    candidate timestamptz,                   -- beginning of the first pass of which that is so, since the last complete one
    tries integer NOT NULL DEFAULT 0,        -- number of these passes
    repeats boolean NOT NULL DEFAULT false,  -- this pass asks for what an unfinished one may have lost
    due_at timestamptz NOT NULL DEFAULT now(), -- when it is polled next
    leased_until timestamptz,                -- another process polls it until then; NULL = none does
    leased_by text,                          -- which one
    fence bigint NOT NULL DEFAULT 0,         -- grows with every lease; a change needs the value of one's own
    failures integer NOT NULL DEFAULT 0,     -- failures in a row
    last_error text,                         -- of the last failure; NULL after a page that was stored
    polled_at timestamptz,                   -- when the last page was stored
    completed_at timestamptz,                -- when the last pass was complete
    fetched bigint NOT NULL DEFAULT 0,       -- items that came
    stored bigint NOT NULL DEFAULT 0         -- items that were new
);
