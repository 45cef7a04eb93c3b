// Command clidocs writes the help texts of all commands as docs/cli.md.
package main

import (
	"fmt"
	"os"

	"github.com/muster-dev/muster/internal/cli"
)

func main() {
	page, err := cli.Reference()
	if err == nil {
		err = os.WriteFile("docs/cli.md", []byte(page), 0o644) //nolint:gosec // a public page
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
