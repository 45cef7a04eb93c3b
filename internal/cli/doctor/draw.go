package doctor

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/doctor"
)

var titles = map[string]string{
	doctor.Server: "SERVER", doctor.Worker: "WORKER", doctor.Containers: "CONTAINERS", doctor.GPUs: "GPUS", doctor.Python: "PYTHON", doctor.System: "SYSTEM",
}

var styles = map[doctor.Status]term.Style{
	doctor.OK: term.Green, doctor.Note: term.Blue, doctor.Warning: term.Yellow, doctor.Problem: term.Red,
}

const columnGap = 2 // spaces between columns

// draw writes findings for people, by group, with the fix below each.
func draw(a *app.App, found []doctor.Finding) error {
	statusWidth, nameWidth := len(doctor.Problem), 0
	for i := range found {
		nameWidth = max(nameWidth, len(found[i].Name))
	}
	indent := statusWidth + columnGap + nameWidth + columnGap
	var b strings.Builder
	group := ""
	for i := range found {
		f := &found[i]
		if f.Group != group {
			if group != "" {
				b.WriteByte('\n')
			}
			group = f.Group
			b.WriteString(a.Out.Paint(term.Bold, titles[group]) + "\n")
		}
		status := string(f.Status)
		head := a.Out.Paint(styles[f.Status], status) + strings.Repeat(" ", statusWidth+columnGap-len(status)) + f.Name + strings.Repeat(" ", nameWidth+columnGap-len(f.Name))
		for _, line := range term.Wrap(splitWords(f.Found), a.Out.Width-indent) {
			b.WriteString(head + line + "\n")
			head = strings.Repeat(" ", indent)
		}
		for n, line := range term.Wrap(splitWords(f.Fix), a.Out.Width-indent-columnGap) {
			mark := "→ "
			if n > 0 {
				mark = "  "
			}
			b.WriteString(head + a.Out.Paint(term.Dim, mark) + line + "\n")
		}
	}
	b.WriteString("\n" + summary(a, found) + "\n")
	return app.WriteOutput(a.Out, []byte(b.String()))
}

// summary counts the findings by status.
func summary(a *app.App, found []doctor.Finding) string {
	count := map[doctor.Status]int{}
	for i := range found {
		count[found[i].Status]++
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Problem, doctor.Warning, doctor.Note} {
		if n := count[s]; n > 0 {
			parts = append(parts, a.Out.Paint(styles[s], term.Plural(n, string(s))))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d ok", count[doctor.OK])), ", ")
}

// splitWords splits a text at spaces, except in back quotes: commands to copy stay on one line.
func splitWords(text string) []string {
	var list []string
	quoted := false
	start := 0
	for i, r := range text {
		switch {
		case r == '`':
			quoted = !quoted
		case r == ' ' && !quoted:
			list = append(list, text[start:i])
			start = i + 1
		}
	}
	if quoted { // the last back quote is missing
		return strings.Fields(term.Sanitize(text))
	}
	list = append(list, text[start:])
	for i := range list {
		list[i] = term.Sanitize(list[i])
	}
	return app.NonEmpty(list)
}
