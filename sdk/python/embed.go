// Package python embeds the muster module for Python tasks. A worker adds it to the PYTHONPATH of every task.
package python

import _ "embed"

//go:embed muster.py
var module string

// Module returns the source of muster.py.
func Module() string { return module }
