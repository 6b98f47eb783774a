"""A first profile from sample messages: `survey` looks at them, `maps` writes maps, `draft` the whole profile."""
