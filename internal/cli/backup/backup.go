// Package backup implements the commands backup and restore.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/backup"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/serverd"
)

// Commands returns the commands.
func Commands(a *app.App) []*cli.Command {
	return []*cli.Command{backupCommand(a), restoreCommand(a)}
}

type backupConfig struct {
	remote.QueryOptions
	data string
}

func backupCommand(a *app.App) *cli.Command {
	c := &backupConfig{}
	return a.NewCommand(app.Command{
		Name: "backup", Usage: "Back up a server while it runs", Args: "FILE", Category: app.CategoryAdmin,
		Description: "The file is a tar archive of the database, logs, artifacts, uploaded folders and keys; - means standard output. " +
			"It contains secrets: keep it private. It appears under its name only when it is complete.",
		Flags: append([]cli.Flag{
			app.Option{Name: "data", Value: "path", Usage: "Back up this data directory of a server that does not run, instead of asking a server"}.StringVar(&c.data),
		}, c.Flags()...),
		Examples: []app.HelpRow{
			{Name: "muster backup /backups/muster.tar", Usage: "Back up the current server"},
			{Name: "muster backup --data /var/lib/muster muster.tar", Usage: "Back up a stopped server"},
		},
		Run: func(ctx context.Context, args []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "muster backup takes the path of one file to write; - means standard output")
			}
			return c.run(ctx, a, args[0])
		},
	})
}

func (c *backupConfig) run(ctx context.Context, a *app.App, path string) error {
	write := c.fromServer
	if c.data != "" {
		write = c.fromData
	}
	if path == "-" {
		if a.Out.Interactive {
			return muster.Errorf(muster.Invalid, "a backup is not text: redirect standard output, or name a file")
		}
		_, err := write(ctx, a, a.Out)
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return muster.Errorf(muster.Conflict, "%s exists: choose another name, or remove it", path)
	}
	partial := path + ".partial"
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot write the backup: %w", err)
	}
	summary, err := write(ctx, a, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = rename(partial, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return a.Print(c.OutputOptions, summary, []string{path}, func() error {
		fmt.Fprintf(a.Out, "%s: %s\n", path, describe(summary))
		warnDamaged(a, summary)
		return nil
	})
}

// rename gives a complete file its name, unless the name was taken meanwhile.
func rename(partial, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return muster.Errorf(muster.Conflict, "%s was created meanwhile: choose another name", path)
	}
	if err := os.Rename(partial, path); err != nil {
		return muster.Errorf(muster.Invalid, "cannot write the backup: %w", err)
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

func (c *backupConfig) fromServer(ctx context.Context, a *app.App, w io.Writer) (summary backup.Summary, err error) {
	server, err := c.Connect()
	if err != nil {
		return summary, err
	}
	err = withProgress(ctx, a, "backing up", func(ctx context.Context, count io.Writer) error {
		return server.Backup(ctx, func(r io.Reader) (err error) {
			summary, err = backup.Check(ctx, io.TeeReader(r, io.MultiWriter(w, count)))
			return err
		})
	})
	return summary, err
}

func (c *backupConfig) fromData(ctx context.Context, a *app.App, w io.Writer) (summary backup.Summary, err error) {
	err = withProgress(ctx, a, "backing up", func(ctx context.Context, count io.Writer) (err error) {
		summary, err = serverd.BackUpStopped(ctx, c.data, app.CurrentBuild().Version, io.MultiWriter(w, count))
		return err
	})
	return summary, err
}

type restoreConfig struct {
	app.OutputOptions
	data  string
	check bool
}

func restoreCommand(a *app.App) *cli.Command {
	c := &restoreConfig{}
	return a.NewCommand(app.Command{
		Name: "restore", Usage: "Restore a backup into an empty data directory", Args: "FILE", Category: app.CategoryAdmin,
		Description: "The whole backup is restored, or nothing. - means standard input. Start the server afterwards with muster server --data DIR.",
		Flags: append([]cli.Flag{
			app.Option{Name: "data", Value: "path", Usage: "Data directory to restore into: an empty one, or one to create"}.StringVar(&c.data),
			app.Option{Name: "check", Usage: "Only check that the backup is complete and undamaged"}.BoolVar(&c.check),
		}, c.Flags()...),
		Examples: []app.HelpRow{
			{Name: "muster restore muster.tar --data /var/lib/muster", Usage: "Restore a backup"},
			{Name: "muster restore --check muster.tar", Usage: "Check a backup"},
		},
		Run: func(ctx context.Context, args []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "muster restore takes the path of one backup; - means standard input")
			}
			if c.check == (c.data != "") {
				return muster.Errorf(muster.Invalid, "set --data to the directory to restore into, or --check to check the backup only")
			}
			return c.run(ctx, a, args[0])
		},
	})
}

func (c *restoreConfig) run(ctx context.Context, a *app.App, path string) (err error) {
	in := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return muster.Errorf(muster.NotFound, "cannot read the backup: %w", err)
		}
		defer f.Close()
		in = f
	}
	verb := "restoring"
	if c.check {
		verb = "checking"
	}
	var summary backup.Summary
	err = withProgress(ctx, a, verb, func(ctx context.Context, count io.Writer) (err error) {
		in := io.TeeReader(in, count)
		if c.check {
			summary, err = backup.Check(ctx, in)
		} else {
			summary, err = serverd.Restore(ctx, in, c.data)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = a.Print(c.OutputOptions, summary, []string{c.data}, func() error {
		fmt.Fprintf(a.Out, "%s of %s by muster %s: %s\n", path, summary.CreatedAt.Std().Local().Format(time.DateTime), summary.Version, describe(summary))
		if !c.check {
			a.Messagef("restored to %s; start the server with muster server --data %s", c.data, c.data)
			a.Messagef("keys that were created after the backup do not work, and keys that were revoked after it work again: muster keys list shows them")
		}
		return nil
	})
	if err == nil && len(summary.Damaged) > 0 {
		return muster.Errorf(muster.Internal, "%d files were damaged when the backup was made and are missing: %s", len(summary.Damaged), names(summary.Damaged))
	}
	return err
}

func describe(s backup.Summary) string {
	return fmt.Sprintf("jobs up to %d, %d files, %s", s.NextJob-1, s.Files, muster.Size(s.Bytes))
}

func warnDamaged(a *app.App, s backup.Summary) {
	if len(s.Damaged) > 0 {
		a.Messagef("%d files of the server are damaged and will be missing after a restore: %s", len(s.Damaged), names(s.Damaged))
	}
}

// names lists the first names.
func names(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// withProgress calls run with a writer that shows on a terminal how many bytes were written to it.
func withProgress(ctx context.Context, a *app.App, verb string, run func(ctx context.Context, count io.Writer) error) error {
	bar := app.NewTransferBar(verb, -1)
	return a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error { return run(ctx, counter{bar}) })
}

type counter struct{ bar *app.TransferBar }

func (c counter) Write(p []byte) (int, error) {
	c.bar.Done.Add(int64(len(p)))
	return len(p), nil
}
