"""What all pages share: the view of a request, calls of the service, lists, live updates, the proxy."""
