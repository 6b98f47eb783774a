"""De-identified resources: what leaves names, numbers and real dates of patients behind."""
