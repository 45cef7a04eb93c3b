package cli

import (
	"regexp"
	"testing"

	"github.com/urfave/cli/v3"
)

// TestEveryArgumentCompletes checks that each argument that the server, the saved contexts or the program know is completed.
func TestEveryArgumentCompletes(t *testing.T) {
	known := regexp.MustCompile(`\b(JOB|TASK|WORKER|KIND|KEY-ID|NAME|URL|RUNTIME|SOURCE|COMMAND)\b`)
	found := 0
	a, _, _ := newApp("")
	forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
		if !known.MatchString(c.ArgsUsage) {
			return
		}
		found++
		if c.Metadata["complete"] == nil {
			t.Errorf("muster %s does not complete %s", name, c.ArgsUsage)
		}
	})
	if found < 35 {
		t.Errorf("there are %d commands with such arguments", found)
	}
}
