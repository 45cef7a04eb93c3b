package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// hostileText would set a title, clear the screen and fake a line.
const hostileText = "a\x1b]0;X\x07\x1b[2J\u009b31m\x7f\u202e👩\u200d🔬\U000e0041\r\nmuster: done"

// newTerminal returns an app at a terminal.
func newTerminal() (a *App, out, err *bytes.Buffer) {
	a, out, err = newApp()
	a.Out.Terminal, a.Err.Terminal = true, true
	return a, out, err
}

// unsafeOnTerminal returns what of an output is not text.
func unsafeOnTerminal(output string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || !term.Unsafe(r) {
			return -1
		}
		return r
	}, output)
}

// TestTextsOfServersAtATerminal prints what a server says in all formats.
func TestTextsOfServersAtATerminal(t *testing.T) {
	type value struct {
		Text string            `json:"text"`
		Map  map[string]string `json:"map"`
	}
	v := value{hostileText, map[string]string{hostileText: "<&>"}}
	formats := map[string]OutputOptions{"json": {Output: "json"}, "yaml": {Output: "yaml"}, "quiet": {Quiet: true}, "name": {Output: "name"}, "jsonpath": {Output: "jsonpath={.text}", template: "{.text}"}, "table": {}}
	for name, f := range formats {
		a, out, errs := newTerminal()
		draw := func() error {
			table := term.NewTable(term.Column{Title: "TEXT"})
			table.AddRow(v.Text)
			d := Details{App: a}
			d.AddPainted("state", term.Red, v.Text)
			d.Add("text", v.Text)
			return errors.Join(table.Draw(a.Out), d.Draw())
		}
		if err := errors.Join(a.Print(f, v, []string{v.Text}, draw), a.PrintLine(f, v, v.Text, draw)); err != nil {
			t.Fatal(name, err)
		}
		a.PrintError(&muster.Error{Code: muster.Forbidden, Message: v.Text, Fields: []muster.FieldError{{Path: v.Text, Message: "field" + v.Text}}})
		a.Warnf("%s", v.Text)
		if bad := unsafeOnTerminal(out.String() + errs.String()); bad != "" {
			t.Errorf("%s: a terminal gets %q in %q %q", name, bad, out, errs)
		}
		if all := out.String() + errs.String(); strings.Contains(all, "\nmuster: done") && name != "jsonpath" {
			t.Errorf("%s: a faked message in %q", name, all)
		}
	}
	// Documents have the same value on a terminal as elsewhere.
	for _, terminal := range []bool{true, false} {
		a, out, _ := newApp()
		a.Out.Terminal = terminal
		var read value
		if err := a.Print(formats["json"], v, nil, nil); err != nil || json.Unmarshal(out.Bytes(), &read) != nil || read.Text != v.Text || read.Map[v.Text] != "<&>" {
			t.Errorf("JSON has %q, %v", out, err)
		}
		out.Reset()
		read = value{}
		if err := a.Print(formats["yaml"], v, nil, nil); err != nil || yaml.Unmarshal(out.Bytes(), &read) != nil || read.Text != v.Text || read.Map[v.Text] != "<&>" {
			t.Errorf("YAML has %q, %v", out, err)
		}
	}
	// Other formats are bytes elsewhere.
	a, out, errs := newApp()
	if err := a.Print(formats["quiet"], v, []string{v.Text}, nil); err != nil || out.String() != v.Text+"\n" {
		t.Errorf("a file has %q, %v", out, err)
	}
	a.PrintError(errors.New(v.Text))
	if want := "muster: " + v.Text + "\n"; errs.String() != want {
		t.Errorf("a file has %q, want %q", errs, want)
	}
}

type hostileStringer struct{}

func (hostileStringer) String() string { return hostileText }

type hostileMarshaler struct{}

func (hostileMarshaler) MarshalText() ([]byte, error) { return []byte(hostileText), nil }

// TestLogsAtATerminal logs what a server says as attributes of all kinds. Each record is one line.
func TestLogsAtATerminal(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for _, terminal := range []bool{true, false} {
			a, _, errs := newApp()
			a.Err.Terminal = terminal
			log, err := (&LogOptions{Level: "debug", Format: format}).Logger(a.Err)
			if err != nil {
				t.Fatal(err)
			}
			log = log.With(slog.String(hostileText, "x")).WithGroup(hostileText)
			log.Error(hostileText, slog.String("a", hostileText), slog.Any("b", errors.New(hostileText)), slog.Any("c", hostileStringer{}), slog.Any("d", hostileMarshaler{}),
				slog.Any("e", []byte(hostileText)), slog.Any("f", []string{hostileText}), slog.Any("g", map[string]string{hostileText: hostileText}), slog.Any("h", struct{ S string }{hostileText}),
				slog.Any("i", json.RawMessage(`"x`+"\u202e"+`"`)), slog.Group(hostileText, slog.String(hostileText, "x")), slog.Any("j", fmt.Errorf("%w", errors.New(hostileText))),
				slog.Duration("k", time.Second), slog.Any("l", slog.StringValue(hostileText)), slog.Any("m", new(hostileText)))
			if n := strings.Count(errs.String(), "\n"); n != 1 {
				t.Errorf("%s: %d lines: %q", format, n, errs)
			}
			if bad := unsafeOnTerminal(errs.String()); bad != "" && (terminal || format == "text") {
				t.Errorf("%s, terminal %v: %q in %q", format, terminal, bad, errs)
			}
		}
	}
}
