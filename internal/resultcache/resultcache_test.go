package resultcache_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/resultcache"
)

const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func input() *resultcache.Input {
	return &resultcache.Input{
		Spec: &muster.TaskSpec{
			Name: "train", Kind: muster.KindScript, Files: digest, Script: &muster.Script{Text: "print(1)", Args: []string{"--lr", "0.1"}},
			Env: map[string]string{"SEED": "1", "MODE": "fast"}, Input: json.RawMessage(`{"epochs":3,"model":{"depth":2}}`),
			Secrets: []muster.Secret{{Name: "TOKEN"}}, Cache: muster.DefaultCacheLifetime,
			Array: &muster.Array{Ranges: []muster.Range{{First: 5, Last: 9, Step: 1}}},
		},
		Element: 2, Files: []muster.InputFile{{Path: "data.csv", SHA256: strings.Repeat("a", 64), Size: 3}}, Secrets: []string{"1"},
	}
}

func compute(t *testing.T, in *resultcache.Input) *muster.TaskCache {
	t.Helper()
	c, err := resultcache.Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEqualTasksHaveEqualKeys(t *testing.T) {
	a, b := compute(t, input()), compute(t, input())
	if a.Key != b.Key || !muster.IsSHA256(a.Key) || !reflect.DeepEqual(a.Fields, b.Fields) {
		t.Errorf("two equal tasks have %+v and %+v", a, b)
	}
}

func TestWhatDeterminesTheResultIsInTheKey(t *testing.T) {
	was := compute(t, input())
	for field, change := range map[string]func(*resultcache.Input){
		"kind":            func(in *resultcache.Input) { in.Spec.Kind = muster.KindProcess },
		"kind.version":    func(in *resultcache.Input) { in.Kind = "v2" },
		"files":           func(in *resultcache.Input) { in.Spec.Files = "sha256:" + strings.Repeat("b", 64) },
		"stdin":           func(in *resultcache.Input) { in.Spec.Stdin = digest },
		"script.text":     func(in *resultcache.Input) { in.Spec.Script.Text = "print(2)" },
		"script.args":     func(in *resultcache.Input) { in.Spec.Script.Args[1] = "0.2" },
		"run":             func(in *resultcache.Input) { in.Spec.Run = &muster.Command{Shell: "date"} },
		"python.packages": func(in *resultcache.Input) { in.Spec.Python = &muster.Python{Packages: []string{"numpy"}} },
		"env.SEED":        func(in *resultcache.Input) { in.Spec.Env["SEED"] = "2" },
		"env.NEW":         func(in *resultcache.Input) { in.Spec.Env["NEW"] = "" },
		"input.epochs":    func(in *resultcache.Input) { in.Spec.Input = json.RawMessage(`{"epochs":4,"model":{"depth":2}}`) },
		"input.model":     func(in *resultcache.Input) { in.Spec.Input = json.RawMessage(`{"epochs":3,"model":{"depth":3}}`) },
		"image":           func(in *resultcache.Input) { in.Spec.Image = "python@" + digest },
		"inputs.data.csv": func(in *resultcache.Input) { in.Files[0].SHA256 = strings.Repeat("b", 64) },
		"secrets.TOKEN":   func(in *resultcache.Input) { in.Secrets[0] = "2" },
		"index":           func(in *resultcache.Input) { in.Element = 3 },
		"item":            func(in *resultcache.Input) { in.Spec.Array.Items = []json.RawMessage{nil, nil, json.RawMessage(`"x"`)} },
		"outputs":         func(in *resultcache.Input) { in.Spec.Outputs = []string{"*.pt"} },
		"resources.cpus":  func(in *resultcache.Input) { in.Spec.Resources.CPUs = 2 },
		"network":         func(in *resultcache.Input) { in.Spec.Network = muster.NetworkNone },
	} {
		in := input()
		change(in)
		is := compute(t, in)
		found := false
		for _, d := range resultcache.Differences(is.Fields, was.Fields) {
			found = found || d.Name == field
		}
		if is.Key == was.Key || !found {
			t.Errorf("%s: the keys differ: %t, the differences name it: %t", field, is.Key != was.Key, found)
		}
	}
}

func TestWhatDoesNotDetermineTheResultIsNotInTheKey(t *testing.T) {
	was := compute(t, input())
	for name, change := range map[string]func(*muster.TaskSpec){
		"name":        func(s *muster.TaskSpec) { s.Name = "other" },
		"needs":       func(s *muster.TaskSpec) { s.Needs, s.When = []string{"prepare"}, muster.WhenAlways },
		"timeouts":    func(s *muster.TaskSpec) { s.Timeout, s.QueueTimeout = 5, 6 },
		"retries":     func(s *muster.TaskSpec) { s.Retries.Max = 3 },
		"kill":        func(s *muster.TaskSpec) { s.Kill.Grace = 1 },
		"disconnect":  func(s *muster.TaskSpec) { s.Disconnect.Grace = 1 },
		"checkpoint":  func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{} },
		"lifetime":    func(s *muster.TaskSpec) { s.Cache = muster.CacheLifetime(time.Hour) },
		"log cap":     func(s *muster.TaskSpec) { s.LogCap = muster.MinLogCap },
		"array limit": func(s *muster.TaskSpec) { s.Array.Limit = 2 },
		"array end":   func(s *muster.TaskSpec) { s.Array.Ranges[0].Last = 20 },
		"from":        func(s *muster.TaskSpec) { s.Inputs = []muster.Input{{From: "prepare", Name: "data.csv"}} },
	} {
		in := input()
		change(in.Spec)
		if is := compute(t, in); is.Key != was.Key {
			t.Errorf("%s changes the key: %v", name, resultcache.Differences(is.Fields, was.Fields))
		}
	}
}

func TestWhatMayChangeUnderItsNameIsNotCached(t *testing.T) {
	for want, s := range map[string]*muster.TaskSpec{
		"the image python:3.12 may change":                            {Kind: muster.KindContainer, Image: "python:3.12"},
		"the image acme/train may change":                             {Kind: muster.KindContainer, Image: "acme/train"},
		"the script at https://xxxxx@x.example/a?(hidden) may change": {Kind: muster.KindScript, Script: &muster.Script{URL: "https://u:p@x.example/a?token=1"}},
	} {
		if _, err := resultcache.Compute(&resultcache.Input{Spec: s}); muster.CodeOf(err) != muster.Invalid || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	compute(t, &resultcache.Input{Spec: &muster.TaskSpec{Kind: muster.KindContainer, Image: "python:3.12@" + digest}})
	compute(t, &resultcache.Input{Spec: &muster.TaskSpec{Kind: muster.KindScript, Script: &muster.Script{URL: "https://x.example/a", SHA256: strings.Repeat("a", 64)}}})
}

func TestStoredFieldsAreBounded(t *testing.T) {
	in := input()
	in.Spec.Env = map[string]string{"PASSWORD": "hunter2"}
	for i := range 1000 {
		in.Spec.Env[fmt.Sprintf("N%04d", i)] = "x"
	}
	in.Spec.Script.Text = strings.Repeat("x", 100_000)
	was := compute(t, in)
	if n := len(was.Fields); n != 300 {
		t.Errorf("%d fields are stored", n)
	}
	b, err := json.Marshal(was.Fields)
	if err != nil || len(b) > 60_000 || strings.Contains(string(b), "hunter2") {
		t.Errorf("%d bytes are stored: %.300s, %v", len(b), b, err)
	}
	in.Spec.Env["PASSWORD"] = "hunter3" // one of those that are not stored one by one
	is := compute(t, in)
	if d := resultcache.Differences(is.Fields, was.Fields); is.Key == was.Key || len(d) != 1 || d[0].Name != "others" {
		t.Errorf("differences: %v", d)
	}
}

func TestNearest(t *testing.T) {
	entry := func(name, kind string, values ...string) muster.CacheEntry {
		e := muster.CacheEntry{Name: name, Kind: kind}
		for i, v := range values {
			e.Fields = append(e.Fields, muster.CacheField{Name: fmt.Sprint(i), Value: v})
		}
		return e
	}
	task := entry("", "", "a", "b", "c").Fields
	list := []muster.CacheEntry{entry("other", "script", "a", "b", "c"), entry("train", "script", "x", "y", "c"), entry("train", "script", "a", "y", "c"), entry("train", "script", "a", "z", "c"), entry("train", "noop", "a", "b", "c")}
	if e := resultcache.Nearest("train", "script", task, list); e != &list[2] {
		t.Errorf("the nearest is %+v", e)
	}
	if e := resultcache.Nearest("train", "script", task, nil); e != nil {
		t.Errorf("of none: %+v", e)
	}
	if d := resultcache.Differences(task, list[2].Fields[:2]); len(d) != 2 || d[0] != (resultcache.Difference{Name: "1", Task: "b", Entry: "y"}) || d[1] != (resultcache.Difference{Name: "2", Task: "c"}) {
		t.Errorf("differences: %v", d)
	}
}
