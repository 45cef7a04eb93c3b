package logview

import (
	"bytes"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// MaxQuery is the maximum length of a text or pattern, in bytes.
const MaxQuery = 1000

// Matcher returns where in a record a match begins and ends. One goroutine uses it.
type Matcher func(data []byte) (from, to int, ok bool)

// Text returns a Matcher for a text.
func Text(q string, caseSensitive bool) Matcher {
	want := []byte(q)
	if caseSensitive {
		return func(data []byte) (int, int, bool) {
			i := bytes.Index(data, want)
			return i, i + len(want), i >= 0
		}
	}
	if !isASCII(want) {
		return regexpMatcher(regexp.MustCompile("(?i)" + regexp.QuoteMeta(strings.ToValidUTF8(q, "\uFFFD"))))
	}
	toLowerASCII(want)
	var buf []byte
	return func(data []byte) (int, int, bool) {
		buf = append(buf[:0], data...)
		toLowerASCII(buf)
		i := bytes.Index(buf, want)
		return i, i + len(want), i >= 0
	}
}

const (
	// maxStates limits the automaton of a pattern: the time of a match grows with its states and the size of the record.
	maxStates = 500
	// maxUntimedWork is the number of states times bytes that are matched without a deadline: half a second at worst.
	maxUntimedWork = 16 << 20
	// maxRecordTime is the maximum time to match one record.
	maxRecordTime = 500 * time.Millisecond
)

// Pattern returns a Matcher for a regular expression in RE2 syntax. A record that takes longer than maxRecordTime does not
// match.
func Pattern(q string, caseSensitive bool) (Matcher, error) {
	tree, err := syntax.Parse(q, syntax.Perl)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%q is not a regular expression (RE2 syntax): %w", q, err)
	}
	size := states(tree)
	if size > maxStates {
		return nil, muster.Errorf(muster.Invalid, "the regular expression has %d states, at most %d are allowed: use fewer repetitions, such as x* in place of x{999}", size, maxStates)
	}
	if !caseSensitive {
		q = "(?i)(?:" + q + ")"
	}
	re, err := regexp.Compile(q)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%q is not a regular expression (RE2 syntax): %w", q, err)
	}
	matchAll := regexpMatcher(re)
	return func(data []byte) (int, int, bool) {
		if len(data)*size <= maxUntimedWork {
			return matchAll(data)
		}
		r := &timedReader{rest: data, deadline: time.Now().Add(maxRecordTime)}
		loc := re.FindReaderIndex(r)
		if loc == nil || r.expired {
			return 0, 0, false
		}
		return loc[0], loc[1], true
	}, nil
}

// states returns the approximate number of states of an expression's automaton, without compiling it.
func states(re *syntax.Regexp) int {
	sum := 1
	for _, sub := range re.Sub {
		sum += states(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpRepeat: // of at most 1,000, also nested
		return (sum - 1) * max(re.Max, re.Min+1, 1)
	default:
		return sum
	}
}

// timedReader reads runes until a deadline.
type timedReader struct {
	rest     []byte
	deadline time.Time
	n        int
	expired  bool
}

// ReadRune implements io.RuneReader.
func (r *timedReader) ReadRune() (rune, int, error) {
	if r.n++; r.n%512 == 0 && time.Now().After(r.deadline) {
		r.expired = true
	}
	if r.expired || len(r.rest) == 0 {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.rest)
	r.rest = r.rest[size:]
	return c, size, nil
}

func regexpMatcher(re *regexp.Regexp) Matcher {
	return func(data []byte) (int, int, bool) {
		loc := re.FindIndex(data)
		if loc == nil {
			return 0, 0, false
		}
		return loc[0], loc[1], true
	}
}

// errorHints: every line that errorLine matches contains one of them in lower case. Searching for them is cheap.
var errorHints = [][]byte{
	[]byte("error"), []byte("exception"), []byte("traceback"), []byte("panic"), []byte("fatal"), []byte("critical"), []byte("out of memory"), []byte("killed"),
	[]byte("segmentation fault"), []byte("core dumped"), []byte("command not found"), []byte("aborted"), []byte("failed"),
}

// errorLine matches error messages of programs: stack traces, compilers, loggers, the shell and CUDA. It does not match metrics
// and summaries such as "error=0.1" and "0 errors".
var errorLine = lazyregexp.New(`(?i:\btraceback \(most recent call last\))` +
	`|\b[A-Za-z_.]*(?:Error|Exception)\b(?::|$|\s*\()` +
	`|(?i:(?:^|[^\w=.])(?:error|fatal|panic|exception)(?:\[[^\]]*\])?:(?:\s*[^\s\d]|\s*$))` +
	`|\b(?:ERROR|FATAL|CRITICAL|PANIC)(?:$|[^\w=])` +
	`|(?i:\bfatal error\b|\bunhandled exception\b|\bCUDA error\b|\bout of memory\b|\bsegmentation fault\b|\bcore dumped\b|: command not found\b)` +
	`|(?:^|\W)(?:Killed|Aborted|Assertion \S.* failed)(?:$|\W)`)

// Errors returns a Matcher for error messages of programs.
func Errors() Matcher {
	matchLine := regexpMatcher(errorLine.Get())
	var buf []byte
	return func(data []byte) (int, int, bool) {
		buf = append(buf[:0], data...)
		toLowerASCII(buf)
		for _, h := range errorHints {
			if bytes.Contains(buf, h) {
				return matchLine(bytes.TrimRight(data, "\r\n"))
			}
		}
		return 0, 0, false
	}
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// toLowerASCII converts ASCII letters to lower case in place.
func toLowerASCII(b []byte) {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
}
