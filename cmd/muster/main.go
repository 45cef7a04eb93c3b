// Muster runs AI and compute jobs on every machine you have.
package main

import (
	"os"
	_ "time/tzdata" // TZ works in images without zone files

	"github.com/muster-dev/muster/internal/cli"
	"github.com/muster-dev/muster/internal/cli/app"
)

func main() { os.Exit(cli.Main(app.MaskArgs())) }
