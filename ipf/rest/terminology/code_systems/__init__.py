"""Operations on one code system: `$lookup`, `$subsumes`, `$find-matches`."""
