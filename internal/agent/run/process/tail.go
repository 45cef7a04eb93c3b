package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	maxTail         = 1 << 10         // bytes of each stream in the result of a program without result.json
	maxMessageTail  = 1 << 10         // bytes of standard error in the message of a failure
	maxMessageLines = 10              // lines of it
	tailScan        = 1 << 20         // bytes at the end of a log that are read for the tails, and what is before them in its last segment
	tailTimeout     = 5 * time.Second // for reading them
)

// tail is the end of a stream.
type tail struct {
	text []byte
	cut  bool // something is before it
}

// add appends data, and keeps at most twice maxTail.
func (t *tail) add(data []byte) {
	t.text = append(t.text, data...)
	if len(t.text) > 2*maxTail {
		t.trim()
	}
}

// trim cuts the text to maxTail bytes. It begins with a whole line, if one ends in it.
func (t *tail) trim() {
	if len(t.text) <= maxTail {
		return
	}
	rest := t.text[len(t.text)-maxTail:]
	if t.text[len(t.text)-maxTail-1] != '\n' {
		if i := bytes.IndexByte(rest, '\n'); i >= 0 && i+1 < len(rest) {
			rest = rest[i+1:]
		}
	}
	for len(rest) > 0 && !utf8.RuneStart(rest[0]) {
		rest = rest[1:]
	}
	t.text, t.cut = append(t.text[:0], rest...), true
}

// tails are the ends of what a program printed.
type tails struct{ stdout, stderr tail }

// readTails returns the ends of the attempt's output, in which the supervisor has replaced secrets. They are empty if its log cannot be read.
func (a *Attempt) readTails(ctx context.Context) *tails {
	t := &tails{}
	size := a.log.size()
	if size == 0 {
		return t
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailTimeout)
	defer cancel()
	if err := t.read(ctx, a.executor.deps.Logs, a.Task.Attempt, max(0, size-tailScan)); err != nil {
		a.executor.deps.Log.Warn("the end of a log cannot be read", slog.String("attempt", a.Task.Attempt.String()), slog.Any("error", err))
	}
	t.stdout.trim()
	t.stderr.trim()
	return t
}

// read reads the log from a record at or before an offset.
func (t *tails) read(ctx context.Context, logs Logs, id muster.AttemptID, offset int64) error {
	start, err := logs.RecordBefore(ctx, id, offset)
	if err != nil {
		return err
	}
	r, err := logs.Open(ctx, id, start)
	if err != nil {
		return err
	}
	defer r.Close()
	t.stdout.cut, t.stderr.cut = start > 0, start > 0
	dec := tasklog.NewDecoderAt(run.ContextReader(ctx, r), start)
	for {
		record, err := dec.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case record.Stream == tasklog.Stdout:
			t.stdout.add(record.Data)
		case record.Stream == tasklog.Stderr:
			t.stderr.add(record.Data)
		}
	}
}

// result returns the result of a program that wrote none: its exit code and the ends of its output, nil if it printed nothing.
func (t *tails) result(code int) json.RawMessage {
	if len(t.stdout.text)+len(t.stderr.text) == 0 {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(struct {
		ExitCode  int    `json:"exit_code"`
		Stdout    string `json:"stdout"`
		Stderr    string `json:"stderr"`
		Truncated bool   `json:"truncated,omitempty"`
	}{code, string(t.stdout.text), string(t.stderr.text), t.stdout.cut || t.stderr.cut})
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// describe adds to the message of a failure what the program printed last on standard error: the last line to the message, which mostly is
// the error, and on lines of their own the last lines, if there are several.
func (t *tails) describe(message string) string {
	lines := plainLines(t.stderr.text)
	if len(lines) == 0 {
		return message
	}
	message += ": " + lines[len(lines)-1]
	if len(lines) > 1 {
		message += "\n" + strings.Join(lines, "\n")
	}
	return message
}

// plainLines returns the last lines of a text, without blank ones at its end, as they are without a terminal.
func plainLines(text []byte) []string {
	var lines []string
	size := 0
	all := strings.Split(strings.ToValidUTF8(string(text), "\uFFFD"), "\n")
	for i := len(all) - 1; i >= 0 && len(lines) < maxMessageLines; i-- {
		line := plainLine(all[i])
		if line == "" && len(lines) == 0 {
			continue
		}
		if rest := maxMessageTail - size; len(line) > rest {
			if len(lines) > 0 {
				break
			}
			line = strings.ToValidUTF8(line[:rest-len("…")], "") + "…"
		}
		size += len(line) + 1
		lines = append(lines, line)
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return lines
}

// terminalSequences are the escape sequences of terminals: colors, titles, movements of the cursor.
var terminalSequences = lazyregexp.New(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]`)

// plainLine returns a line without escape sequences and control characters. Of a line that was rewritten, such as a progress bar, it returns
// the last state.
func plainLine(line string) string {
	line = terminalSequences.Get().ReplaceAllString(strings.TrimRight(line, "\r"), "")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	line = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, line)
	return strings.TrimRight(line, " ")
}
