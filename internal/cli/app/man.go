package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// ManPages returns the manual pages of all visible commands in section 1 and of the help topics in section 7, by file name. Each has the
// texts of --help.
func (a *App) ManPages(commands []*cli.Command, date time.Time, version string) map[string][]byte {
	m := manual{date: date.UTC().Format(time.DateOnly), version: version, pages: map[string][]byte{}}
	m.add(a.rootCommand(commands), nil, a.Topics)
	for _, t := range a.Topics {
		m.addTopic(t)
	}
	return m.pages
}

// manual collects manual pages.
type manual struct {
	date, version string
	pages         map[string][]byte // by file name
}

// manPage is a manual page in the language of troff.
type manPage struct{ strings.Builder }

// begin starts a page whose name has hyphens.
func (m *manual) begin(name, section, usage string) *manPage {
	p := &manPage{}
	fmt.Fprintf(p, ".TH %s %s %s \"%s\" \"%s\"\n", roff(strings.ToUpper(name)), section, m.date, roff("Muster "+m.version), "Muster Manual")
	p.heading("SH", "NAME")
	fmt.Fprintf(p, "%s \\- %s\n", roff(name), roff(usage))
	return p
}

// add adds the page of cmd, which is below the commands above, and those of its commands. The page of the program itself names the topics.
func (m *manual) add(cmd *cli.Command, above []string, topics []Topic) {
	path := append(slices.Clip(above), cmd.Name)
	name := strings.Join(path, "-")
	below := slices.DeleteFunc(slices.Clone(cmd.Commands), func(c *cli.Command) bool { return c.Hidden })
	p := m.begin(name, "1", cmd.Usage)

	p.heading("SH", "SYNOPSIS")
	synopsis := []string{roff("[options]"), roff(cmd.ArgsUsage)}
	if len(below) > 0 {
		synopsis = slices.Insert(synopsis, 0, roff("[COMMAND]"))
	}
	fmt.Fprintf(p, ".B %s\n%s\n", roff(strings.Join(path, " ")), strings.Join(NonEmpty(synopsis), " "))

	p.heading("SH", "DESCRIPTION")
	p.text(cmp.Or(cmd.Description, cmd.Usage+"."))
	p.commands(below, name)
	var examples, environment []HelpRow
	first := true
	for _, s := range renderSections(cmd) {
		switch s.Title {
		case "Examples":
			examples = append(examples, s.Rows...)
			continue
		case "Environment":
			environment = append(environment, s.Rows...)
			continue
		}
		if first {
			p.heading("SH", "OPTIONS")
		}
		if !first || s.Title != "Options" {
			p.heading("SS", s.Title)
		}
		first = false
		p.rows(s.Rows)
	}
	if len(examples) > 0 {
		p.heading("SH", "EXAMPLES")
		for _, e := range examples {
			p.text(e.Usage + ":")
			fmt.Fprintf(p, ".PP\n.RS 4\n.EX\n%s\n.EE\n.RE\n", roff(e.Name))
		}
	}
	p.heading("SH", "EXIT STATUS")
	p.reference("See", ".", "muster-exit-codes(7)")
	p.heading("SH", "ENVIRONMENT")
	for _, f := range cmd.VisibleFlags() {
		if d, ok := f.(cli.DocGenerationFlag); ok {
			for _, env := range d.GetEnvVars() {
				environment = append(environment, HelpRow{env, "Value of --" + f.Names()[0] + ", unless it is given"})
			}
		}
	}
	p.rows(environment)
	p.reference("See", ".", "muster-environment(7)")
	p.heading("SH", "SEE ALSO")
	var also []string
	for i := range above {
		also = append(also, strings.Join(above[:len(above)-i], "-")+"(1)")
	}
	for _, t := range topics {
		also = append(also, topicPage(t)+"(7)")
	}
	p.reference("", "", also...)
	m.pages[name+".1"] = []byte(p.String())
	for _, c := range below {
		m.add(c, path, nil)
	}
}

// topicPage returns the name of the page of a topic.
func topicPage(t Topic) string { return programName + "-" + t.Name }

func (m *manual) addTopic(t Topic) {
	p := m.begin(topicPage(t), "7", t.Usage)
	for _, s := range t.Sections() {
		p.heading("SH", s.Title)
		p.rows(s.Rows)
	}
	p.heading("SH", "SEE ALSO")
	p.reference("", "", programName+"(1)")
	m.pages[topicPage(t)+".7"] = []byte(p.String())
}

// commands lists the commands below the one with the page name, by category.
func (p *manPage) commands(below []*cli.Command, name string) {
	if len(below) == 0 {
		return
	}
	p.heading("SH", "COMMANDS")
	below = slices.Clone(below)
	slices.SortStableFunc(below, func(a, b *cli.Command) int { return cmp.Compare(a.Category, b.Category) })
	for i, c := range below {
		if c.Category != "" && (i == 0 || c.Category != below[i-1].Category) {
			p.heading("SS", c.Category[2:])
		}
		fmt.Fprintf(p, ".TP\n.BR %s (1)\n%s\n", roff(name+"-"+c.Name), roff(c.Usage))
	}
}

func (p *manPage) heading(macro, title string) { fmt.Fprintf(p, ".%s \"%s\"\n", macro, roff(title)) }

func (p *manPage) text(s string) {
	for paragraph := range strings.SplitSeq(s, "\n") {
		if paragraph = strings.TrimSpace(paragraph); paragraph != "" {
			fmt.Fprintf(p, ".PP\n%s\n", roff(paragraph))
		}
	}
}

// rows writes options, or other names, and what they are for.
func (p *manPage) rows(rows []HelpRow) {
	for _, r := range rows {
		name, value := strings.TrimSpace(r.Name), ""
		if i := strings.LastIndex(name, "--"); i >= 0 && strings.HasPrefix(name, "-") {
			if j := strings.IndexByte(name[i:], ' '); j >= 0 {
				name, value = name[:i+j], name[i+j+1:]
			}
		}
		tag := `\fB` + roff(name) + `\fR`
		if value != "" {
			tag += ` \fI` + roff(value) + `\fR`
		}
		fmt.Fprintf(p, ".TP\n%s\n%s\n", tag, roff(r.Usage))
	}
}

// reference writes a sentence with other pages, such as muster(1).
func (p *manPage) reference(before, after string, pages ...string) {
	fmt.Fprintln(p, ".PP")
	if before != "" {
		fmt.Fprintln(p, before)
	}
	for i, page := range pages {
		name, section, _ := strings.Cut(page, "(")
		end := ","
		if i == len(pages)-1 {
			end = after
		}
		fmt.Fprintf(p, ".BR %s (%s%s\n", roff(name), section, end)
	}
}

// roff escapes a text so that troff prints it as it is. The result is one line of ASCII, and no request.
func roff(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\(rs`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '.' && i == 0:
			b.WriteString(`\&.`)
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r < ' ' || r == 0x7f: // no text
		case r > 0x7f:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
