package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Reference returns the help texts of all commands as one Markdown page.
func Reference() (string, error) {
	var page strings.Builder
	page.WriteString("# Command line\n\nGenerated from the program: the output of `--help` of every command. `muster completion` prints a completion script for your shell.\n")
	commands := (&runner{&app.App{}}).commands()
	err := appendHelp(&page, commands, nil)
	return page.String(), err
}

// appendHelp appends the help of the command at path, nil for the program itself, and of those below it.
func appendHelp(page *strings.Builder, below []*cli.Command, path []string) error {
	var out, errs bytes.Buffer
	a := &runner{&app.App{In: strings.NewReader(""), Out: term.Screen{Writer: &out}, Err: term.Screen{Writer: &errs}}}
	args := slices.Concat([]string{"muster"}, path, []string{"--help"})
	if status := a.Run(context.Background(), a.commands(), args); status != 0 {
		return fmt.Errorf("%s: exit status %d: %s", strings.Join(args, " "), status, errs.String())
	}
	name := strings.Join(append([]string{"muster"}, path...), " ")
	fmt.Fprintf(page, "\n%s %s\n\n```text\n%s\n```\n", strings.Repeat("#", min(2+len(path), 4)), name, strings.TrimSpace(out.String()))
	for _, c := range below {
		if c.Hidden {
			continue
		}
		if err := appendHelp(page, c.Commands, append(slices.Clip(path), c.Name)); err != nil {
			return err
		}
	}
	return nil
}
