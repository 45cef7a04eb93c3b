package progress_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
)

func TestParseLine(t *testing.T) {
	for line, want := range map[string]muster.Progress{
		`::muster progress=0.42 step="epoch 3/7" loss=0.12`: {Progress: new(0.42), Step: new("epoch 3/7"), Metrics: map[string]float64{"loss": 0.12}},
		`::muster step=warmup`:                              {Step: new("warmup")},
		`::muster   progress=1   `:                          {Progress: new(1.0)},
		`::muster step="a \"b\" \u00e4"	x=-1e-3`:            {Step: new(`a "b" ä`), Metrics: map[string]float64{"x": -0.001}},
		`::muster {"progress": 0, "loss/train": 2}`:         {Progress: new(0.0), Metrics: map[string]float64{"loss/train": 2}},
		`::muster {"metrics": {"a": 1}, "b": "2.5"}`:        {Metrics: map[string]float64{"a": 1, "b": 2.5}},
		`::muster progress=1.0000000002`:                    {Progress: new(1.0)},
	} {
		got, err := progress.ParseLine([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", line, d)
		}
	}
	for line, wantErr := range map[string]string{
		`::muster `:                                     "fields",
		`::muster progress=42`:                          "from 0 to 1",
		`::muster progress=NaN`:                         "from 0 to 1",
		`::muster loss=Inf`:                             "finite",
		`::muster {"loss": NaN}`:                        "JSON",
		`::muster {"progress": null}`:                   "from 0 to 1",
		`::muster phase=train`:                          "number",
		`::muster hello`:                                "name=value",
		`::muster 1x=2`:                                 "name",
		`::muster step="no end`:                         "quoted",
		`::muster step="a"b=1`:                          "space",
		`::muster x=` + strings.Repeat("1", 20<<10):     "longer",
		`::muster {"x": 1}}`:                            "JSON",
		`::muster {"metrics": {"x": "text"}}`:           "metrics",
		"::muster " + strings.Repeat("m=1 ", 3) + "m=x": "number",
	} {
		if got, err := progress.ParseLine([]byte(line)); err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%.60s: %v %v", line, got, err)
		}
	}
}

func TestStepIsTruncatedAtACharacter(t *testing.T) {
	p, err := progress.ParseLine([]byte(`::muster step="` + strings.Repeat("ä", progress.MaxStep) + `"`))
	if err != nil || len(*p.Step) > progress.MaxStep || len(*p.Step) < progress.MaxStep-1 || !utf8.ValidString(*p.Step) {
		t.Errorf("%v %v", p, err)
	}
}

// A JSON event is parsed without loss.
func TestParseEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := map[string]any{}
		want := muster.Progress{}
		if rapid.Bool().Draw(t, "with progress") {
			want.Progress = new(rapid.Float64Range(0, 1).Draw(t, "progress"))
			event["progress"] = *want.Progress
		}
		if rapid.Bool().Draw(t, "with step") {
			want.Step = new(rapid.StringN(0, 40, progress.MaxStep).Draw(t, "step"))
			event["step"] = *want.Step
		}
		for name, v := range rapid.MapOfN(rapid.StringMatching(`m[a-z_./-]{0,20}`), rapid.Float64(), 1, 5).Draw(t, "metrics") {
			if name == "metrics" || math.IsInf(v, 0) || math.IsNaN(v) {
				continue
			}
			if want.Metrics == nil {
				want.Metrics = map[string]float64{}
			}
			want.Metrics[name] = v
			event[name] = v
		}
		if len(event) == 0 {
			return
		}
		b, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		got, err := progress.ParseLine(append([]byte(progress.LinePrefix), b...))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

// For any output, a parsed event is within bounds and can be sent.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{`progress=0.42 step="epoch 3/7" loss=0.12`, `{"progress":1,"step":"x","metrics":{"a":1}}`, `a=0x1p-2`, `step=`, `{"a":1e999}`, "\xff=1"} {
		f.Add([]byte(progress.LinePrefix + s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := progress.ParseLine(line)
		if err != nil {
			if !utf8.ValidString(err.Error()) && utf8.Valid(line) {
				t.Errorf("the error for %q is not UTF-8: %q", line, err)
			}
			return
		}
		if p.Progress == nil && p.Step == nil && len(p.Metrics) == 0 {
			t.Errorf("%q has no fields", line)
		}
		if p.Progress != nil && !(*p.Progress >= 0 && *p.Progress <= 1) {
			t.Errorf("progress %v", *p.Progress)
		}
		if p.Step != nil && (len(*p.Step) > progress.MaxStep || !utf8.ValidString(*p.Step)) {
			t.Errorf("step %q", *p.Step)
		}
		if len(p.Metrics) > progress.MaxMetrics {
			t.Errorf("%d metrics", len(p.Metrics))
		}
		if _, err := json.Marshal(p); err != nil {
			t.Errorf("%q cannot be sent: %v", line, err)
		}
	})
}
