package redact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/redact"
)

// TestValuesAreHidden checks that a value, which a parameter may put into a variable, is shown nowhere, and that the spec is not changed.
func TestValuesAreHidden(t *testing.T) {
	value := json.RawMessage(`"s3cret"`)
	spec := &muster.Spec{
		Params: map[string]muster.Param{
			"token": {Type: muster.ParamString, Value: value},
			"other": {Type: muster.ParamString, Default: value, Enum: []json.RawMessage{value}},
		},
		Notify: []muster.Notify{{URL: "https://hooks.example.com/s3cret", Secret: "s3cret"}},
		Tasks:  []muster.TaskSpec{{Name: "train", Env: map[string]string{"TOKEN": "s3cret"}, Script: &muster.Script{URL: "https://user:s3cret@example.com/run.sh?signature=s3cret"}}},
	}
	for name, seen := range map[string]*muster.Spec{"a reader": redact.ForReader(spec), "a link": redact.ForLink(spec)} {
		b, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "s3cret") || !strings.Contains(string(b), `"token":{"type":"string","value":"(hidden)"}`) || seen.Tasks[0].Script.URL != "https://xxxxx@example.com/run.sh?(hidden)" {
			t.Errorf("%s sees %s", name, b)
		}
	}
	if string(spec.Params["token"].Value) != string(value) || spec.Tasks[0].Env["TOKEN"] != "s3cret" || !strings.Contains(spec.Tasks[0].Script.URL, "s3cret") {
		t.Errorf("the spec was changed: %+v", spec)
	}
}
