//go:build !unix

package cli

import "io"

// hasPipedInput is unknown here.
func hasPipedInput(io.Reader) bool { return false }
