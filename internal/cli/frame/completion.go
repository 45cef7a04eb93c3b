package frame

import (
	"context"

	"github.com/urfave/cli/v3"
)

// completion describes the library's command as ours are.
func (a *App) completion(c *cli.Command) {
	for _, shell := range c.Commands {
		if shell.Name == "bash" {
			script := shell.Action
			shell.Action = func(ctx context.Context, cmd *cli.Command) error {
				if err := script(ctx, cmd); err != nil {
					return err
				}
				return Write(a.Out, []byte(bashWords))
			}
		}
	}
	*c = *a.Command(Command{
		Name: c.Name, Usage: "print a completion script for bash, zsh, fish or pwsh", About: c.Description, Category: SetUp, Commands: c.Commands,
	})
}

// bashWords replaces a function of the library's script that fails where the
// package bash-completion is not installed. Without that the words of bash
// itself do.
const bashWords = `
__` + program + `_init_completion() {
  COMPREPLY=()
  if declare -F _comp_initialize >/dev/null 2>&1; then
    _comp_initialize "$@"
  elif declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref "$@" cur prev words cword
  fi
}
`
