package specvalidate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func TestSweeps(t *testing.T) {
	for _, c := range []struct{ sweep, more, path, message string }{
		{`{"search": "random", "trials": 10000, "seed": -1, "parameters": {"lr": {"min": 1e-5, "max": 1, "log": true}, "act": ["a", "b"]}}`, "", "", ""},
		{`{"search": "grid", "parameters": {"n": {"min": 1, "max": 8, "step": 1}}}`, "", "", ""},
		{`{"search": "grid", "parameters": {"n": {"min": 1, "max": 8}}}`, "", "sweep.parameters.n", "no end of values"},
		{`{"search": "grid", "trials": 3, "parameters": {"n": [1]}}`, "", "sweep.trials", "as many trials as combinations"},
		{`{"search": "random", "trials": 10001, "parameters": {"n": [1]}}`, "", "sweep.trials", "write 1 to 10000"},
		{`{"search": "random", "parameters": {"n": [1]}}`, "", "sweep.trials", "write 1 to 10000"},
		{`{"search": "random", "trials": 1, "parameters": {}}`, "", "sweep.parameters", "1 to 16"},
		{`{"search": "ramdom", "trials": 1, "parameters": {"n": [1]}}`, "", "sweep.search", "write grid or random"},
		{`{"search": "random", "trials": 1, "parameters": {"trial": [1]}}`, "", "sweep.parameters.trial", "reserved"},
		{`{"search": "random", "trials": 1, "parameters": {"a": [1], "A": [1]}}`, "", "sweep.parameters.a", "duplicate"},
		{`{"search": "random", "trials": 1, "parameters": {"a-b": [1]}}`, "", "sweep.parameters.a-b", "invalid axis name"},
		{`{"search": "random", "trials": 1, "parameters": {"a": []}}`, "", "sweep.parameters.a", "1 to 10000 values"},
		{`{"search": "random", "trials": 1, "parameters": {"a": [1, 1]}}`, "", "sweep.parameters.a[1]", "duplicate value"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"min": 2, "max": 2}}}`, "", "sweep.parameters.a", "must be greater than min"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"min": -1.7e308, "max": 1.7e308}}}`, "", "sweep.parameters.a", "must be greater than min"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"max": 1, "step": 2}}}`, "", "sweep.parameters.a", "step, 2,"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"max": 1, "step": -1}}}`, "", "sweep.parameters.a", "step, -1,"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"max": 1, "step": 1e-9}}}`, "", "sweep.parameters.a", "more than 10000 values"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"max": 1, "log": true}}}`, "", "sweep.parameters.a", "min greater than 0"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"min": 1, "max": 2, "step": 1, "log": true}}}`, "", "sweep.parameters.a", "log has no step"},
		{`{"search": "random", "trials": 1, "parameters": {"a": {"values": [1], "max": 2}}}`, "", "sweep.parameters.a", "keep one of both"},
		{`{"search": "random", "trials": 1, "parameters": {"a": [1]}}`, `"array": "1-2",`, "sweep", "cannot have an array or a matrix"},
		{`{"search": "grid", "parameters": {"a": [1]}}`, `"matrix": {"b": [1]},`, "sweep", "cannot have an array or a matrix"},
		{`{"search": "random", "trials": 1, "parameters": {"a": [1]}}`, `"gang": 2,`, "gang", "a gang cannot have an array, a matrix or a sweep"},
	} {
		var s muster.Spec
		if err := json.Unmarshal(fmt.Appendf(nil, `{"tasks": [{"run": "x", %s "sweep": %s}]}`, c.more, c.sweep), &s); err != nil {
			t.Fatal(err)
		}
		wrong := Spec(&s)
		switch {
		case c.path == "" && len(wrong) > 0, c.path != "" && (len(wrong) != 1 || wrong[0].Path != "tasks[0]."+c.path || !strings.Contains(wrong[0].Message, c.message)):
			t.Errorf("%s%s: %v, want %s: %s", c.more, c.sweep, wrong, c.path, c.message)
		}
	}
}
