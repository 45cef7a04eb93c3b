// Command metrics writes docs/metrics.md, the list of registered metrics.
package main

import (
	"fmt"
	"os"

	"github.com/muster-dev/muster/internal/obs"
)

func main() {
	if err := os.WriteFile("docs/metrics.md", []byte(obs.Markdown()), 0o644); err != nil { //nolint:gosec // a public page
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
