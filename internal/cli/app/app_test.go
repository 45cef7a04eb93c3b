package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

func newApp() (a *App, out, err *bytes.Buffer) {
	out, err = new(bytes.Buffer), new(bytes.Buffer)
	return &App{In: strings.NewReader(""), Out: term.Screen{Writer: out}, Err: term.Screen{Writer: err}}, out, err
}

func TestExitStatus(t *testing.T) {
	for code, want := range map[muster.Code]int{
		muster.Invalid: 2, muster.TooLarge: 2, muster.NotFound: 3, muster.Unauthenticated: 4, muster.Forbidden: 4,
		muster.Conflict: 5, muster.InvalidSpec: 6, muster.Unavailable: 7, muster.StorageFull: 7, muster.Undetermined: 7, muster.Internal: 1,
	} {
		a, _, stderr := newApp()
		run := func(context.Context, []string) error {
			return fmt.Errorf("wrapped: %w", muster.Errorf(code, "it is %s", code))
		}
		got := a.Run(t.Context(), []*cli.Command{a.NewCommand(Command{Name: "x", Category: CategorySetup, Run: run})}, []string{"muster", "x"})
		if got != want {
			t.Errorf("%s: exit status %d, want %d", code, got, want)
		}
		if want := fmt.Sprintf("muster: wrapped: it is %s\n", code); stderr.String() != want {
			t.Errorf("got %q, want %q", stderr, want)
		}
	}
}

func TestErrorsWithExitStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		stderr string
	}{
		{nil, 0, ""},
		{&StatusError{Status: 42}, 42, ""},
		{&StatusError{Status: 125, Err: errors.New("why")}, 125, "muster: why\n"},
		{fmt.Errorf("stream: %w", context.Canceled), 130, ""},
		{errors.New("plain"), 1, "muster: plain\n"},
		{&muster.Error{Code: muster.InvalidSpec, Message: "two", Fields: []muster.FieldError{{Path: "a", Message: "b"}, {Message: "two"}}}, 6, "muster: two\n  a: b\n"},
	} {
		a, _, stderr := newApp()
		if got := a.reportError(c.err); got != c.status || stderr.String() != c.stderr {
			t.Errorf("%v: got status %d, %q; want %d, %q", c.err, got, stderr, c.status, c.stderr)
		}
	}
}

type row struct {
	ID   int               `json:"id"`
	Text string            `json:"text"`
	Tags map[string]string `json:"tags,omitempty"`
	More []any             `json:"more,omitempty"`
}

// TestFormatsAgree checks that JSON, YAML and ids tell the same, for one thing and
// for lists.
func TestFormatsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			return row{rapid.Int().Draw(t, "id"), rapid.String().Draw(t, "text"), rapid.MapOfN(rapid.StringMatching(`[a-z]+`), rapid.String(), 0, 2).Draw(t, "tags"), rapid.SliceOfN(nested(3), 0, 3).Draw(t, "more")}
		}), 0, 4).Draw(t, "rows")
		for i := range rows {
			if len(rows[i].Tags) == 0 {
				rows[i].Tags = nil
			}
			if len(rows[i].More) == 0 {
				rows[i].More = nil
			}
		}
		write := func(f OutputOptions) []byte {
			a, out, _ := newApp()
			l := Listing[row]{OutputOptions: f, Rows: seq(rows), ID: func(r row) string { return strconv.Itoa(r.ID) }}
			if err := l.Write(a); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		var fromJSON, fromYAML []row
		data := write(OutputOptions{Output: "json"})
		if err := json.Unmarshal(data, &fromJSON); err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		if diff := cmp.Diff(rows, fromJSON); diff != "" && len(rows) > 0 {
			t.Fatalf("JSON tells something else:\n%s", diff)
		}
		data = write(OutputOptions{Output: "yaml"})
		var read []map[string]any
		if err := yaml.Unmarshal(data, &read); err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		asJSON, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(asJSON, &fromYAML); err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
			t.Fatalf("YAML tells something else:\n%s\n%s", diff, data)
		}
		var paths OutputOptions
		if _, err := paths.parse("jsonpath={.id}:{.tags}:{.more}"); err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&lines, "%d:", r.ID)
			for i, v := range []any{r.Tags, r.More} {
				if encoded, err := json.Marshal(v); err != nil {
					t.Fatal(err)
				} else if string(encoded) != "null" {
					lines.Write(encoded)
				}
				lines.WriteString([]string{":", "\n"}[i])
			}
		}
		if got := write(paths); string(got) != lines.String() {
			t.Fatalf("JSONPath has\n%s, want\n%s", got, lines.String())
		}
		if ids, names := write(OutputOptions{Quiet: true}), write(OutputOptions{Output: "name"}); !bytes.Equal(ids, names) {
			t.Fatalf("the ids are %q, the names %q", ids, names)
		}
		if ids := write(OutputOptions{Quiet: true}); bytes.Count(ids, []byte("\n")) != len(rows) {
			t.Fatalf("%d rows have the ids %q", len(rows), ids)
		}
	})
}

// nested makes anything that JSON can tell.
func nested(depth int) *rapid.Generator[any] {
	plain := rapid.OneOf(rapid.Just(any(nil)), rapid.Bool().AsAny(), rapid.String().AsAny(), rapid.SampledFrom([]any{"true", "1", "0x1", "~", "- a", "a: b", "", " ", "2026-01-02", 1.5, -3.0}))
	if depth == 0 {
		return plain
	}
	return rapid.OneOf(plain,
		rapid.SliceOfN(nested(depth-1), 0, 3).AsAny(),
		rapid.MapOfN(rapid.String(), nested(depth-1), 0, 3).AsAny())
}

func seq(rows []row) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestJSONPreservesCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[<>&"\\u0-9a-f]*`).Draw(t, "text")
		data, err := toJSON(muster.Command{Shell: text}, "")
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(data, &back); err != nil || back != text {
			t.Fatalf("%s is %q (%v), want %q", data, back, err, text)
		}
		if want := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text); string(data) != `"`+want+`"` {
			t.Fatalf("%s is not %s", data, want)
		}
	})
}

// TestListStopsAtItsLimit checks that a list reads no further, and says so to people who did not set the limit.
func TestListStopsAtItsLimit(t *testing.T) {
	for _, c := range []struct {
		format       OutputOptions
		defaultLimit bool
		out, message string
	}{
		{OutputOptions{Quiet: true}, true, "0\n1\n", ""},
		{OutputOptions{}, false, "ID\n0\n1\n", ""},
		{OutputOptions{}, true, "ID\n0\n1\n", "more\n"},
	} {
		a, out, stderr := newApp()
		requested := 0
		l := Listing[row]{
			OutputOptions: c.format, Limit: 2, DefaultLimit: c.defaultLimit, TruncatedMessage: "more", ID: func(r row) string { return r.Text },
			Columns: []term.Column{{Title: "ID"}}, Row: func(r row, _ time.Time) []string { return []string{r.Text} },
			Rows: func(yield func(row, error) bool) {
				for yield(row{Text: strconv.Itoa(requested)}, nil) {
					requested++
				}
			},
		}
		if err := l.Write(a); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.out || stderr.String() != c.message || requested != 2 {
			t.Errorf("%+v: wrote %q, logged %q, requested %d rows", c, out, stderr, requested)
		}
	}
}

func TestFlagOverridesVariableOverridesDefault(t *testing.T) {
	for _, c := range []struct{ env, flag, want string }{
		{"", "", "dflt"}, {"env", "", "env"}, {"env", "flag", "flag"}, {"", "flag", "flag"},
	} {
		if c.env != "" {
			t.Setenv("MUSTER_THE_WORD", c.env)
		}
		a, _, _ := newApp()
		got := "dflt"
		args := []string{"muster", "x"}
		if c.flag != "" {
			args = append(args, "--the-word", c.flag)
		}
		cmd := a.NewCommand(Command{
			Name: "x", Category: CategorySetup, Flags: []cli.Flag{Option{Name: "the-word", Usage: "a `WORD`"}.WithEnv().StringVar(&got)},
			Run: func(context.Context, []string) error { return nil },
		})
		if status := a.Run(t.Context(), []*cli.Command{cmd}, args); status != 0 || got != c.want {
			t.Errorf("variable %q, flag %q: %q (status %d), want %q", c.env, c.flag, got, status, c.want)
		}
		t.Setenv("MUSTER_THE_WORD", c.env)
	}
}

func TestTaskProgress(t *testing.T) {
	for state, want := range map[muster.TaskState]string{muster.Running: "42%", muster.Failed: "42%", muster.Succeeded: ""} {
		if got := TaskProgress(&muster.Task{State: state, Progress: new(0.42)}); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	if got := TaskProgress(&muster.Task{State: muster.Running}); got != "" {
		t.Errorf("a task without progress is %q done", got)
	}
}

func TestRequestedImage(t *testing.T) {
	spec := &muster.Spec{Tasks: []muster.TaskSpec{{Image: "python:3.12"}, {Image: "a", Isolation: muster.IsolationAuto}, {}}}
	for _, c := range []struct {
		task muster.Task
		want string
	}{
		{muster.Task{}, "python:3.12"},
		{muster.Task{Image: "b@sha256:12"}, "b@sha256:12"},
		{muster.Task{Image: "sha256:12"}, "python:3.12 (sha256:12)"},
		{muster.Task{Image: "sha256:12", Group: 1}, "a (sha256:12)"},
		{muster.Task{Image: "sha256:12", Group: 2}, "sha256:12"},
		{muster.Task{Group: 1}, ""}, // it may be a process
		{muster.Task{Group: 2}, ""},
		{muster.Task{Group: 3}, ""},
	} {
		if got := TaskImage(&c.task, spec); got != c.want {
			t.Errorf("%+v: %q, want %q", c.task, got, c.want)
		}
	}
	if got := TaskImage(&muster.Task{}, nil); got != "" {
		t.Errorf("without a spec: %q", got)
	}
}

func TestTaskNote(t *testing.T) {
	task := muster.Task{State: muster.Running, Step: "pulling a, 45% of 120MiB"}
	if got := TaskNote(&task); got != task.Step {
		t.Errorf("while it runs: %q", got)
	}
	task.State = muster.Cancelled
	if got := TaskNote(&task); got != "" {
		t.Errorf("when it has ended: %q", got)
	}
	task.StartedAt = 1
	if got := TaskStep(&task); got != task.Step {
		t.Errorf("the task's own message is missing: %q", got)
	}
}

func TestImage(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	for image, want := range map[string]string{
		"": "", "python:3.12": "python:3.12", "sha256:" + digest: "sha256:0123456789ab", "a@sha256:12": "a@sha256:12", "a:1 (sha256:" + digest + ")": "a:1 (sha256:0123456789ab)",
		"docker.io/library/python@sha256:" + digest: "python@0123456789ab", "docker.io/acme/train@sha256:" + digest: "acme/train@0123456789ab",
		"ghcr.io/acme/train@sha256:" + digest: "ghcr.io/acme/train@0123456789ab",
	} {
		if got := ShortImage(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

// TestInterruptDuringARequest checks that a note is printed only for responses that arrive long after the signal.
func TestInterruptDuringARequest(t *testing.T) {
	for takes, want := range map[time.Duration]bool{0: false, 2 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			a, _, stderr := newApp()
			ctx, interrupt := context.WithCancel(t.Context())
			if err := a.WaitForResponse(ctx, func() error {
				interrupt()
				synctest.Wait()
				time.Sleep(takes)
				return io.EOF
			}); err != io.EOF { //nolint:errorlint // as it is
				t.Errorf("the error is %v", err)
			}
			if notified := strings.Contains(stderr.String(), "Ctrl-C again"); notified != want {
				t.Errorf("for a response after %s: got %q", takes, stderr)
			}
		})
	}
}
