// Package python holds the muster module for tasks that are Python programs. A
// worker puts it on the PYTHONPATH of every task.
package python

import _ "embed"

//go:embed muster.py
var module string

// Module returns the source of muster.py.
func Module() string { return module }
