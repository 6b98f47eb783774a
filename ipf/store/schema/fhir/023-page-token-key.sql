-- Page tokens contain internal numbers, which count what others write.  So they are encrypted, by all processes alike.

CREATE TABLE page_token_key (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    key text NOT NULL                                       -- 64 random bytes (AES-256-SIV), in hexadecimal digits
);
INSERT INTO page_token_key (key)
SELECT string_agg(replace(gen_random_uuid()::text, '-', ''), '') FROM generate_series(1, 4);
