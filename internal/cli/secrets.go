package cli

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
	xterm "golang.org/x/term"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type secretsConfig struct {
	remote.QueryOptions
	project string
}

func newSecretsConfig() *secretsConfig { return &secretsConfig{project: muster.DefaultProject} }

func (c *secretsConfig) flags(more ...cli.Flag) []cli.Flag {
	return c.Flags(append(more, app.Option{Name: "project", Short: "p", Usage: "Project of the secrets", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project))...)
}

func (a *runner) secretsCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "secrets", Usage: "Manage secrets that tasks of a project get", Category: app.CategoryAdmin,
		Description: "A secret is a value such as a token, which the server stores encrypted and never shows. A task that names it (secrets: in a job spec, or muster run --secret) gets it as a " +
			"variable or as a file, and its value is replaced by *** in logs, progress, results and messages.",
		Commands: []*cli.Command{a.secretsListCommand(), a.secretsSetCommand(), a.secretsDeleteCommand()},
	})
}

func (a *runner) secretsListCommand() *cli.Command {
	c := newSecretsConfig()
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List the secrets of a project, without their values", Flags: c.flags(),
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			list, err := server.Secrets(ctx, c.project)
			if err != nil {
				return err
			}
			return a.showSecrets(c, list)
		},
	})
}

func (a *runner) showSecrets(c *secretsConfig, list []client.Secret) error {
	l := app.Listing[client.Secret]{
		OutputOptions: c.OutputOptions, EmptyMessage: "project " + c.project + " has no secrets", Rows: app.Seq(list),
		ID: func(s client.Secret) string { return s.Name },
		Columns: []term.Column{
			{Title: "NAME", NoTruncate: true}, {Title: "VERSION", AlignRight: true, NoTruncate: true}, {Title: "AGE", AlignRight: true, NoTruncate: true}, {Title: "SET BY"}, {Title: "WORKERS"}, {Title: "NOTE"},
		},
		Row: func(s client.Secret, now time.Time) []string {
			return []string{s.Name, strconv.Itoa(s.Version), app.Age(s.UpdatedAt, now), s.UpdatedBy, strings.Join(s.Workers, ", "), s.Problem}
		},
	}
	return l.Write(a.App)
}

func (a *runner) secretsSetCommand() *cli.Command {
	c := newSecretsConfig()
	var file string
	var workers []string
	return a.NewCommand(app.Command{
		Name: "set", Usage: "Add a secret, or replace its value", Args: "NAME", Complete: c.CompleteSecrets(&c.project).Once(),
		Description: "Reads the value from standard input, without the line break at its end, or asks for it at a terminal. With --file it is the whole file. " +
			"A value is text of at least 8 bytes and at most 64 KiB. Tasks that run keep the old one.",
		Flags: c.flags(
			app.Option{Name: "file", Short: "f", Value: "path", Usage: "Read the value from this file, every byte of it"}.StringVar(&file),
			app.Option{Name: "workers", Value: "tags", Usage: "Give it only to workers with all of these tags (default: all workers)", Complete: c.CompleteTags().List()}.ListVar(&workers)),
		Examples: []app.HelpRow{
			{Name: "muster secrets set HF_TOKEN", Usage: "Type the value, which is not shown"},
			{Name: "muster secrets set HF_TOKEN -p vision < token.txt", Usage: "Read it from standard input"},
			{Name: "muster secrets set DEPLOY_KEY --file id_ed25519 --workers trusted", Usage: "A file, only for some workers"},
		},
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "give one name of a secret; its value is read from standard input, or from a file with --file")
			}
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			server, err := c.Connect()
			if err != nil {
				return err
			}
			value, err := a.readSecretValue(ctx, args[0], file)
			if err != nil {
				return err
			}
			set, err := server.SetSecret(ctx, c.project, args[0], value, workers)
			if err != nil {
				return err
			}
			return a.showSecrets(c, []client.Secret{set})
		},
	})
}

// readSecretValue reads a value from a file, from standard input or, without either, from the terminal.
func (a *runner) readSecretValue(ctx context.Context, name, file string) (string, error) {
	in, from := a.In, "standard input"
	switch {
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "--file: %w", err)
		}
		defer f.Close()
		in, from = f, file
	case file == "" && isTerminal(a.In):
		return term.ReadSecret(ctx, a.Err, "Value of "+name+": ")
	}
	b, err := io.ReadAll(io.LimitReader(in, muster.MaxSecretSize+2)) // with a line break
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "read the value from %s: %w", from, err)
	}
	value := string(b)
	if !utf8.ValidString(value) {
		return "", muster.Errorf(muster.Invalid, "the value in %s is not text in UTF-8: encode it, for example with base64, and decode it in the task", from)
	}
	if file == "" {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	}
	return value, nil
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd()))
}

func (a *runner) secretsDeleteCommand() *cli.Command {
	c := newSecretsConfig()
	return a.NewCommand(app.Command{
		Name: "delete", Usage: "Delete secrets", Args: "NAME…", Complete: c.CompleteSecrets(&c.project), Flags: c.flags(),
		Description: "Tasks that run keep the values. Tasks that name a deleted secret fail when they start.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.Invalid, "give the names of the secrets to delete: muster secrets list shows them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := server.DeleteSecret(ctx, c.project, name); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
