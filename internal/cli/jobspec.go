package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/kinds"
	"github.com/muster-dev/muster/internal/cli/term"
)

// addSpecDetails adds what a stage runs, and what it needs to run.
func addSpecDetails(f *app.Details, t *muster.TaskSpec) {
	f.Add("command", term.Sanitize(formatCommand(t)))
	if len(t.Input) > 0 {
		f.Add("input", term.Sanitize(string(t.Input)))
	}
	f.Add("files", app.ShortImage(t.Files))
	var inputs []string
	for _, in := range t.Inputs {
		text := in.Name + " of " + in.From
		if in.As != "" && in.As != in.Name {
			text += " as " + in.As
		}
		inputs = append(inputs, text)
	}
	f.Add("inputs", term.Sanitize(strings.Join(inputs, ", ")))
	f.Add("outputs", term.Sanitize(strings.Join(t.Outputs, ", ")))
	var env []string
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		env = append(env, name+"="+quoteArg(t.Env[name]))
	}
	f.Add("env", term.Sanitize(strings.Join(env, " ")))
	f.Add("needs", strings.Join(t.Needs, ", "))
	f.Add("elements", formatElements(t))
	f.Add("resources", kinds.FormatRequest(&t.Resources))
	f.Add("where", term.Sanitize(formatWhere(&t.Where)))
	f.Add("timeout", formatNonZero(t.Timeout))
	f.Add("queue timeout", formatNonZero(t.QueueTimeout))
	if t.Retries.Max > 0 {
		text := "up to " + strconv.Itoa(t.Retries.Max)
		if len(t.Retries.On) > 0 {
			text += " after " + strings.Join(t.Retries.On, ", ")
		}
		f.Add("retries", text)
	}
	if t.Checkpoint != nil {
		text := "$MUSTER_CHECKPOINT"
		if t.Checkpoint.Path != "" {
			text += ", at " + t.Checkpoint.Path
		}
		f.Add("checkpoint", term.Sanitize(text))
	}
	network := t.Network
	if len(t.AllowHosts) > 0 {
		network += ": " + strings.Join(t.AllowHosts, ", ")
	}
	f.Add("network", term.Sanitize(network))
	if p := t.Python; p != nil {
		f.Add("python", term.Sanitize(strings.Join(app.NonEmpty([]string{p.Version, p.Project, strings.Join(p.Extras, " "), strings.Join(p.Groups, " "), p.Requirements, strings.Join(p.Packages, " ")}), ", ")))
	}
}

func formatNonZero(d muster.Duration) string {
	if d == 0 {
		return ""
	}
	return term.FormatDuration(d.Std())
}

// formatCommand returns the command of a stage in one line, as in a shell; "" if the image or the kind has its own.
func formatCommand(t *muster.TaskSpec) string {
	switch s := t.Script; {
	case t.Run != nil && t.Run.Shell != "":
		return firstLine(t.Run.Shell)
	case t.Run != nil:
		words := make([]string, len(t.Run.Argv))
		for i, word := range t.Run.Argv {
			words[i] = quoteArg(word)
		}
		return firstLine(strings.Join(words, " "))
	case s == nil:
		return ""
	case s.URL != "":
		return strings.Join(slices.Concat(s.Interpreter, []string{s.URL}, s.Args), " ")
	default:
		return strings.Join(app.NonEmpty(slices.Concat([]string{strings.Join(s.Interpreter, " "), "script:", firstLine(s.Text)}, s.Args)), " ")
	}
}

// firstLine returns the first line of a text, with … if there are more.
func firstLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.TrimSpace(rest) != "" {
		return line + " …"
	}
	return line
}

// quoteArg quotes a word for sh if that is necessary.
func quoteArg(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+^"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// formatElements describes the elements of a stage, "" if it is a single task.
func formatElements(t *muster.TaskSpec) string {
	switch {
	case t.Array != nil:
		return "array " + t.Array.String()
	case t.Gang != nil:
		return fmt.Sprintf("gang of %d", t.Gang.Size)
	case t.Sweep != nil:
		return term.Sanitize(fmt.Sprintf("sweep of %s, %d trials", strings.Join(slices.Sorted(maps.Keys(t.Sweep.Parameters)), ", "), t.Sweep.Trials))
	case t.Matrix != nil:
		var axes []string
		for _, a := range t.Matrix.Axes {
			axes = append(axes, fmt.Sprintf("%s (%d)", a.Name, len(a.Values)))
		}
		return term.Sanitize("matrix of " + strings.Join(axes, " × "))
	default:
		return ""
	}
}

// formatWhere describes the workers that a stage may use, "" if all.
func formatWhere(w *muster.Where) string {
	var parts []string
	if len(w.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(w.Tags, ","))
	}
	if len(w.ExcludeTags) > 0 {
		parts = append(parts, "not "+strings.Join(w.ExcludeTags, ","))
	}
	if len(w.Workers) > 0 {
		parts = append(parts, "workers "+strings.Join(w.Workers, ","))
	}
	if w.MaxPrice > 0 {
		parts = append(parts, "up to "+strconv.FormatFloat(w.MaxPrice, 'g', -1, 64)+" per hour")
	}
	return strings.Join(parts, "; ")
}
