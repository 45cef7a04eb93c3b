package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/term"
)

// Reference returns the help texts of all commands as one Markdown page.
func Reference() (string, error) {
	var page strings.Builder
	page.WriteString("# Command line\n\nGenerated from the program: the output of `--help` of every command and of the help topics. `muster completion` prints a completion script for your shell. Packages install the same as manual pages: `man muster-run`, `man muster-exit-codes`.\n")
	a := newRunner(nil, term.Screen{}, term.Screen{})
	if err := appendHelp(&page, a.commands(), nil); err != nil {
		return "", err
	}
	for _, t := range a.Topics {
		text, err := output("muster", "help", t.Name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "\n## muster help %s\n\n```text\n%s\n```\n", t.Name, text)
	}
	return page.String(), nil
}

// output returns what a command prints, without the space around it.
func output(args ...string) (string, error) {
	var out, errs bytes.Buffer
	a := newRunner(strings.NewReader(""), term.Screen{Writer: &out}, term.Screen{Writer: &errs})
	if status := a.Run(context.Background(), a.commands(), args); status != 0 {
		return "", fmt.Errorf("%s: exit status %d: %s", strings.Join(args, " "), status, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// appendHelp appends the help of the command at path, nil for the program itself, and of those below it.
func appendHelp(page *strings.Builder, below []*cli.Command, path []string) error {
	text, err := output(slices.Concat([]string{"muster"}, path, []string{"--help"})...)
	if err != nil {
		return err
	}
	name := strings.Join(append([]string{"muster"}, path...), " ")
	fmt.Fprintf(page, "\n%s %s\n\n```text\n%s\n```\n", strings.Repeat("#", min(2+len(path), 4)), name, text)
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
