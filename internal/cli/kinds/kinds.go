// Package kinds has the commands that list and show kinds of tasks, and validate custom ones.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/spec"
)

type runner struct{ *app.App }

// Command returns muster kinds.
func Command(base *app.App) *cli.Command {
	a := &runner{base}
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "kinds", Usage: "List the kinds of tasks", Category: app.CategorySubmit, Flags: c.Flags(),
		Commands: []*cli.Command{a.showCommand(), a.checkCommand()},
		Run:      func(ctx context.Context, _ []string) error { return a.list(ctx, c) },
	})
}

func (a *runner) list(ctx context.Context, c *remote.QueryOptions) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all, err := server.Kinds(ctx)
	if err != nil {
		return err
	}
	l := app.Listing[wire.Kind]{
		OutputOptions: c.OutputOptions,
		ID:            func(k wire.Kind) string { return k.Name },
		Columns:       []term.Column{{Title: "KIND", NoTruncate: true}, {Title: "WORKERS", AlignRight: true, NoTruncate: true}, {Title: "RUNTIME"}, {Title: "ABOUT"}},
		Row: func(k wire.Kind, _ time.Time) []string {
			return []string{k.Name, strconv.Itoa(k.Offered), k.Runtime, k.About}
		},
		Rows: app.Seq(all),
	}
	return l.Write(a.App)
}

func (a *runner) showCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "show", Usage: "Show details of kinds and their input", Args: "KIND…", Complete: c.CompleteKinds(), Flags: c.Flags(),
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.Invalid, "missing kind: muster kinds lists them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			all := make([]wire.Kind, len(args))
			for i, name := range args {
				if all[i], err = server.Kind(ctx, name); err != nil {
					return err
				}
			}
			return app.PrintItems(a.App, c.OutputOptions, all, func(k wire.Kind) string { return k.Name }, app.WithBlankLines(a.App, a.draw))
		},
	})
}

func (a *runner) draw(k wire.Kind) error {
	f := app.Details{App: a.App}
	f.Add("kind", k.Name)
	f.Add("about", k.About)
	if k.Own {
		f.Add("from", "owners of workers")
	}
	f.Add("runtime", k.Runtime)
	f.Add("workers", availability(&k))
	if k.Run != kind.RunNo {
		f.Add("run", k.Run)
	}
	if r := k.Resources; r != nil {
		f.Add("resources", FormatRequest(r))
	}
	if k.Checkpoint {
		f.Add("checkpoint", "resumes from its checkpoint")
	}
	if k.Operation {
		f.Add("operation", "also an operation of kind custom")
	}
	if err := f.Draw(); err != nil {
		return err
	}
	all, requirements := inputFields(k.Input)
	switch {
	case len(k.Input) == 0:
		return a.writeLine("no input")
	case len(all) == 0:
		return a.writeLine("input: an object with any fields")
	}
	if err := a.writeLine(a.Out.Paint(term.Bold, "input")); err != nil {
		return err
	}
	width := 0
	for _, f := range all {
		width = max(width, term.Width(term.Sanitize(f.name)))
	}
	for _, f := range all {
		if err := a.drawField(f, min(width, 24)); err != nil {
			return err
		}
	}
	for _, s := range requirements {
		if err := a.writeLine("  " + term.Sanitize(s)); err != nil {
			return err
		}
	}
	return nil
}

// drawField writes a field with its description below.
func (a *runner) drawField(f field, width int) error {
	typeText := f.typeText
	switch {
	case f.required:
		typeText = strings.TrimPrefix(typeText+"; required", "; ")
	case f.defaultValue != "":
		typeText = strings.TrimPrefix(typeText+"; default "+f.defaultValue, "; ")
	}
	name := term.Sanitize(f.name)
	pad := strings.Repeat(" ", max(width-term.Width(name), 0))
	if err := a.writeLine(strings.TrimRight("  "+name+pad+"  "+term.Sanitize(typeText), " ")); err != nil {
		return err
	}
	for _, line := range term.Wrap(strings.Fields(term.Sanitize(f.description)), a.Out.Width-6) {
		if err := a.writeLine("      " + a.Out.Paint(term.Dim, line)); err != nil {
			return err
		}
	}
	return nil
}

func (a *runner) writeLine(line string) error { return app.WriteOutput(a.Out, []byte(line+"\n")) }

// availability describes how many workers have a kind.
func availability(k *wire.Kind) string {
	s := strconv.Itoa(k.Offered)
	if k.Offered == 0 {
		s = "none connected"
	}
	if k.Away > 0 {
		s += fmt.Sprintf(", and %d that left or are unreachable", k.Away)
	}
	if k.Differ > 0 {
		s += fmt.Sprintf("; %d of them have another definition", k.Differ)
	}
	return s
}

// FormatRequest formats requested resources, "" if there are none.
func FormatRequest(r *muster.Request) string {
	var parts []string
	add := func(name, amount string) { parts = append(parts, name+" "+amount) }
	if r.CPUs > 0 {
		add("cpus", strconv.FormatFloat(r.CPUs, 'g', -1, 64))
	}
	if r.Memory > 0 {
		add("memory", r.Memory.String())
	}
	if r.Disk > 0 {
		add("disk", r.Disk.String())
	}
	if r.PIDs > 0 {
		add("pids", strconv.Itoa(r.PIDs))
	}
	if g := r.GPUs; g.Count > 0 {
		gpus := strconv.Itoa(g.Count)
		if g.Memory > 0 {
			gpus += " with " + g.Memory.String()
		}
		add("gpus", gpus)
	}
	return strings.Join(parts, ", ")
}

func (a *runner) checkCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "check", Usage: "Validate custom kinds", Args: "DIR…",
		Description: "A custom kind is a directory with a " + kind.FileName + ". It is validated locally, without a server. " +
			"A worker offers the kinds in its --kinds-dir.",
		Run: func(_ context.Context, args []string) error { return a.check(args) },
	})
}

func (a *runner) check(dirs []string) error {
	if len(dirs) == 0 {
		return muster.Errorf(muster.Invalid, "missing directory: use one with a %s", kind.FileName)
	}
	var invalid []string
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return muster.Errorf(muster.NotFound, "no such directory: %s", dir)
			}
			return muster.Errorf(muster.Invalid, "%s is not a readable directory: use one with a %s", dir, kind.FileName)
		}
		k, err := kind.Parse(os.DirFS(dir), dir)
		if err == nil && kind.IsReserved(k.Name) {
			err = muster.Errorf(muster.InvalidSpec, "%s: the name %s is reserved by a built-in kind or operation: use another one", filepath.Join(dir, kind.FileName), k.Name)
		}
		if err != nil {
			source, _ := os.ReadFile(filepath.Join(dir, kind.FileName)) // only for the positions of errors
			a.Messagef("%s", strings.TrimRight(spec.Format(err, string(source)), "\n"))
			invalid = append(invalid, dir)
			continue
		}
		if err := a.writeLine(fmt.Sprintf("%s: kind %s is valid", dir, k.Name)); err != nil {
			return err
		}
	}
	if len(invalid) > 0 {
		return &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("invalid: %s", strings.Join(invalid, ", "))}
	}
	return nil
}
