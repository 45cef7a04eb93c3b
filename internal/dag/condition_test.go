package dag_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

func conditional(when string) *muster.Spec {
	return (&muster.Spec{Tasks: []muster.TaskSpec{
		{Name: "train", Kind: muster.KindNoop},
		{Name: "sweep", Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 3, Step: 1}}}},
		{Name: "later", Kind: muster.KindNoop},
		{Name: "deploy", Kind: muster.KindNoop, Needs: []string{"train", "sweep"}, When: when},
	}}).Normalize()
}

func TestCondition(t *testing.T) {
	code := 3
	result := func(stage, element int) (muster.Task, bool) {
		r := muster.Task{ID: muster.TaskID{Job: 1, Num: stage + element}, State: muster.Succeeded, ExitCode: &code, Result: json.RawMessage(`{"accuracy":0.91,"epochs":10,"name":"resnet","tags":["a","b"],"none":null,"ok":true}`)}
		return r, stage == 0 || stage == 1 && element != 2
	}
	for when, want := range map[string]string{
		"":                               "true",
		"succeeded":                      "true",
		"${train.result.accuracy} > 0.9": "true",
		"${train.result.accuracy} > 0.9 && ${train.result.epochs} < 10":            "false",
		"${train.result.name} == 'resnet'":                                         "true",
		"${train.result.name} in ['vit', \"gpt\"] or ${train.exit_code} == 3":      "true",
		"'b' in ${train.result.tags} && not (${train.result.epochs} * 2 != 20)":    "true",
		"len(${train.result.tags}) == 2 ? ${train.result.ok} : false":              "true",
		"${train.result.none} == nil":                                              "true",
		"${train.result}.epochs == 10":                                             "true",
		"${train.result.loss} < 1":                                                 `when: ${train.result.loss} < 1: ${train.result.loss}: the result of task 1.0 has no "loss"`,
		"${train.result.name} > 1":                                                 "when: ${train.result.name} > 1: invalid operation: string > int",
		"${train.result.accuracy}":                                                 "when: ${train.result.accuracy}: the value is 0.91, not true or false",
		"max(${sweep.*.result.accuracy}) > 0.9 and len(${sweep.*.exit_code}) == 3": "true",
		"${sweep.2.result.accuracy} > 1":                                           "when: ${sweep.2.result.accuracy} > 1: ${sweep.2.result.accuracy}: the result of stage sweep is not known",
	} {
		met, err := dag.New(conditional(when)).Condition(3, result)
		got := map[bool]string{true: "true", false: "false"}[met]
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", when, got, want)
		}
	}
}

func TestCheckOfConditions(t *testing.T) {
	for when, want := range map[string]string{
		"always":                           "",
		"failed":                           "",
		"${train.result.accuracy} > 0.9":   "",
		"fialed":                           `"fialed" is no condition`,
		"1 < 2":                            `"1 < 2" is no condition`,
		"${train.result.accuracy} >":       "unexpected token EOF",
		"'${train.result.name}' == 'a'":    "write ${train.result.name} without quotes",
		"${trian.result.accuracy} > 0.9":   "${trian.result.accuracy}: there is no stage trian",
		"${later.result.accuracy} > 0.9":   "${later.result.accuracy}: stage later may not have ended by then",
		"${deploy.result.accuracy} > 0.9":  "${deploy.result.accuracy}: a stage cannot read its own result",
		"${sweep.result.accuracy} > 0.9":   "${sweep.result.accuracy}: ",
		"now() > date(${train.exit_code})": "the function now is not available in a condition",
		"len(reduce(1..40, #acc + #acc, 'x')) > ${train.exit_code}":         "the operator .. is not available in a condition",
		"let a = 1..10000; all(a, all(a, all(a, ${train.exit_code} == 0)))": "the operator .. is not available in a condition",
		"len(map(['x'], # + #)) > ${train.exit_code}":                       "a part that calls, repeats or defines something is not available in a condition",
		"len(replace('aaa', '', ${train.result.name})) > 1":                 "the function replace is not available in a condition",
		"len(repeat('aaa', ${train.exit_code})) > 1":                        "the function repeat is not available in a condition",
		"${train.result.name} matches '(a*)*'":                              "the operator matches is not available in a condition",
		"[1, 2] | any(# > ${train.exit_code})":                              "a part that calls, repeats or defines something is not available in a condition",
		"${train.exit_code} == 0; true":                                     "a part that calls, repeats or defines something is not available in a condition",
		"{'a': ${train.exit_code}}.a == 0":                                  "a part that calls, repeats or defines something is not available in a condition",
		"2 ** ${train.exit_code} > 1":                                       "the operator ** is not available in a condition",
		"${train.result}.accuracy()":                                        "a part that calls, repeats or defines something is not available in a condition",
		"${index} > 0":                                                      "${index}: there is no stage ",
		"${train.result.accuracy} + 'a' > 1":                                "",
	} {
		got := ""
		if problems := dag.Check(conditional(when)); len(problems) > 0 {
			got = problems[0].Message
			if problems[0].Path != "tasks[3].when" {
				t.Errorf("%s: the problem is at %s", when, problems[0].Path)
			}
		}
		if got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
}

func TestConditionsAreLimited(t *testing.T) {
	s := conditional("")
	long := "${train.exit_code} == 0 " + strings.Repeat(" ", dag.MaxCondition-24)
	for range dag.MaxConditions/dag.MaxCondition + 1 {
		s.Tasks = append(s.Tasks, muster.TaskSpec{Name: "s", Kind: muster.KindNoop, Needs: []string{"train"}, When: long})
	}
	if problems := dag.Check(s); len(problems) != 1 || problems[0].Message != "the conditions of the job are more than 256KiB" {
		t.Errorf("got %v", problems)
	}
	if !dag.New(s).Referenced()[0] || dag.New(s).Referenced()[1] {
		t.Errorf("references: %v", dag.New(s).Referenced())
	}
}
