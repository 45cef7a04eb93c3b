// Package runtimes embeds the AI kinds: their definitions (kinds/NAME/kind.yaml, see internal/kind) and their Python code
// (python/NAME). A worker writes the Python code to its data dir and builds environments from the lock files.
//
//	python/core            muster_core: shared by all runtimes; needs no packages
//	python/NAME            a runtime: pyproject.toml has its requirements, requirements.lock the exact
//	                       versions, muster_NAME/ its modules, one level deep
//	python/NAME/tests      for pytest; not embedded
package runtimes

import "embed"

//go:embed kinds/*/* python/*/pyproject.toml python/*/requirements.lock python/*/muster_*/*.py
var files embed.FS

// Files returns the folders kinds and python.
func Files() embed.FS { return files }
