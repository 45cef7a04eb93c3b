package dag_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// sweep is a job whose stage train has a task for each of four values of an axis.
const sweep = `{"tasks":[
	{"name":"train","run":"a","matrix":{"lr":["0.1","0.2","0.3","0.4"],"opt":["adam"]}},
	{"name":"eval","needs":["train"],"run":["a","%s"],"input":{"v":"%[1]s"}}
]}`

// trained returns the tasks of sweep with these results, in order; an empty one is a task that failed.
func trained(results ...string) dag.ResultFunc {
	return func(_, element int) (muster.Task, bool) {
		t := muster.Task{
			ID: muster.TaskID{Job: 1, Num: element}, State: muster.Succeeded, Result: json.RawMessage(results[element]), ExitCode: new(element), Metrics: map[string]float64{"val.loss": float64(-element)},
			Artifacts: []muster.Artifact{{Name: "model.pt", SHA256: fmt.Sprint("hash", element), Size: 7}},
		}
		if element == 2 {
			t.Metrics["val.loss"] = math.NaN()
		}
		if results[element] == "" {
			t.State = muster.Failed
			t.Metrics["val.loss"] = -100
			t.Result = json.RawMessage(`{"loss":-100}`)
		}
		return t, true
	}
}

func TestBestElement(t *testing.T) {
	results := trained(`{"loss":0.5,"m":"a"}`, `{"loss":0.25,"m":"b"}`, `{"loss":0.25,"m":"c"}`, `{"loss":4e0,"m":"d"}`)
	for ref, want := range map[string]string{
		"train.min(result.loss).result.m":                  "b", // the first of two
		"train.max(result.loss).result.m":                  "d",
		"train.min(result.loss).result":                    `{"loss":0.25,"m":"b"}`,
		"train.max(result.loss).index":                     "3",
		"train.max(result.loss).matrix.lr":                 "0.4",
		"train.max(result.loss).matrix.opt":                "adam",
		"train.min(result.loss).matrix":                    `{"lr":0.2,"opt":"adam"}`,
		"train.min(metrics.val.loss).index":                "3",
		"train.max(metrics.val.loss).metrics.val.loss":     "0",
		"train.max(exit_code).exit_code":                   "3",
		"train.min(result.loss).artifacts.model.pt.sha256": "hash1",
		"train.*.matrix.lr":                                "[0.1,0.2,0.3,0.4]",
		"train.*.index":                                    "[0,1,2,3]",
		"train.2.matrix.lr":                                "0.3",
	} {
		s := parse(t, fmt.Sprintf(sweep, "${"+ref+"}"))
		if wrong := dag.Check(s); len(wrong) > 0 {
			t.Errorf("%s: %v", ref, wrong)
		}
		got, err := dag.New(s).Resolve(1, results)
		if err != nil || got.Run.Argv[1] != want {
			t.Errorf("%s: %v, %v", ref, got, err)
			continue
		}
		if typed := string(got.Input); typed != `{"v":`+want+`}` && typed != `{"v":"`+want+`"}` {
			t.Errorf("%s is %s as JSON", ref, typed)
		}
	}
}

func TestBestElementOfDamagedResults(t *testing.T) {
	const nan = `{"loss":"NaN"}`
	for _, tt := range []struct {
		want, ref string
		results   [4]string
	}{
		{"2", "train.min(result.loss).index", [4]string{``, nan, `{"loss":7}`, `{"loss":8}`}},
		{"3", "train.max(result.loss).index", [4]string{`{"loss":1e999}`, `{"loss":null}`, `{"loss":[9]}`, `{"loss":-1}`}},
		{"1", "train.max(result.a.1).index", [4]string{`[]`, `{"a":[0,1]}`, `{"a":[0]}`, `{"a":[0,true]}`}},
		{"no task of stage train that succeeded has a number as result.loss", "train.min(result.loss).index", [4]string{``, nan, `{}`, `7`}},
		{"no task of stage train that succeeded has a number as metrics.nothing", "train.max(metrics.nothing).index", [4]string{`1`, `1`, `1`, `1`}},
		{"the result of task 1.1 has no \"m\"", "train.min(result.loss).result.m", [4]string{`{"loss":2}`, `{"loss":1}`, ``, ``}},
	} {
		s := parse(t, fmt.Sprintf(sweep, "${"+tt.ref+"}"))
		got, err := dag.New(s).Resolve(1, trained(tt.results[:]...))
		if err == nil && got.Run.Argv[1] != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of %q: %v, %v; want %s", tt.ref, tt.results, got, err, tt.want)
		}
	}
}

func TestBestElementInConditionsAndFanOut(t *testing.T) {
	s := parse(t, `{"tasks":[
		{"name":"train","run":"a","matrix":{"lr":["1","2","3","4"]}},
		{"name":"eval","needs":["train"],"run":"a","when":"${train.max(result.loss).matrix.lr} == 2 and ${train.min(result.loss).index} > 2"},
		{"name":"shards","needs":["train"],"run":"echo ${item}","array":"${train.min(result.loss).result.list}"},
		{"name":"last","needs":["shards"],"run":"echo ${shards.max(exit_code).item.k}"}
	]}`)
	if wrong := dag.Check(s); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	results := trained(`{"loss":1}`, `{"loss":9}`, ``, `{"loss":0,"list":[{"k":"x"},{"k":"y"}]}`)
	g := dag.New(s)
	if met, err := g.Condition(1, results); !met || err != nil {
		t.Errorf("the condition is %t, %v", met, err)
	}
	fanned, err := g.Resolve(2, results)
	if err != nil || fanned.Size() != 2 {
		t.Fatal(fanned, err)
	}
	g.SetElements(2, fanned)
	last, err := g.Resolve(3, results)
	if err != nil || last.Run.Shell != "echo y" {
		t.Errorf("%v, %v", last, err)
	}
}

func TestCheckOfBestElements(t *testing.T) {
	for ref, want := range map[string]string{
		"train.min(result.loss)":            "write it as train.min(result.loss).result",
		"train.min(result.loss.result":      "write it as",
		"train.min().result":                "a stage has result",
		"train.min(loss).result":            "a stage has result",
		"train.max(index).result":           "choose by a number in result or metrics",
		"train.max(artifacts.a.size).index": "choose by a number",
		"train.max(result..a).index":        "it has an empty part",
		"train.max(metrics).index":          "metrics must be followed by the name of one",
		"train.max(result.a).matrix.x":      "the matrix of stage train has no axis x",
		"train.max(result.a).item":          "stage train has no items",
		"train.max(result.a).index.x":       "index has no parts",
		"trian.max(result.a).index":         "there is no stage trian",
		"train.result":                      "or the best, as in ${train.min(result.loss).result…}",
	} {
		wrong := dag.Check(parse(t, fmt.Sprintf(sweep, "${"+ref+"}")))
		if len(wrong) == 0 || wrong[0].Path != "tasks[1].run[1]" || !strings.Contains(wrong[0].Message, want) {
			t.Errorf("%s: %v, want %q at tasks[1].run[1]", ref, wrong, want)
		}
	}
	large := parse(t, strings.ReplaceAll(fmt.Sprintf(sweep, "${train.min(result.a).index}"), `"matrix":{"lr":["0.1","0.2","0.3","0.4"],"opt":["adam"]}`, `"array":"1-10001"`))
	if wrong := dag.Check(large); len(wrong) == 0 || !strings.Contains(wrong[0].Message, "${train.min(result.a).…} takes at most 10000") {
		t.Errorf("10,001 elements: %v", wrong)
	}
}

// The results of a whole sweep may be too large to be read for one stage.
func TestReferencesReadALimitedAmount(t *testing.T) {
	s := parse(t, strings.ReplaceAll(fmt.Sprintf(sweep, "${train.*.result.a}${train.max(result.a).index}${train.min(result.a).index}"), `"matrix":{"lr":["0.1","0.2","0.3","0.4"],"opt":["adam"]}`, `"array":"1-1000"`))
	for size, want := range map[int]string{50 << 10: "[1,1", 100 << 10: "read more than 256MiB of results"} {
		result := json.RawMessage(`{"a":1,"b":"` + strings.Repeat("x", size) + `"}`)
		got, err := dag.New(s).Resolve(1, func(int, int) (muster.Task, bool) { return muster.Task{State: muster.Succeeded, Result: result}, true })
		if err == nil && !strings.HasPrefix(got.Run.Argv[1], want) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("results of %d bytes: %.100v; want %s", size, err, want)
		}
	}
}
