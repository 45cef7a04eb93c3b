package app

import (
	"context"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

func TestJSONPath(t *testing.T) {
	rows := []row{
		{ID: 1 << 60, Text: "a <b>", Tags: map[string]string{"team.x": "vision"}, More: []any{1.5, "z", map[string]any{"n": 7}}},
		{ID: 2, Text: "c"},
	}
	for template, want := range map[string]string{
		"{.id}":                          "1152921504606846976\n2\n",
		".id":                            "1152921504606846976\n2\n",
		"$.text":                         "a <b>\nc\n",
		"{.id}{\"\\t\"}{.text}{\"\\n\"}": "1152921504606846976\ta <b>\n2\tc\n",
		`{.tags.team\.x}`:                "vision\n\n",
		`{.tags['team\.x']}`:             "vision\n\n",
		"{.more[0]} {.more[-1:].n}":      "1.5 7\n \n",
		"{range .more[*]}<{@}>{end}":     "<1.5><z><{\"n\":7}>\n\n",
		"{.more[?(@.n>5)].n}":            "7\n\n",
		"{.nothing.at.all}":              "\n\n",
		"plain {.id} text":               "plain 1152921504606846976 text\nplain 2 text\n",
	} {
		a, out, errs := newApp()
		var f OutputOptions
		cmd := a.NewCommand(Command{Name: "x", Category: CategorySetup, Flags: f.Flags(), Run: func(context.Context, []string) error {
			l := Listing[row]{OutputOptions: f, Rows: seq(rows), ID: func(r row) string { return r.Text }}
			if err := l.Write(a); err != nil {
				return err
			}
			a.Messagef("items:")
			return PrintItems(a, f, rows, func(r row) string { return r.Text }, nil)
		}})
		if status := a.Run(t.Context(), []*cli.Command{cmd}, []string{"muster", "x", "-o", "jsonpath=" + template}); status != 0 {
			t.Errorf("%s: status %d: %s", template, status, errs)
		}
		if got := out.String(); got != want+want {
			t.Errorf("%s: %q, want %q twice", template, got, want)
		}
	}
}

// A wrong template is a usage error, before the command runs.
func TestWrongJSONPath(t *testing.T) {
	for _, template := range []string{"", "{.id", "{.x[}", "{?}", "{.a[0:1:2:3]}"} {
		a, out, errs := newApp()
		var f OutputOptions
		cmd := a.NewCommand(Command{Name: "x", Category: CategorySetup, Flags: f.Flags(), Run: func(context.Context, []string) error {
			return a.Print(f, map[string]any{"x": []any{1}}, nil, nil)
		}})
		if status := a.Run(t.Context(), []*cli.Command{cmd}, []string{"muster", "x", "-o", "jsonpath=" + template}); status != 2 || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: status %d, %s%s", template, status, out, errs)
		}
	}
}

// Any template is refused or writes whole lines.
func FuzzJSONPath(f *testing.F) {
	for _, s := range []string{"{.id}", "{range .more[*]}{@.n},{end}", "{.more[?(@.n>5)].n}", "{..n}", "{.more[1:2]}", `{"\n"}`, "{range .tags}{end}{end}", "{range .0}{[0]}", "{.a.b.c[*]['x','y']}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, template string) {
		template, err := checkJSONPath(template)
		if err != nil {
			return
		}
		for _, r := range []row{{}, {ID: 3, Tags: map[string]string{"a": "b"}, More: []any{nil, 1.5, "x", true, []any{1}, map[string]any{"n": 7, "m": nil}}}} {
			var out strings.Builder
			if err := writeJSONPath(&out, template, r); err == nil && !strings.HasSuffix(out.String(), "\n") {
				t.Errorf("%q writes %q", template, out.String())
			}
		}
	})
}
