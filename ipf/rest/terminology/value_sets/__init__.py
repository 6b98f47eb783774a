"""Operations on a value set: `$expand` and `$validate-code`, which is also that of a code system."""
