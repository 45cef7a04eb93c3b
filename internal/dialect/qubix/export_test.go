package qubix

import (
	"maps"
	"slices"
)

// Patterns returns the patterns of all routes.
func Patterns() []string { return slices.Collect(maps.Keys((&Gateway{}).handlers())) }
