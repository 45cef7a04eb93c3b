package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// WriteOptions say which files a command that copies files of tasks to this machine may write without asking.
type WriteOptions struct {
	Force  bool // replace existing files
	Hidden bool // write hidden files
}

// Flags returns the options.
func (o *WriteOptions) Flags() []cli.Flag {
	return []cli.Flag{
		Option{Name: "force", Short: "f", Usage: "Replace existing files without asking"}.BoolVar(&o.Force),
		Option{Name: "hidden", Usage: "Write hidden files, such as .bashrc, without asking"}.BoolVar(&o.Hidden),
	}
}

// ConfirmFiles asks before existing files are replaced, and before hidden files are written, unless the options permit it. It is a Conflict
// if the answer is no, or if there is no terminal to ask at.
func (a *App) ConfirmFiles(ctx context.Context, existing, hidden []string, o WriteOptions) error {
	const no = "nothing was written"
	if n := len(existing); n > 0 && !o.Force {
		q := Question{Text: fmt.Sprintf("%s already exists. Replace it?", listNames(existing)), Refusal: fmt.Sprintf("%s already exists: use --force to replace it", listNames(existing)), No: no}
		if n > 1 {
			q.Text = fmt.Sprintf("%d files already exist: %s. Replace them?", n, listNames(existing))
			q.Refusal = fmt.Sprintf("%s already exist: use --force to replace them", listNames(existing))
		}
		if err := a.Confirm(ctx, q); err != nil {
			return err
		}
	}
	if n := len(hidden); n > 0 && !o.Hidden {
		q := Question{Text: fmt.Sprintf("%s is hidden. Write it?", listNames(hidden)), Refusal: fmt.Sprintf("%s is hidden: use --hidden to write it", listNames(hidden)), No: no}
		if n > 1 {
			q.Text = fmt.Sprintf("%d files are hidden: %s. Write them?", n, listNames(hidden))
			q.Refusal = fmt.Sprintf("%s are hidden: use --hidden to write them", listNames(hidden))
		}
		return a.Confirm(ctx, q)
	}
	return nil
}

// Question is asked before something that cannot be undone. Its texts have no control characters.
type Question struct {
	Text    string // without the choices
	Refusal string // the error without a terminal; it names the option that permits it
	No      string // the error unless the answer is yes
}

// Confirm asks a question at the terminal. It is a Conflict unless the answer is yes.
func (a *App) Confirm(ctx context.Context, q Question) error {
	if !a.Err.Interactive {
		return muster.Errorf(muster.Conflict, "%s", q.Refusal)
	}
	answer, err := term.Prompt(ctx, a.Err, q.Text+" [y/N] ")
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil: // no terminal to read from
		return muster.Errorf(muster.Conflict, "%s", q.Refusal)
	case answer != "y" && answer != "yes":
		return muster.Errorf(muster.Conflict, "%s", q.No)
	}
	return nil
}

// IsHidden reports whether an element of a slash-separated path begins with a dot.
func IsHidden(name string) bool {
	return name != "." && (name[:min(1, len(name))] == "." || strings.Contains(name, "/."))
}

// maxListedNames is how many names a question lists.
const maxListedNames = 5

// listNames lists the first names for one line.
func listNames(names []string) string {
	text := term.Sanitize(strings.Join(names[:min(len(names), maxListedNames)], ", "))
	if more := len(names) - maxListedNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
