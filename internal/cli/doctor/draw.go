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

const columnGap = 2 // columns between columns

// draw writes the findings for people: their groups under titles, each finding on as many lines as it
// takes, and below it what to do.
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
		if f.Fixed {
			status = "fixed"
		}
		head := a.Out.Paint(styles[f.Status], status) + strings.Repeat(" ", statusWidth+columnGap-len(status)) + f.Name + strings.Repeat(" ", nameWidth+columnGap-len(f.Name))
		for _, line := range wrap(f.Found, a.Out.Width-indent) {
			b.WriteString(head + line + "\n")
			head = strings.Repeat(" ", indent)
		}
		for n, line := range wrap(f.Fix, a.Out.Width-indent-columnGap) {
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

// summary says how it is in all.
func summary(a *app.App, found []doctor.Finding) string {
	count := map[doctor.Status]int{}
	repairable := 0
	for i := range found {
		count[found[i].Status]++
		if found[i].Repairable() {
			repairable++
		}
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Problem, doctor.Warning, doctor.Note} {
		if n := count[s]; n > 0 {
			text := fmt.Sprintf("%d %s", n, s)
			if n > 1 {
				text += "s"
			}
			parts = append(parts, a.Out.Paint(styles[s], text))
		}
	}
	text := strings.Join(append(parts, fmt.Sprintf("%d ok", count[doctor.OK])), ", ")
	if repairable > 0 {
		text += fmt.Sprintf("; muster doctor --fix mends %d of them", repairable)
	}
	return text
}

// wrap puts a text on lines of at most width columns; below 1 means no limit. What is in back quotes is a
// command to copy, and stays on one line, whatever its length.
func wrap(text string, width int) []string {
	var lines []string
	for _, w := range splitWords(text) {
		if last := len(lines) - 1; last >= 0 && (width < 1 || term.Width(lines[last])+1+term.Width(w) <= width) {
			lines[last] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

// splitWords splits a text at its spaces, and at none in back quotes.
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
	if quoted { // one that is not closed
		return strings.Fields(term.Sanitize(text))
	}
	list = append(list, text[start:])
	for i := range list {
		list[i] = term.Sanitize(list[i])
	}
	return app.NonEmpty(list)
}
