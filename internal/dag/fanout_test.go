package dag_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// TestFanOut checks what becomes of values that determine the elements of a stage.
func TestFanOut(t *testing.T) {
	t.Parallel()
	spec := parse(t, `{"tasks":[{"name":"prep","run":"p"},
		{"name":"work","needs":["prep"],"array":"${prep.result}%5","run":["run","${item}","${index}","${prep.exit_code}"],"env":{"X":"$${item}"},"input":{"all":"${item}"}},
		{"name":"part","needs":["prep"],"array":"${prep.result}","run":["run","${item.a.0}"]}]}`)
	if found := dag.Check(spec); len(found) > 0 {
		t.Fatal(found)
	}
	resolve := func(stage int, value string) (*muster.TaskSpec, error) {
		code := 7
		return dag.New(spec).Resolve(stage, func(int, int) (muster.Task, bool) {
			return muster.Task{Result: json.RawMessage(value), ExitCode: &code}, true
		})
	}
	for value, want := range map[string][]string{
		`[]`: {}, `0`: {}, `2`: {"run 0 0 7", "run 1 1 7"}, `["a b",{"k": [1, 2]},null,"$${index}"]`: {"run a b 0 7", `run {"k":[1,2]} 1 7`, "run null 2 7", "run $${index} 3 7"},
	} {
		r, err := resolve(1, value)
		if err != nil || r.Size() != len(want) || r.DynamicArray() || r.Array.Limit != 5 {
			t.Errorf("%s: %+v, %v", value, r, err)
			continue
		}
		data, err := json.Marshal(r) // as the store keeps it
		if err != nil {
			t.Fatal(err)
		}
		var stored muster.TaskSpec
		if len(want) > 0 {
			if err := json.Unmarshal(data, &stored); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
		}
		for i, text := range want {
			b := dag.Bind(&stored, i, nil)
			if got := strings.Join(b.Run.Argv, " "); got != text || b.Array.Items != nil || b.Env["X"] != "${item}" || !dag.PerElement(&stored) {
				t.Errorf("%s: element %d runs %q with %v, want %q", value, i, got, b.Env, text)
			}
			if item := b.Env[muster.EnvItem]; !strings.HasPrefix(text, "run "+item+" ") {
				t.Errorf("%s: element %d is %q", value, i, item)
			}
		}
	}
	if r, err := resolve(1, `["1",{"k":1}]`); err != nil || string(dag.Bind(r, 0, nil).Input) != `{"all":"1"}` || string(dag.Bind(r, 1, nil).Input) != `{"all":{"k":1}}` {
		t.Errorf("values keep their types: %v", err)
	}
	if r, err := resolve(2, `[{"a":["x"]}]`); err != nil || dag.Bind(r, 0, nil).Run.Argv[1] != "x" {
		t.Errorf("a part of an element: %v", err)
	}
	for value, want := range map[string]string{
		`"a"`: "is a, not a list", `1.5`: "is 1.5, not a list", `-1`: "is -1, not a list", `{"a":1}`: "not a list", `true`: "not a list", `null`: "not a list", ``: "left no result",
		`1e9`: "not a list", `10001`: "more than 10000 elements", `99999999999999999999`: "not a list", "[" + strings.Repeat("1,", muster.MaxFanOut) + "1]": "more than 10000 elements",
		fmt.Sprintf(`["a",%q]`, strings.Repeat("x", muster.MaxItemSize+1)): "element 1: it has more than 32KiB",
	} {
		if _, err := resolve(1, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %q", value, err, want)
		}
	}
	if _, err := resolve(2, `[{"a":["x"]},{"a":[]}]`); err == nil || !strings.Contains(err.Error(), `element 1: ${item.a.0}: it has no "a.0"`) {
		t.Error(err)
	}
}
