package catalog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/catalog"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/link"
)

// definition is a custom kind whose input has one field.
func definition(name, field string) string {
	return fmt.Sprintf(`{"name":%q,"about":"It is a test.","entry":["./x"],"resources":{"memory":1024},"input":{"type":"object","properties":{%q:{"type":"integer"}}}}`, name, field)
}

func worker(id string, state muster.WorkerState, kinds string, custom ...string) muster.Worker {
	w := muster.Worker{ID: muster.WorkerID(id), Name: "name-of-" + id, State: state, Kinds: strings.Fields(kinds)}
	if len(custom) > 0 {
		w.CustomKinds = json.RawMessage("[" + strings.Join(custom, ",") + "]")
	}
	return w
}

// doubling is a schema of n parts whose validation takes 2^n steps.
func doubling(n int) string {
	defs := []string{`"a0":{"type":"object"}`}
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i))
	}
	return fmt.Sprintf(`{"type":"object","$ref":"#/$defs/a%d","$defs":{%s}}`, n, strings.Join(defs, ","))
}

func find(t *testing.T, list []wire.Kind, name string) wire.Kind {
	t.Helper()
	for _, k := range list {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("there is no kind %s", name)
	return wire.Kind{}
}

func admit(t *testing.T, c *catalog.Catalog, fleet []muster.Worker, stages ...muster.TaskSpec) (*muster.Spec, string) {
	t.Helper()
	s := &muster.Spec{Tasks: stages}
	wrong, err := c.Admit(s, func() ([]muster.Worker, error) { return fleet, nil })
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	for _, e := range wrong {
		problems = append(problems, e.String())
	}
	return s, strings.Join(problems, "\n")
}

func TestJobsAreValidatedAgainstKnownKinds(t *testing.T) {
	c := catalog.New(slog.New(slog.DiscardHandler))
	fleet := []muster.Worker{
		worker("w1", muster.WorkerActive, "process resize", definition("resize", "width")),
		worker("w2", muster.WorkerGone, "process blur", definition("blur", "radius")),
	}
	input := func(kind, raw string) muster.TaskSpec {
		return muster.TaskSpec{Kind: kind, Input: json.RawMessage(raw)}
	}
	for _, tc := range []struct {
		stage muster.TaskSpec
		want  string // "" means that it is right
	}{
		{input("echo", `{"any": "thing"}`), ""},
		{input("resize", `{"width": 640}`), ""},
		{input("resize", `{"width": "wide"}`), "tasks[0].input.width: "},
		{input("resize", `{"widht": 640}`), "did you mean width?"},
		{input("blur", `{"radius": 3}`), ""}, // its worker may come back
		{input("resise", ``), "tasks[0].kind: there is no kind resise (did you mean resize?)"},
		{input("sript", ``), "did you mean script?"},
		{input("zzzzzzzzzz", ``), "known kinds are noop, process, script, container, "},
		{muster.TaskSpec{Kind: "resize", Run: &muster.Command{Shell: "true"}}, "tasks[0].run: "},
		{muster.TaskSpec{Run: &muster.Command{Shell: "true"}}, ""},
		{muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Input: json.RawMessage(`{"a":1}`)}, "tasks[0].input: "},
		{muster.TaskSpec{}, ""}, // nothing to run: Validate's
	} {
		_, problems := admit(t, c, fleet, tc.stage)
		if tc.want == "" && problems != "" || !strings.Contains(problems, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.stage.Kind, tc.stage.Input, problems, tc.want)
		}
	}
	got, _ := admit(t, c, fleet, input("resize", `{}`), muster.TaskSpec{Kind: "resize", Resources: muster.Request{Memory: 5}})
	if got.Tasks[0].Resources.Memory != 1024 || got.Tasks[1].Resources.Memory != 5 {
		t.Errorf("the kind's resources became %+v and %+v", got.Tasks[0].Resources, got.Tasks[1].Resources)
	}
	if _, problems := admit(t, c, nil, input("resize", `{}`)); !strings.Contains(problems, "there is no kind resize") {
		t.Errorf("the kind is still known after its worker was removed: %q", problems)
	}
}

func TestFleetIsQueriedOnlyIfNecessary(t *testing.T) {
	c := catalog.New(slog.New(slog.DiscardHandler))
	errUnavailable := errors.New("unreachable")
	for kind, asks := range map[string]bool{"": false, "noop": false, "process": false, "echo": false, "custom": true, "resize": true} {
		_, err := c.Admit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: kind}}}, func() ([]muster.Worker, error) { return nil, errUnavailable })
		if errors.Is(err, errUnavailable) != asks {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
}

// Definitions of one worker do not affect those of others and Muster's own.
func TestInvalidKindsOfAWorkerAreIgnored(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 5000) + "{}" + strings.Repeat("}", 5000)
	for name, custom := range map[string]string{
		"no definition":                `7`,
		"unknown field":                `{"name":"bad","about":"x","entry":["./x"],"evil":1}`,
		"no entry":                     `{"name":"bad","about":"x"}`,
		"a core name":                  definition("process", "x"),
		"an embedded name":             `{"name":"echo","about":"x","entry":["./x"],"input":{"type":"object","required":["money"],"properties":{"money":{"type":"integer"}}}}`,
		"an operation's name":          `{"name":"prepare_models","about":"x","entry":["./x"],"operation":true,"input":{"type":"object"}}`,
		"a name that is a path":        definition("../../x", "x"),
		"an invalid schema":            `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":7}}`,
		"a remote schema":              `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","$ref":"file:///etc/passwd"}}`,
		"a deep schema":                `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":{"a":` + deep + `}}}`,
		"an invalid pattern":           `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":{"a":{"pattern":"(("}}}}`,
		"a number beyond all":          `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":{"a":{"minimum":1e999999999}}}}`,
		"a schema without end":         `{"name":"bad","about":"x","entry":["./x"],"input":` + doubling(40) + `}`,
		"a schema within itself":       `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}}`,
		"a schema with all of itself":  `{"name":"bad","about":"x","entry":["./x"],"input":{"type":"object","properties":{"a":{"$ref":"#"}}}}`,
		"a valid and an invalid one":   definition("fine", "x") + `,7`,
		"more bytes than are allowed":  definition("big", strings.Repeat("x", kind.MaxCustomSize)),
		"a good one and a taken name ": definition("echo", "x"),
	} {
		var log bytes.Buffer
		c := catalog.New(slog.New(slog.NewTextHandler(&log, nil)))
		fleet := []muster.Worker{worker("w1", muster.WorkerActive, "resize", definition("resize", "width")), worker("w2", muster.WorkerActive, "bad echo fine", custom)}
		for range 3 {
			list := c.List(fleet)
			for _, k := range list {
				if k.Own && k.Name != "resize" {
					t.Errorf("%s: unexpected kind %s", name, k.Name)
				}
			}
			if k := find(t, list, "echo"); k.Own || len(k.Input) == 0 || strings.Contains(string(k.Input), "money") {
				t.Errorf("%s: echo is %+v", name, k)
			}
		}
		s, problems := admit(t, c, fleet, muster.TaskSpec{Kind: "resize", Input: json.RawMessage(`{"width":1}`)}, muster.TaskSpec{Kind: "echo"}, muster.TaskSpec{Kind: kind.Custom, Input: json.RawMessage(`{"name":"prepare_models","parameters":{"models":["gpt2"]}}`)})
		if problems != "" || s.Tasks[2].Kind != kind.Custom {
			t.Errorf("%s: %s, and kind custom became %s", name, problems, s.Tasks[2].Kind)
		}
		if n := strings.Count(log.String(), "name-of-w2"); n != 1 {
			t.Errorf("%s: it is logged %d times: %s", name, n, log.String())
		}
	}
	if link.MaxOwnKinds < kind.MaxCustomSize {
		t.Error("a worker's list is too large for the link")
	}
}

func TestListCountsWorkers(t *testing.T) {
	c := catalog.New(slog.New(slog.DiscardHandler))
	a, b := definition("resize", "width"), definition("resize", "height")
	list := c.List([]muster.Worker{
		worker("w1", muster.WorkerActive, "echo resize", a), worker("w2", muster.WorkerPaused, "echo resize", b),
		worker("w3", muster.WorkerUnreachable, "resize", b, definition("blur", "x")), worker("w4", muster.WorkerGone, "echo resize", definition("blur", "x"), b),
	})
	if k := find(t, list, "resize"); k.Offered != 2 || k.Away != 2 || k.Differ != 1 || !k.Own || !strings.Contains(string(k.Input), "height") || len(k.Workers) != 2 {
		t.Errorf("resize is %+v", k)
	}
	if k := find(t, list, "blur"); k.Offered != 0 || k.Differ != 0 || !k.Own {
		t.Errorf("blur is %+v", k)
	}
	if k := find(t, list, "echo"); k.Offered != 2 || k.Away != 1 || k.Own {
		t.Errorf("echo is %+v", k)
	}
	if k := find(t, list, "process"); k.Run != kind.RunRequired || k.Offered != 0 {
		t.Errorf("process is %+v", k)
	}
}
