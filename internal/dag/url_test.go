package dag_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// urls returns a URL that shows what was asked for.
func urls(num int, name, sha256 string) string {
	return fmt.Sprintf("https://s/%d/%s?%s", num, name, sha256)
}

// TestURLsAreInsertedForEachElement checks that a URL is made when an element is bound: alone, within a text, and in lists, also of results.
func TestURLsAreInsertedForEachElement(t *testing.T) {
	s := parse(t, user(`"run":["get","${train.artifact(\"model v1.pt\").url}","<${train.result.mine}>"],"array":"0-1",
		"env":{"A":"${grid.*.artifacts.model v1.pt.url}","MINE":"${grid.*.result.mine}"},
		"input":{"u":"${train.result.mine}","l":"${grid.*.artifact(\"model v1.pt\").url}","i":"${index}","plain":"${train.result}"}`))
	resolved, err := dag.New(s).Resolve(3, results(s))
	if err != nil {
		t.Fatal(err)
	}
	if !dag.PerElement(resolved) {
		t.Error("the elements have one spec")
	}
	bound := dag.Bind(resolved, 1, urls)
	one, list := "https://s/0/model v1.pt?abc", `["https://s/20/model v1.pt?abc","https://s/21/model v1.pt?abc"]`
	if got := bound.Run.Argv; got[1] != one || got[2] != "<"+one+">" || bound.Env["A"] != list || bound.Env["MINE"] != list {
		t.Errorf("%q %q", got, bound.Env)
	}
	var input struct {
		U     string
		L     json.RawMessage
		I     int
		Plain struct{ Mine string }
	}
	if err := json.Unmarshal(bound.Input, &input); err != nil {
		t.Fatal(err)
	}
	if input.U != one || string(input.L) != list || input.I != 1 || !strings.HasPrefix(input.Plain.Mine, "https://h:1/") {
		t.Errorf("%s", bound.Input)
	}
	if left := dag.Bind(resolved, 1, nil); left.Run.Argv[1] != "${artifact_url 0 abc model%20v1.pt}" {
		t.Errorf("without a function it is %s", left.Run.Argv[1])
	}
}

// TestURLsOfUnusualNames checks that every name arrives as it is.
func TestURLsOfUnusualNames(t *testing.T) {
	for _, name := range []string{"a/b.pt", "100%", "%41", "ü ${index}", `q"'`, "a+b&c=d?e#f", "x}"} {
		s := parse(t, `{"tasks":[{"name":"a","kind":"noop"},{"name":"b","needs":["a"],"run":["${a.artifact(\"`+strings.NewReplacer(`"`, `\"`).Replace("m")+`\").url}","${a.result}"]}]}`)
		task := muster.Task{ID: muster.TaskID{Job: 1}, Artifacts: []muster.Artifact{{Name: name, SHA256: "ab"}}}
		task.Result, _ = json.Marshal("http://h/x" + muster.ArtifactPath(task.ID, name)) //nolint:errchkjson // a string
		s.Tasks[1].Run.Argv = s.Tasks[1].Run.Argv[1:]
		resolved, err := dag.New(s).Resolve(1, func(int, int) (muster.Task, bool) { return task, true })
		if err != nil {
			t.Fatal(err)
		}
		if got := dag.Bind(resolved, 0, urls).Run.Argv[0]; got != "https://s/0/"+name+"?ab" {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestCheckRefusesURLsWhereTheyDoNotWork(t *testing.T) {
	for fields, want := range map[string]string{
		`"run":["x"],"image":"${train.artifact(\"m\").url}"`:               "run, script.args, env and input only",
		`"run":["x"],"outputs":["${train.artifacts.m.url}"]`:               "run, script.args, env and input only",
		`"run":["x"],"where":{"tags":["${train.artifact(\"m\").url}"]}`:    "run, script.args, env and input only",
		`"run":["x"],"when":"${train.artifact(\"m\").url} == 1"`:           "run, script.args, env and input only",
		`"run":["x"],"array":"${many.*.artifact(\"m\").url}"`:              "run, script.args, env and input only",
		`"run":["x","${artifact_url 0 ab m}"]`:                             "reserved",
		`"run":["x","${train.artifact(\"m\")}"]`:                           "must be followed by sha256, size or url",
		`"run":["x","${train.artifact(\"m\").name}"]`:                      "must be followed by sha256, size or url",
		`"run":["x","${train.result.artifact(\"m\").url}"]`:                "must be followed by sha256, size or url",
		`"run":["x","${trainn.artifact(\"m\").url}"]`:                      "there is no stage trainn",
		`"run":["x","${many.artifact(\"m\").url}"]`:                        "name the element",
		`"run":["x","${train.artifact(\"m\").url}"],"env":{"A":"${x.y()}"`: "",
	} {
		if want == "" {
			fields += "}"
		}
		problems := dag.Check(parse(t, user(fields)))
		text := fmt.Sprint(problems)
		if want == "" && len(problems) > 0 || !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", fields, text, want)
		}
	}
}
