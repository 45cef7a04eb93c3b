// Package runtimes holds what the AI kinds are made of: their definitions (kinds/NAME/kind.yaml, see internal/kind)
// and their Python side (python/NAME). A worker writes the Python side to its data dir and makes the
// environments that its locks ask for.
//
//	python/core            muster_core: what all of them use; no packages needed
//	python/NAME            a runtime: pyproject.toml says what it needs, requirements.lock the exact
//	                       versions, muster_NAME/ is its modules, one level deep
//	python/NAME/tests      for pytest; not embedded
package runtimes

import "embed"

//go:embed kinds/*/* python/*/pyproject.toml python/*/requirements.lock python/*/muster_*/*.py
var files embed.FS

// Files returns the folders kinds and python. They are not changed.
func Files() embed.FS { return files }
