-- The texts of a resource that another condition found: chains, orders by a text, ranges of tokens.  Rows come in the order
-- of rid, so that this index grows at its end; val is read from the row, which costs less than to store it twice.  The
-- expression keeps it for the statements that write it: the planner would take it for look-ups of one value as well, and
-- to remove thousands of entries of one resource it would read all of them for each.
CREATE INDEX index_text_of ON index_text ((rid + 0), param);
