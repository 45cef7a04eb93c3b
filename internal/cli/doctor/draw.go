package doctor

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/doctor"
)

var titles = map[string]string{
	doctor.Server: "SERVER", doctor.Worker: "WORKER", doctor.Containers: "CONTAINERS", doctor.GPUs: "GPUS", doctor.Python: "PYTHON", doctor.System: "SYSTEM",
}

var styles = map[doctor.Status]term.Style{
	doctor.OK: term.Green, doctor.Note: term.Blue, doctor.Warning: term.Yellow, doctor.Problem: term.Red,
}

const gap = 2 // columns between columns

// draw writes the findings for people: their groups under titles, each finding on as many lines as it
// takes, and below it what to do.
func draw(app *frame.App, found []doctor.Finding) error {
	first, second := len(doctor.Problem), 0
	for i := range found {
		second = max(second, len(found[i].Name))
	}
	indent := first + gap + second + gap
	var b strings.Builder
	group := ""
	for i := range found {
		f := &found[i]
		if f.Group != group {
			if group != "" {
				b.WriteByte('\n')
			}
			group = f.Group
			b.WriteString(app.Out.Paint(term.Bold, titles[group]) + "\n")
		}
		status := string(f.Status)
		if f.Fixed {
			status = "fixed"
		}
		head := app.Out.Paint(styles[f.Status], status) + strings.Repeat(" ", first+gap-len(status)) + f.Name + strings.Repeat(" ", second+gap-len(f.Name))
		for _, line := range wrap(f.Found, app.Out.Width-indent) {
			b.WriteString(head + line + "\n")
			head = strings.Repeat(" ", indent)
		}
		for n, line := range wrap(f.Fix, app.Out.Width-indent-gap) {
			mark := "→ "
			if n > 0 {
				mark = "  "
			}
			b.WriteString(head + app.Out.Paint(term.Dim, mark) + line + "\n")
		}
	}
	b.WriteString("\n" + sum(app, found) + "\n")
	return frame.Write(app.Out, []byte(b.String()))
}

// sum says how it is in all.
func sum(app *frame.App, found []doctor.Finding) string {
	count := map[doctor.Status]int{}
	mendable := 0
	for i := range found {
		count[found[i].Status]++
		if found[i].Mendable() {
			mendable++
		}
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Problem, doctor.Warning, doctor.Note} {
		if n := count[s]; n > 0 {
			text := fmt.Sprintf("%d %s", n, s)
			if n > 1 {
				text += "s"
			}
			parts = append(parts, app.Out.Paint(styles[s], text))
		}
	}
	text := strings.Join(append(parts, fmt.Sprintf("%d ok", count[doctor.OK])), ", ")
	if mendable > 0 {
		text += fmt.Sprintf("; muster doctor --fix mends %d of them", mendable)
	}
	return text
}

// wrap puts a text on lines of at most width columns; below 1 means no limit. What is in back quotes is a
// command to copy, and stays on one line, whatever its length.
func wrap(text string, width int) []string {
	var lines []string
	for _, w := range words(text) {
		if last := len(lines) - 1; last >= 0 && (width < 1 || term.Width(lines[last])+1+term.Width(w) <= width) {
			lines[last] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

// words splits a text at its spaces, and at none in back quotes.
func words(text string) []string {
	var list []string
	quoted := false
	from := 0
	for i, r := range text {
		switch {
		case r == '`':
			quoted = !quoted
		case r == ' ' && !quoted:
			list = append(list, text[from:i])
			from = i + 1
		}
	}
	if quoted { // one that is not closed
		return strings.Fields(term.Clean(text))
	}
	list = append(list, text[from:])
	for i := range list {
		list[i] = term.Clean(list[i])
	}
	return frame.NonEmpty(list)
}
