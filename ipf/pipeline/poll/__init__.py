"""Sources that are asked for changes: each resource or item becomes a row of the inbox.

What arrives: the polled sources of the vendor profiles, and the answers of their servers.  What leaves: rows of the
inbox, each page in one transaction with the state of its feed.  Crash: the feed goes on with the page that was not
stored; rows that were stored are recognised.  docs/how-to/poll-a-server.md.
"""
