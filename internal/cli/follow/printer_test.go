package follow

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// chanWriter is a writer that passes on what is written.
type chanWriter chan string

func (h chanWriter) Write(b []byte) (int, error) {
	h <- string(b)
	return len(b), nil
}

// TestRetryReasonIsPrinted has attempts with different outcomes, one of them without a message.
func TestRetryReasonIsPrinted(t *testing.T) {
	s := apitest.Start(t, nil)
	server, w := s.Client(t), s.ConnectWorker(t, "w1")
	job, err := server.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{
		Run: &muster.Command{Shell: "true"}, Retries: muster.Retries{Max: 2, Backoff: muster.Duration(time.Millisecond)},
	}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, errs := make(chanWriter, 9), bytes.Buffer{}
	end := func(text string, r muster.Report) {
		t.Helper()
		r.Attempt, r.FinishedAt = w.StartNext(), muster.NewTime(time.Now())
		if text != "" {
			size, err := s.Logs.Append(t.Context(), r.Attempt, 0, apitest.EncodeRecord(tasklog.Stdout, text))
			if err != nil {
				t.Fatal(err)
			}
			r.LogSize = size
			if got := <-out; got != text { // an attempt that ends unseen may never be shown
				t.Errorf("printed %q, want %q", got, text)
			}
		}
		w.Send(&link.ToServer{Finished: []muster.Report{r}})
	}
	done := make(chan error, 1)
	go func() {
		p := NewPrinter(server, plain(out), plain(&errs))
		done <- p.Print(t.Context(), []remote.Selector{{Job: job.ID}}, client.LogOptions{Follow: true})
	}()
	end("one\n", muster.Report{Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: new(4), Message: "exit code 4"})
	end("two\n", muster.Report{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout, Message: "ran for longer than 5s"})
	end("", muster.Report{Outcome: muster.AttemptFailed, Reason: muster.FetchFailed, Message: "the registry\nhung up"})
	end("four\n", muster.Report{Outcome: muster.AttemptSucceeded, ExitCode: new(0)})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := "muster: 1.0 is tried again: attempt 2 (after exit code 4)\n" +
		"muster: 1.0 is tried again: attempt 3 (after timeout: ran for longer than 5s)\n" +
		"muster: 1.0 is tried again: attempt 4 (after fetch_failed: the registry hung up)\n"
	if got := errs.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAttemptsWithoutOutputAreReported lets attempts fail without output. Each is reported while the next one waits for its
// backoff, up to a limit.
func TestAttemptsWithoutOutputAreReported(t *testing.T) {
	s := apitest.Start(t, nil)
	server, w := s.Client(t), s.ConnectWorker(t, "w1")
	const attempts = 4 // the limit is reached at the second
	job, err := server.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{
		Run: &muster.Command{Shell: "true"}, Retries: muster.Retries{Max: attempts, Backoff: muster.Duration(time.Millisecond)},
	}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, errs := make(chanWriter), make(chanWriter)
	done := make(chan error, 1)
	go func() {
		p := NewPrinter(server, plain(out), plain(errs))
		p.retries = maxRetryNotices - 2
		done <- p.Print(t.Context(), []remote.Selector{{Job: job.ID}}, client.LogOptions{Follow: true})
	}()
	first := w.StartNext()
	size, err := s.Logs.Append(t.Context(), first, 0, apitest.EncodeRecord(tasklog.Stdout, "followed\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := <-out; got != "followed\n" { // an attempt that ends unseen may never be shown
		t.Errorf("printed %q", got)
	}
	for n := 1; n <= attempts; n++ {
		attempt, logSize := first, size
		if n > 1 {
			attempt, logSize = w.StartNext(), 0
		}
		w.Send(&link.ToServer{Finished: []muster.Report{{
			Attempt: attempt, LogSize: logSize, Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: new(4), FinishedAt: muster.NewTime(time.Now()),
		}}})
		want := fmt.Sprintf("muster: 1.0 is tried again: attempt %d (after exit code 4)\n", n+1)
		switch {
		case n == 3:
			want = "muster: more retries are not shown: muster explain 1.0 has the attempts\n"
		case n > 3:
			continue
		}
		if got := <-errs; got != want {
			t.Errorf("attempt %d: printed %q, want %q", n, got, want)
		}
	}
	w.Send(&link.ToServer{Finished: []muster.Report{{Attempt: w.StartNext(), Outcome: muster.AttemptSucceeded, ExitCode: new(0), FinishedAt: muster.NewTime(time.Now())}}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestTasksWithoutAttemptsAreNotRead prints and follows the output of a cancelled array, of which one task was started.
func TestTasksWithoutAttemptsAreNotRead(t *testing.T) {
	var requests, logs atomic.Int64
	s := apitest.Start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if strings.HasSuffix(r.URL.Path, "/logs") {
				logs.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	server, w := s.Client(t), s.ConnectWorker(t, "w1")
	job, err := server.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{
		Run: &muster.Command{Shell: "true"}, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 1999}}}, Resources: muster.Request{CPUs: 8},
	}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	started := w.StartNext()
	size, err := s.Logs.Append(t.Context(), started, 0, apitest.EncodeRecord(tasklog.Stdout, "started\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	w.Finish(started, muster.AttemptCancelled, size)
	testkit.Await(t, "the job ends", func() bool {
		j, err := server.Job(t.Context(), job.ID)
		return err == nil && j.State.Final()
	})
	for _, o := range []client.LogOptions{{}, {Follow: true}} {
		requests.Store(0)
		logs.Store(0)
		var out, errs bytes.Buffer
		if err := NewPrinter(server, plain(&out), plain(&errs)).Print(t.Context(), []remote.Selector{{Job: job.ID}}, o); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != "1_0 | started\n" || errs.Len() > 0 {
			t.Errorf("printed %q and %q", got, errs.String())
		}
		if n := logs.Load(); n != 1 {
			t.Errorf("the logs of %d tasks are read with %+v, want one", n, o)
		}
		if n := requests.Load(); !o.Follow && n > 4 {
			t.Errorf("%d requests, want 4 at most: the job, its stages, the tasks, a log", n)
		}
	}
	if err := NewPrinter(server, plain(io.Discard), plain(io.Discard)).Print(t.Context(), []remote.Selector{{Job: job.ID, Spans: []client.Span{{First: 10, Last: 20}}}}, client.LogOptions{}); err != nil {
		t.Errorf("tasks without attempts: %v", err)
	}
	absent := []remote.Selector{{Job: job.ID, Spans: []client.Span{{First: 2000, Last: 2010}}}}
	if err := NewPrinter(server, plain(io.Discard), plain(io.Discard)).Print(t.Context(), absent, client.LogOptions{}); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("tasks that do not exist: %v", err)
	}
}

func TestTasksThatMayHaveOutput(t *testing.T) {
	for _, task := range []muster.Task{
		{State: muster.Running, Attempt: 1}, {State: muster.Queued}, {State: muster.Failed, Reason: muster.WorkerLost, Attempt: 1},
		{State: muster.Succeeded, Attempt: 2, ExitCode: new(0)}, {State: muster.Cancelled, Attempt: 1}, {State: muster.Failed, LogSize: 1},
	} {
		if hasNoOutput(&task) {
			t.Errorf("the output of %+v is not read", task)
		}
	}
}

// TestOneTaskIsFollowedWithTwoRequests follows a job with one task: its output and then the job are read, and neither a list of tasks nor
// events. Each request delays the start of the task if the server, the worker and the client share a small machine.
func TestOneTaskIsFollowedWithTwoRequests(t *testing.T) {
	var mu sync.Mutex
	requests := map[string]int{}
	s := apitest.Start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests[r.Method+" "+r.URL.Path]++
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	})
	server, w := s.Client(t), s.ConnectWorker(t, "w1")
	job, err := server.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Run: &muster.Command{Shell: "true"}}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	clear(requests)
	mu.Unlock()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- Follow(t.Context(), &app.App{Out: plain(&out), Err: plain(io.Discard)}, server, job, SummaryNone, nil)
	}()
	r := muster.Report{Attempt: w.StartNext(), Outcome: muster.AttemptSucceeded, ExitCode: new(0), FinishedAt: muster.NewTime(time.Now())}
	if r.LogSize, err = s.Logs.Append(t.Context(), r.Attempt, 0, apitest.EncodeRecord(tasklog.Stdout, "one\n")); err != nil {
		t.Fatal(err)
	}
	w.Send(&link.ToServer{Finished: []muster.Report{r}})
	if err := <-done; err != nil || out.String() != "one\n" {
		t.Errorf("printed %q, %v", out.String(), err)
	}
	mu.Lock()
	defer mu.Unlock()
	delete(requests, "GET /api/v1/jobs/1") // one more for each second in which the task has not started
	if want := map[string]int{"GET /api/v1/tasks/1.0/logs": 1}; !maps.Equal(requests, want) {
		t.Errorf("the requests besides those of the job are %v, want %v", requests, want)
	}
}

// TestStageNamesArePrinted follows a job whose stages print, fail and are skipped, and checks that each of them is printed.
func TestStageNamesArePrinted(t *testing.T) {
	s := apitest.Start(t, nil)
	server, w := s.Client(t), s.ConnectWorker(t, "w1")
	run := &muster.Command{Shell: "true"}
	job, err := server.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{
		{Name: "each", Run: run, Matrix: &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"0.1"}}}}}, {Name: "last", Needs: []string{"each"}, Run: run},
	}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- NewPrinter(server, plain(&out), plain(&errs)).Print(t.Context(), []remote.Selector{{Job: job.ID}}, client.LogOptions{Follow: true})
	}()
	r := muster.Report{Attempt: w.StartNext(), Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: new(4), FinishedAt: muster.NewTime(time.Now())}
	if r.LogSize, err = s.Logs.Append(t.Context(), r.Attempt, 0, apitest.EncodeRecord(tasklog.Stdout, "one\n")); err != nil {
		t.Fatal(err)
	}
	w.Send(&link.ToServer{Finished: []muster.Report{r}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := out.String()+errs.String(), "each.lr=0.1 | one\nmuster: stage each: failed\nmuster: stage last: skipped\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if job, err = server.Job(t.Context(), job.ID); err != nil || taskLabel(&job, muster.TaskID{Job: job.ID, Num: 1}) != "1.1 (last)" {
		t.Errorf("the task is called %s, %v", taskLabel(&job, muster.TaskID{Job: job.ID, Num: 1}), err)
	}
}

// TestExplainErrorIsIgnored answers nothing about attempts.
func TestExplainErrorIsIgnored(t *testing.T) {
	s := apitest.Start(t, func(http.Handler) http.Handler { return http.NotFoundHandler() })
	p := NewPrinter(s.Client(t), plain(nil), plain(nil))
	if got := p.retryNotice(t.Context(), muster.TaskID{Job: 1}, "1.0", 1); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestAttemptOutcome(t *testing.T) {
	for want, a := range map[string]muster.Attempt{
		"exit code 7":               {Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: new(7), Message: "exit code 7"},
		"lost":                      {Outcome: muster.AttemptLost},
		"worker_lost":               {Outcome: muster.AttemptLost, Reason: muster.WorkerLost},
		"engine_failed: it is gone": {Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: "it is\ngone"},
	} {
		if got := formatOutcome(&a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// plain returns an output that is not a terminal.
func plain(w io.Writer) term.Screen { return term.Screen{Writer: w} }

// TestTerminalsGetTextOnly prints the output of a task that would act on a terminal, on one and elsewhere.
func TestTerminalsGetTextOnly(t *testing.T) {
	parts := []string{"50%\r100%\n\x1b]0;title", "\x07\x1b[31mred\x1b[m\x1b[2", "J\b\xe2\x82", "\xac\n\x1b]52;c;c3R1ZmY="}
	for name, c := range map[string]struct {
		prefix   string
		terminal bool
		want     string
	}{
		"a terminal":                {"", true, "50%\r100%\nred\b€\nmuster: en ds\n"},
		"a terminal, several tasks": {"1.2 | ", true, "1.2 | 100%\n1.2 | red€\n1.2 | muster: en ds\n"},
		"a file":                    {"", false, strings.Join(parts, "") + "muster: en\rds\n"},
	} {
		var b bytes.Buffer
		screen := term.Screen{Writer: &b, Terminal: c.terminal}
		w := NewPrinter(nil, screen, screen).newLineWriter(screen, c.prefix)
		for _, part := range parts {
			w.write([]byte(part))
		}
		w.message([]byte("muster: en\rds\n"))
		if b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, &b, c.want)
		}
	}
}
