package app

import (
	"context"
	_ "embed"

	"github.com/urfave/cli/v3"
)

// The scripts call completeCommand, and never evaluate what is on the line.
var (
	//go:embed completion/muster.bash
	bashCompletion string
	//go:embed completion/muster.zsh
	zshCompletion string
	//go:embed completion/muster.fish
	fishCompletion string
	//go:embed completion/muster.ps1
	pwshCompletion string
)

// CompletionCommand returns muster completion.
func (a *App) CompletionCommand() *cli.Command {
	shell := func(name, script string) *cli.Command {
		return a.NewCommand(Command{
			Name: name, Usage: "Print the script for " + name,
			Run: func(context.Context, []string) error { return WriteOutput(a.Out, []byte(script)) },
		})
	}
	return a.NewCommand(Command{
		Name: "completion", Usage: "Print a completion script for bash, zsh, fish or pwsh", Category: CategorySetup,
		Description: "The scripts complete commands, options and their values, and the jobs, tasks, workers, kinds and keys of the server. Packages install those of bash, zsh and fish. Otherwise:\n\n" +
			"bash: add the line source <(muster completion bash) to ~/.bashrc\n" +
			"zsh: add the line source <(muster completion zsh) to ~/.zshrc, below compinit\n" +
			"fish: muster completion fish > ~/.config/fish/completions/muster.fish\n" +
			"pwsh: add the line muster completion pwsh | Out-String | Invoke-Expression to $PROFILE",
		Commands: []*cli.Command{shell("bash", bashCompletion), shell("zsh", zshCompletion), shell("fish", fishCompletion), shell("pwsh", pwshCompletion)},
	})
}
