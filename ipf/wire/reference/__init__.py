"""The OpenAPI documents as a page for people: `/admin/docs`, and the page "Admin API" of the console."""
