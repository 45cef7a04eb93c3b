package jobschema

import (
	"regexp"
	"strconv"
	"strings"
)

// row is the description of a field.
type row struct {
	kind, defaultText, meaning string
}

// page has the rows of the fields of the job and of a stage, by path.
type page struct{ job, stage map[string]row }

var (
	rowPattern  = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (.*?) \\| (.*?) ?\\| (.*?) ?\\|$")
	seePattern  = regexp.MustCompile(`: see \[[^\]]*\]\(#[^)]*\)`) // links do not work in editors
	linkPattern = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
)

// parsePage parses the tables of fields.
func parsePage(text string) page {
	_, text, _ = strings.Cut(text, "\n## The job\n")
	job, stage, _ := strings.Cut(text, "\n## A stage\n")
	stage, _, _ = strings.Cut(stage, "\n## Arrays")
	return page{rows(job), rows(stage)}
}

func rows(text string) map[string]row {
	all := map[string]row{}
	for _, m := range rowPattern.FindAllStringSubmatch(text, -1) {
		all[m[1]] = row{kind: m[2], defaultText: m[3], meaning: m[4]}
	}
	return all
}

// description returns the text for editors.
func (r row) description() string {
	text := linkPattern.ReplaceAllString(seePattern.ReplaceAllString(r.meaning, ""), "$1")
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if r.defaultText != "" {
		text = strings.TrimSpace(strings.TrimSuffix(text, ".") + ". Default: " + linkPattern.ReplaceAllString(r.defaultText, "$1"))
	}
	return strings.TrimPrefix(text, ". ")
}

var (
	enumPattern   = regexp.MustCompile("^`[^`…]+`(, `[^`…]+`)*( or `[^`…]+`)?$")
	codePattern   = regexp.MustCompile("`([^`]+)`")
	rangePattern  = regexp.MustCompile(`\b([0-9][0-9,]*) to ([0-9][0-9,]*)\b`)
	maxPattern    = regexp.MustCompile(`\b([0-9][0-9,]*) at most`)
	sealedPattern = regexp.MustCompile("or a `sealed:` text of ([0-9,]+) at most")
	bytesPattern  = regexp.MustCompile(`\b(?:([0-9]+) to )?([0-9][0-9,]*) bytes`)
)

// enum returns the values of a closed set.
func (r row) enum() []any {
	if !enumPattern.MatchString(r.kind) {
		return nil
	}
	var all []any
	for _, m := range codePattern.FindAllStringSubmatch(r.kind, -1) {
		all = append(all, m[1])
	}
	return all
}

// bounds returns the limits of a number, or of the length of a list.
func (r row) bounds() (minimum, maximum int, ok bool) {
	if m := rangePattern.FindStringSubmatch(r.kind); m != nil {
		return number(m[1]), number(m[2]), true
	}
	if m := maxPattern.FindStringSubmatch(r.kind); m != nil {
		return 0, number(m[1]), true
	}
	return 0, 0, false
}

// lengths returns the limits of a string's length in bytes.
func (r row) lengths() (minBytes, maxBytes int, ok bool) {
	m := bytesPattern.FindStringSubmatch(r.kind)
	if m == nil {
		return 0, 0, false
	}
	if m[1] != "" {
		minBytes = number(m[1])
	}
	return minBytes, number(m[2]), true
}

func number(s string) int {
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil {
		panic(err) // the patterns have digits only
	}
	return n
}
