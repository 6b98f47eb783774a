-- Who asked for a websocket token, as JSON: what is told over it is held against these grants as well.

ALTER TABLE websocket_tokens ADD COLUMN caller text; -- NULL = nobody was asked who it is
