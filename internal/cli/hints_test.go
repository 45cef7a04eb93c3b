package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// hintedCommands are the commands that have command hints; "" is the program.
var hintedCommands = []string{"", "worker", "workers", "server", "job", "tasks", "get", "kinds", "keys", "context"}

// TestCommandHints checks that each hint for users of other programs names commands with valid arguments, and that none hides a command.
func TestCommandHints(t *testing.T) {
	command := regexp.MustCompile(`muster( [a-z-]+)( [A-Za-z0-9-]+)*`)
	for _, above := range hintedCommands {
		list := commandHints(above)
		if len(list) == 0 {
			t.Errorf("%q has no hints", above)
		}
		seen := map[string]bool{}
		for _, h := range list {
			for word := range strings.FieldsSeq(h.words) {
				if seen[word] {
					t.Errorf("muster %s: %s is there twice", above, word)
				}
				seen[word] = true
				a, _, _ := newApp("")
				forEachCommand(a.commands(), "", func(name string, _ *cli.Command) {
					if name == strings.TrimSpace(above+" "+word) {
						t.Errorf("muster %s is a command: remove its hint", name)
					}
				})
			}
			for _, text := range command.FindAllString(h.instead, -1) {
				parseCommand(t, text)
			}
		}
	}
}

// parseCommand checks that a hint names a command and only options that it has.
func parseCommand(t *testing.T, text string) {
	t.Helper()
	words := strings.Fields(text)
	a, _, _ := newApp("")
	found := false
	forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
		if name != words[1] {
			return
		}
		found = true
		above := c
		if len(words) > 2 && c.Command(words[2]) != nil {
			c = c.Command(words[2])
		}
		c.Action = func(context.Context, *cli.Command) error { return nil }
		if err := above.Run(t.Context(), words[1:]); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if above != c || len(words) < 3 || len(above.Commands) == 0 || strings.HasPrefix(words[2], "-") {
			return
		}
		t.Errorf("%s: there is no such subcommand", text)
	})
	if !found {
		t.Errorf("%s: there is no command %s", text, words[1])
	}
}

// TestUnknownCommands checks the errors for commands of other programs, also with options that no command has.
func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"squeue":            `unknown command "squeue": use muster ps; see muster --help`,
		"squeue -u me":      `unknown command "squeue": use muster ps; see muster --help`,
		"kill -9 17":        `unknown command "kill": use muster cancel JOB; see muster --help`,
		"help sbatch":       `unknown command "sbatch": use muster submit FILE`,
		"drain lab":         `use muster workers drain WORKER`,
		"get pods":          `unknown command "pods": use muster ps, or muster tasks JOB; see muster get --help`,
		"job list":          `unknown command "list": use muster ps; see muster job --help`,
		"worker list":       `unknown command "list": use muster workers; see muster worker --help`,
		"server start":      `the command is muster server`,
		"context ls":        `use muster context list`,
		"pss":               `unknown command "pss": did you mean "ps"? See muster --help`,
		"wokers":            `did you mean "workers"?`,
		"versio":            `did you mean "version"?`,
		"jobsx":             `did you mean "job"?`,
		"fly":               `unknown command "fly": see muster --help`,
		"configure":         `unknown command "configure": see muster --help`,
		"rm-all":            `unknown command "rm-all": see muster --help`,
		"workers shw":       `did you mean "show"?`,
		"run --bogus true":  `unknown option "--bogus": see muster run --help`,
		"ps --stat running": `did you mean "--state"?`,
	} {
		a, out, errs := newApp("")
		a.ForeignCommands = foreignCommand
		if status := a.Run(t.Context(), a.commands(), append([]string{"muster"}, strings.Fields(args)...)); status != 2 {
			t.Errorf("%s: status %d", args, status)
		}
		if !strings.Contains(errs.String(), want) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%s: %s%s, want %s", args, out, errs, want)
		}
	}
}
