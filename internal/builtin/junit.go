package builtin

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Outcomes of a test case.
const (
	passed  = "passed"
	failed  = "failed"
	errored = "error" // without a verdict: an error in set-up or collection, a crash
	skipped = "skipped"
)

// testCase is a line of cases.jsonl.
type testCase struct {
	ID       string  `json:"id"`             // with which it can be run again
	Name     string  `json:"name"`           // without its file or class
	File     string  `json:"file,omitempty"` // or its class or suite if the file is unknown
	Outcome  string  `json:"outcome"`
	Duration float64 `json:"duration"` // seconds
	Message  string  `json:"message,omitempty"`
	Flaky    bool    `json:"flaky,omitempty"` // it failed, and passed in a rerun
	Tries    int     `json:"tries,omitempty"` // if more than one
}

const (
	maxCases   = 200_000
	maxJUnit   = 256 << 20 // bytes of a file
	maxDepth   = 100
	maxMessage = 4 << 10
)

// readJUnit reads test cases from JUnit XML as written by pytest, gotestsum, Jest, Surefire, Gradle, GoogleTest and others, with or
// without <testsuites>, and with nested suites. missing is how many cases the suites count beyond those that they contain. If the file is
// truncated or is not XML, it returns the cases before that with the error.
func readJUnit(r io.Reader) (cases []testCase, missing int, err error) {
	limited := &io.LimitedReader{R: r, N: maxJUnit + 1}
	d := xml.NewDecoder(limited)
	d.Strict = false // the output of tests may contain characters that XML does not allow
	d.CharsetReader = charset
	j := &junitParser{d: d}
	err = j.parse()
	if limited.N <= 0 {
		err = failf(muster.BadInput, "it is larger than %s", muster.Size(maxJUnit))
	}
	return j.cases, j.missing, err
}

// charset decodes other encodings of such files.
func charset(label string, r io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "utf-8", "utf8", "us-ascii", "ascii":
		return r, nil
	case "iso-8859-1", "latin1", "windows-1252":
		return &latin1{r: r}, nil
	}
	return nil, fmt.Errorf("unsupported encoding %q: use UTF-8", shorten(label, 40))
}

// latin1 converts ISO 8859-1 to UTF-8.
type latin1 struct {
	r   io.Reader
	buf []byte
}

func (l *latin1) Read(b []byte) (int, error) {
	if len(l.buf) == 0 {
		raw := make([]byte, 4096)
		n, err := l.r.Read(raw)
		for _, c := range raw[:n] {
			l.buf = append(l.buf, string(rune(c))...)
		}
		if n == 0 {
			return 0, err
		}
	}
	n := copy(b, l.buf)
	l.buf = l.buf[n:]
	return n, nil
}

type junitParser struct {
	d       *xml.Decoder
	cases   []testCase
	missing int
	suites  []openSuite
}

// openSuite is a suite whose end was not read yet.
type openSuite struct {
	file, name string
	tests      int // as counted in its attribute, or 0
	before     int // cases and missing cases before it
}

func (j *junitParser) parse() error {
	root := false
	for {
		tok, err := j.d.Token()
		if errors.Is(err, io.EOF) {
			if len(j.suites) > 0 {
				return errors.New("it is truncated")
			}
			if !root {
				return errors.New("it is not a JUnit file: it has neither testsuites nor testsuite")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot parse it: %w", err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			name := e.Name.Local
			if !root && name != "testsuites" && name != "testsuite" {
				return fmt.Errorf("it is not a JUnit file: it begins with <%s>", shorten(name, 40))
			}
			root = true
			switch name {
			case "testsuites", "testsuite":
				if len(j.suites) == maxDepth {
					return errors.New("its suites are nested too deep")
				}
				tests, _ := strconv.Atoi(attr(&e, "tests")) // 0 has no effect
				j.suites = append(j.suites, openSuite{attr(&e, "file"), attr(&e, "name"), min(tests, maxCases), len(j.cases) + j.missing})
			case "testcase":
				if err := j.readTestCase(&e); err != nil {
					return err
				}
			case "failure", "error": // of a suite without cases, such as one that cannot be compiled
				if err := j.suiteFailed(&e); err != nil {
					return err
				}
			default:
				if err := j.d.Skip(); err != nil {
					return fmt.Errorf("it is truncated: %w", err)
				}
			}
		case xml.EndElement:
			if n := len(j.suites); n > 0 {
				s := j.suites[n-1]
				j.missing += max(0, s.tests-(len(j.cases)+j.missing-s.before))
				j.suites = j.suites[:n-1]
			}
		}
	}
}

func (j *junitParser) checkLimit() error {
	if len(j.cases) == maxCases {
		return fmt.Errorf("it has more than %d cases", maxCases)
	}
	return nil
}

// readTestCase reads a case to the end of its element.
func (j *junitParser) readTestCase(e *xml.StartElement) error {
	if err := j.checkLimit(); err != nil {
		return err
	}
	c := testCase{Name: attr(e, "name"), File: attr(e, "file"), Outcome: passed, Duration: parseSeconds(attr(e, "time"))}
	class := cmp.Or(attr(e, "classname"), j.innermost(func(s *openSuite) string { return s.name }))
	c.File = cmp.Or(c.File, j.innermost(func(s *openSuite) string { return s.file }), class)
	c.ID = c.Name
	if class != "" {
		c.ID = class + "." + c.Name
	}
	if s := attr(e, "status"); s == "notrun" || s == "disabled" { // GoogleTest
		c.Outcome = skipped
	}
	c.Name, c.ID, c.File = shorten(c.Name, 1000), shorten(c.ID, 2000), shorten(c.File, 1000)
	err := j.readCase(&c)
	j.cases = append(j.cases, c)
	return err
}

// suiteFailed reads the failure of a suite as a case with its name.
func (j *junitParser) suiteFailed(e *xml.StartElement) error {
	if err := j.checkLimit(); err != nil {
		return err
	}
	name := shorten(j.innermost(func(s *openSuite) string { return s.name }), 1000)
	c := testCase{ID: name, Name: name, File: name, Outcome: errored}
	text, err := j.text()
	c.Message = shorten(strings.TrimSpace(attr(e, "message")+"\n"+strings.TrimSpace(text)), maxMessage)
	j.cases = append(j.cases, c)
	if err != nil {
		return fmt.Errorf("it is truncated: %w", err)
	}
	return nil
}

// innermost returns the first text that is not empty, from the innermost suite to the outermost.
func (j *junitParser) innermost(get func(*openSuite) string) string {
	for i := range slices.Backward(j.suites) {
		if text := get(&j.suites[i]); text != "" {
			return text
		}
	}
	return ""
}

func (j *junitParser) readCase(c *testCase) error {
	truncated := func(err error) error {
		if c.Outcome == passed {
			c.Outcome, c.Message = errored, "its report is truncated"
		}
		return fmt.Errorf("it is truncated: %w", err)
	}
	for {
		tok, err := j.d.Token()
		if err != nil {
			return truncated(err)
		}
		switch e := tok.(type) {
		case xml.EndElement:
			return nil
		case xml.StartElement:
			outcome := ""
			switch e.Name.Local {
			case "failure":
				outcome = failed
			case "error":
				outcome = errored
			case "skipped", "disabled":
				outcome = skipped
			case "flakyFailure", "flakyError": // Surefire: it passed in the end
				c.Flaky = true
				c.Tries = max(c.Tries, 1) + 1
			case "rerunFailure", "rerunError": // it did not
				c.Tries = max(c.Tries, 1) + 1
			}
			text, err := j.text()
			if err != nil {
				return truncated(err)
			}
			if outcome == "" || c.Outcome == failed || c.Outcome == errored && outcome == skipped {
				continue
			}
			c.Outcome = outcome
			if c.Message = attr(&e, "message"); c.Message == "" || outcome != skipped && !strings.Contains(c.Message, "\n") && text != "" {
				c.Message = strings.TrimSpace(c.Message + "\n" + strings.TrimSpace(text))
			}
			c.Message = shorten(c.Message, maxMessage)
		}
	}
}

// text reads the text of the open element, including that of inner elements, to its end.
func (j *junitParser) text() (string, error) {
	var b strings.Builder
	for depth := 1; depth > 0; {
		tok, err := j.d.Token()
		if err != nil {
			return b.String(), err
		}
		switch e := tok.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return b.String(), errors.New("its elements are nested too deep")
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if space := 2*maxMessage - b.Len(); space > 0 {
				b.Write(e[:min(len(e), space)])
			}
		}
	}
	return b.String(), nil
}

func attr(e *xml.StartElement, name string) string {
	for i := range e.Attr {
		if e.Attr[i].Name.Local == name && e.Attr[i].Name.Space == "" {
			return e.Attr[i].Value
		}
	}
	return ""
}

// parseSeconds parses a time attribute: 0.05, or 1,234.5.
func parseSeconds(text string) float64 {
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || !(f >= 0 && f < 1e9) {
		return 0
	}
	return f
}
