package app

import (
	"context"

	"github.com/urfave/cli/v3"
)

// configureCompletion describes the library's command as ours are.
func (a *App) configureCompletion(c *cli.Command) {
	for _, shell := range c.Commands {
		if shell.Name == "bash" {
			script := shell.Action
			shell.Action = func(ctx context.Context, cmd *cli.Command) error {
				if err := script(ctx, cmd); err != nil {
					return err
				}
				return WriteOutput(a.Out, []byte(bashInitCompletion))
			}
		}
	}
	*c = *a.NewCommand(Command{
		Name: c.Name, Usage: "print a completion script for bash, zsh, fish or pwsh", Description: c.Description, Category: CategorySetup, Commands: c.Commands,
	})
}

// bashInitCompletion replaces a function of the library's script that fails where the
// package bash-completion is not installed. Without that the words of bash
// itself do.
const bashInitCompletion = `
__` + programName + `_init_completion() {
  COMPREPLY=()
  if declare -F _comp_initialize >/dev/null 2>&1; then
    _comp_initialize "$@"
  elif declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref "$@" cur prev words cword
  fi
}
`
