package remote

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/client"
)

// TestElementsAreAddressed submits jobs with an array, a matrix, a gang and several stages, and selects tasks by what the user gave.
func TestElementsAreAddressed(t *testing.T) {
	server := apitest.Start(t, nil).Client(t)
	run := &muster.Command{Shell: "true"}
	array, err := muster.ParseArray("1-100:3,5")
	if err != nil {
		t.Fatal(err)
	}
	matrix := &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"0.1", "0.01"}}, {Name: "s", Values: []string{"a", "b,c"}}}}
	for i, stages := range [][]muster.TaskSpec{
		{{Run: run, Array: &array}}, // job 1
		{{Run: run, Matrix: matrix}},
		{{Run: run, Gang: &muster.Gang{Size: 4}}},
		{{Name: "prep", Run: run}, {Name: "train", Run: run, Array: &array, Needs: []string{"prep"}}},
		{{Name: "a", Run: run, Matrix: matrix}, {Name: "b", Run: run, Array: &array}, {Name: "c", Run: run}},
		{{Run: run}},
	} {
		if job, err := server.Submit(t.Context(), &muster.Spec{Tasks: stages}, client.SubmitOptions{}); err != nil || job.ID != muster.JobID(i+1) {
			t.Fatalf("job %d: %v, %v", i+1, job.ID, err)
		}
	}
	for arg, want := range map[string]string{
		"1_1": "1.0", "1_100": "1.33", "1_5": "1.34", "1_4,7": "1.1-2", "1_2-8": "1.1-2,34", "1_1-7:6": "1.0,2", "last": "6",
		"2_3": "2.3", "2_lr=0.1": "2.0-1", "2_s=a": "2.0,2", "2_lr=0.01,s=a": "2.2", "2_lr=0.1,s=b,c": "2.1",
		"3_1-9": "3.1-3", "4_1": "4.1", "4.train": "4.1-35", "4.prep": "4.0", "4.train.4": "4.2",
		"5.a": "5.0-3", "5.a.lr=0.01": "5.2-3", "5.b.5": "5.38", "5.c": "5.39", "5.3": "5.3",
	} {
		sels, err := ResolveSelectors(t.Context(), server, []string{arg})
		if err != nil || sels[0].IDs() != want {
			t.Errorf("%s: %v, %v; want %s", arg, sels, err, want)
		}
	}
	for arg, want := range map[string]string{
		"1_2": "job 1 has no element 2: its array is 1-100:3,5", "1_200-300": "no element 200-300", "1.x": "no stage x", "2_lr=0.5": "such as lr=0.1,s=a",
		"2_x=1": "no element x=1", "3_4": "ranks 0-3", "5_1": "name the stage", "5.c.1": "has no elements: use 5.c", "6_0": "no array, matrix or gang",
		"1_x": "is not a number for an array", "9_1": "9",
	} {
		if sels, err := ResolveSelectors(t.Context(), server, []string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", arg, sels, err, want)
		}
	}
	for id := muster.JobID(1); id <= 6; id++ {
		job, err := server.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for num := range int(job.Counts.Total()) {
			task := muster.TaskID{Job: id, Num: num}
			sels, err := ResolveSelectors(t.Context(), server, []string{app.TaskAddress(&job, task)})
			if err != nil {
				t.Fatal(err)
			}
			if got, single := sels[0].Task(); !single || got != task {
				t.Errorf("%s has the address %s, which is %s", task, app.TaskAddress(&job, task), got)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	job := &muster.Job{ID: 7, Groups: []muster.Group{{Name: "only", Size: 3}}}
	id := muster.TaskID{Job: 7, Num: 2}
	if got := app.TaskAddress(job, id); got != "7.2" { // the spec is not visible
		t.Errorf("without a spec: %s", got)
	}
	job.Spec = &muster.Spec{Tasks: []muster.TaskSpec{{Array: &muster.Array{Ranges: []muster.Range{{First: 5, Last: 9, Step: 2}}}}}}
	if got := app.TaskAddress(job, id); got != "7_9" {
		t.Errorf("the only array: %s", got)
	}
	if got := app.TaskAddress(nil, id); got != "7.2" {
		t.Errorf("no job: %s", got)
	}
}

// TestPositions compares positions with a search of all elements.
func TestPositions(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) string {
		first := rapid.IntRange(0, 30).Draw(t, "first")
		return fmt.Sprintf("%d-%d:%d", first, first+rapid.IntRange(0, 20).Draw(t, "more"), rapid.IntRange(1, 5).Draw(t, "step"))
	})
	rapid.Check(t, func(t *rapid.T) {
		array, err := muster.ParseArray(strings.Join(rapid.SliceOfN(number, 1, 3).Draw(t, "array"), ","))
		if err != nil {
			t.Skip() // a number occurs twice
		}
		wanted, err := muster.ParseArray(number.Draw(t, "wanted"))
		if err != nil {
			t.Fatal(err)
		}
		spec := &muster.TaskSpec{Array: &array}
		var want []client.Span
		for i := range spec.Size() {
			if _, ok := wanted.Find(int64(spec.Index(i))); ok {
				want = append(want, client.Span{First: i, Last: i})
			}
		}
		got := muster.MergeSpans(positions(spec, wanted.Ranges[0]))
		if diff := cmp.Diff(muster.MergeSpans(want), got); diff != "" {
			t.Fatalf("%s in %s (-want +got):\n%s", wanted, array, diff)
		}
	})
}
