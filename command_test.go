package muster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandJSON(t *testing.T) {
	for in, want := range map[string]Command{
		`"echo hi"`:           {Shell: "echo hi"},
		`["echo", "a b"]`:     {Argv: []string{"echo", "a b"}},
		` [ "x" ] `:           {Argv: []string{"x"}},
		`"quote \" \u00e9\n"`: {Shell: "quote \" é\n"},
	} {
		var c Command
		if err := json.Unmarshal([]byte(in), &c); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if d := cmp.Diff(want, c); d != "" {
			t.Errorf("%s: %s", in, d)
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again Command
		if err := json.Unmarshal(b, &again); err != nil || !cmp.Equal(c, again) {
			t.Errorf("%s: encoded as %s, decoded as %v, %v", in, b, again, err)
		}
	}
	for _, in := range []string{`5`, `{}`, `null`, `[1]`, `["a", null, 2]`, `[["a"]]`} {
		var c Command
		if err := c.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), "not a command") {
			t.Errorf("%s returns %v, %v", in, c, err)
		}
	}
}

func TestCheckpointJSON(t *testing.T) {
	for in, want := range map[string]Checkpoint{
		`"ckpt/"`: {Path: "ckpt/"},
		`{}`:      {},
		`{"path": "c", "every": "1m", "signal": "SIGUSR1", "grace": 90}`: {Path: "c", Every: Duration(60e9), Signal: "SIGUSR1", Grace: Duration(90e9)},
	} {
		var c Checkpoint
		if err := json.Unmarshal([]byte(in), &c); err != nil || !cmp.Equal(want, c) {
			t.Errorf("%s returns %v, %v", in, c, err)
		}
	}
	for in, want := range map[string]string{`5`: "not a checkpoint", `true`: "not a checkpoint", `""`: "is empty", `{"pth": "a"}`: "unknown field", `{"every": "often"}`: "not a duration"} {
		var c Checkpoint
		if err := c.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s returns %v", in, err)
		}
	}
}

func TestGangJSON(t *testing.T) {
	for in, want := range map[string]Gang{`4`: {Size: 4}, `{"size": 2, "on_loss": "end"}`: {Size: 2, OnLoss: GangEnd}} {
		var g Gang
		if err := json.Unmarshal([]byte(in), &g); err != nil || !cmp.Equal(want, g) {
			t.Errorf("%s returns %v, %v", in, g, err)
		}
	}
	for in, want := range map[string]string{`"four"`: "not a gang", `1.5`: "not a gang", `[4]`: "not a gang", `{"sizes": 4}`: "unknown field"} {
		var g Gang
		if err := g.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s returns %v", in, err)
		}
	}
}

func TestScriptJSON(t *testing.T) {
	for in, want := range map[string]Script{
		`"#!/bin/sh\necho"`:                   {Text: "#!/bin/sh\necho"},
		`{"url": "https://x", "args": ["a"]}`: {URL: "https://x", Args: []string{"a"}},
	} {
		var s Script
		if err := json.Unmarshal([]byte(in), &s); err != nil || !cmp.Equal(want, s) {
			t.Errorf("%s returns %v, %v", in, s, err)
		}
	}
	for in, want := range map[string]string{`5`: "not a script", `{"txt": "a"}`: "unknown field", `{"text": 5}`: "script"} {
		var s Script
		if err := s.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s returns %v", in, err)
		}
	}
}
