//go:build unix

package builtin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIterations(t *testing.T) {
	w := newEnv(t)
	w.words = []string{"/bin/sh", "-c", `echo "part $MUSTER_ITERATION of $MUSTER_ITERATIONS"
		echo '::muster progress=0.5 step="half" loss=0.25'
		echo '{"progress": 1, "step": "whole"}' >> $MUSTER_EVENTS
		echo "{\"square\": $((MUSTER_ITERATION * MUSTER_ITERATION)), \"name\": \"x\"}"`}
	e := w.run(t.Context(), "compute", `{"iterations": 4, "computeNeeded": 2.5}`)
	e.numbers(t, map[string]float64{"iterations": 4, "finished": 4, "failed": 0})
	if e.code != 0 {
		t.Errorf("%s", e.message)
	}
	if values := fmt.Sprint(e.result["values"]); values != "[map[name:x square:0] map[name:x square:1] map[name:x square:4] map[name:x square:9]]" {
		t.Errorf("the values are %s", values)
	}
	if s := fmt.Sprint(e.result["summary"]); s != "map[square:map[count:4 max:9 mean:3.5 min:0]]" {
		t.Errorf("the summary is %s", s)
	}
	if text := w.log.String(); !strings.Contains(text, "part 3 of 4\n") || strings.Contains(text, "::muster") {
		t.Errorf("the log is %s", text)
	}
	events, err := os.ReadFile(w.events)
	if err != nil || !strings.Contains(string(events), `"loss":0.25`) || !strings.Contains(string(events), `"iteration 3, 4/4 done"`) {
		t.Errorf("the events are %s, %v", events, err)
	}
}

func TestFailedIteration(t *testing.T) {
	w := newEnv(t)
	w.words = []string{"/bin/sh", "-c", `[ -e mended ] || [ $MUSTER_ITERATION -ne 2 ] || exit 7; echo x >> ran-$MUSTER_ITERATION; echo $MUSTER_ITERATION`}
	e := w.run(t.Context(), "compute", `{"iterations": 5}`)
	e.failed(t, "exit_code", "iteration 2 of 5, counted from 0", "exit code 7", "keep_going")
	e.numbers(t, map[string]float64{"finished": 2, "failed": 1})

	// The next attempt continues after the finished iterations, and keeps going.
	e = w.run(t.Context(), "compute", `{"iterations": 5, "keep_going": true}`)
	e.failed(t, "exit_code", "1 of 5 iterations failed, the first one is number 2")
	e.numbers(t, map[string]float64{"finished": 4, "failed": 1, "resumed": 2})

	// Half a line of a writer that was killed does no harm.
	f, err := os.OpenFile(filepath.Join(w.checkpoint, "iterations.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"iteration": 2, "exit_c`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, "mended", "")
	e = w.run(t.Context(), "compute", `{"iterations": 5}`)
	e.numbers(t, map[string]float64{"finished": 5, "failed": 0, "resumed": 4})
	if e.code != 0 || fmt.Sprint(e.result["values"]) != "[0 1 2 3 4]" || len(w.artifact("iterations.jsonl")) != 5 {
		t.Errorf("%+v", e)
	}
	for i := range 5 {
		if text, err := os.ReadFile(fmt.Sprintf("ran-%d", i)); err != nil || string(text) != "x\n" {
			t.Errorf("iteration %d ran %q, %v", i, text, err)
		}
	}
}

func TestStoppedIteration(t *testing.T) {
	w := newEnv(t)
	w.words = []string{"/bin/sh", "-c", `[ $MUSTER_ITERATION -eq 0 ] && exit; trap 'exit 3' TERM; echo > begun; while :; do sleep 0.01; done`}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(w.dir, "begun")); err == nil {
				stop()
			}
		}
	}()
	e := w.run(ctx, "compute", `{"iterations": 3}`)
	e.numbers(t, map[string]float64{"finished": 1, "failed": 0})
	if e.code != 143 || e.reason != "" {
		t.Errorf("%+v", e)
	}
}

func TestNoSuchCommand(t *testing.T) {
	w := newEnv(t)
	w.words = []string{"no-such-command"}
	e := w.run(t.Context(), "compute", `{}`)
	e.failed(t, "bad_input", "no-such-command")
	w.words = nil
	e = w.run(t.Context(), "compute", `{}`)
	e.failed(t, "bad_input", "set run")
}
