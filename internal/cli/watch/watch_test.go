package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// item is a row of a list that tests watch.
type item struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Load  int    `json:"load"` // changes all the time
}

// env is a server with a list, and what a command wrote of it.
type env struct {
	t *testing.T
	*httptest.Server

	mu            sync.Mutex
	items         []item
	err           error // of reading
	reads         []string
	out, messages bytes.Buffer
	refuse        bool
	resumes       bool        // a client that connects again hears only comments: it has missed nothing
	events        chan string // "" breaks the connection
	seq           int
}

// lockedWriter is the output of a command.
type lockedWriter struct {
	env *env
	buf *bytes.Buffer
}

func (s lockedWriter) Write(p []byte) (int, error) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	return s.buf.Write(p)
}

func newEnv(t *testing.T, items ...item) *env {
	t.Helper()
	w := &env{t: t, items: items, events: make(chan string)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		refuse, resumed := w.refuse, w.resumes && r.Header.Get("Last-Event-ID") != ""
		w.mu.Unlock()
		if refuse {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(rw, ": muster\n\n")
		if !resumed {
			_, _ = fmt.Fprint(rw, "id: e-0\nevent: resync\ndata: {\"epoch\":\"e\",\"seq\":0,\"type\":\"resync\"}\n\n")
		}
		_ = http.NewResponseController(rw).Flush()
		for {
			select {
			case e := <-w.events:
				if e == "" {
					return
				}
				_, _ = fmt.Fprint(rw, e)
				_ = http.NewResponseController(rw).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// change sets rows and sends an event of each.
func (w *env) change(items ...item) {
	w.t.Helper()
	for _, v := range items {
		w.mu.Lock()
		if i := slices.IndexFunc(w.items, func(old item) bool { return old.ID == v.ID }); i >= 0 {
			w.items[i] = v
		} else {
			w.items = append(w.items, v)
		}
		w.seq++
		e := fmt.Sprintf("id: e-%d\nevent: worker\ndata: {\"epoch\":\"e\",\"seq\":%d,\"type\":\"worker\",\"worker\":%q}\n\n", w.seq, w.seq, v.ID)
		w.mu.Unlock()
		w.events <- e
	}
}

func (w *env) rows(kind string, want func(item) bool) iter.Seq2[item, error] {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = append(w.reads, kind)
	if err := w.err; err != nil {
		return func(yield func(item, error) bool) { yield(item{}, err) }
	}
	list := slices.DeleteFunc(slices.Clone(w.items), func(v item) bool { return !want(v) })
	return func(yield func(item, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// count is how often the list was read.
func (w *env) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.reads)
}

// watch starts to watch the list. wait returns the error with which that ends.
func (w *env) watch(format app.OutputOptions, terminal bool) (wait func() error) {
	w.t.Helper()
	c, err := client.New(w.URL, "", client.Options{RetryTimeout: time.Nanosecond, StreamRetryTimeout: time.Nanosecond})
	if err != nil {
		w.t.Fatal(err)
	}
	rows := List[item]{
		Listing: app.Listing[item]{
			OutputOptions: format, Columns: []term.Column{{Title: "NAME"}, {Title: "STATE", NoTruncate: true}, {Title: "LOAD", AlignRight: true}}, EmptyMessage: "there is nothing",
			Row: func(v item, _ time.Time) []string { return []string{v.ID, v.State, strconv.Itoa(v.Load)} },
			ID:  func(v item) string { return v.ID },
		},
		Watch:     true,
		Normalize: func(v item) item { v.Load = 0; return v },
		Fetch: func(context.Context, int) iter.Seq2[item, error] {
			return w.rows("all", func(item) bool { return true })
		},
		FetchChanged: func(_ context.Context, b live.Batch) iter.Seq2[item, error] {
			return w.rows("some", func(v item) bool {
				return slices.ContainsFunc(b.Events, func(e muster.Event) bool { return string(e.Worker) == v.ID })
			})
		},
	}
	a := &app.App{Out: term.Screen{Writer: lockedWriter{w, &w.out}, Interactive: terminal, Width: 60}, Err: term.Screen{Writer: lockedWriter{w, &w.messages}}}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rows.Run(ctx, a, c) }()
	wait = sync.OnceValue(func() error { return <-ended })
	w.t.Cleanup(func() {
		cancel()
		_ = wait()
	})
	return wait
}

// waitOutput waits for this output and these messages.
func (w *env) waitOutput(out, messages string) {
	w.t.Helper()
	var gotOut, gotText string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		gotOut, gotText = w.out.String(), w.messages.String()
		w.mu.Unlock()
		if gotOut == out && (gotText == messages || messages != "" && strings.Contains(gotText, messages)) {
			return
		}
	}
	w.t.Fatalf("written:\n%q\nwant:\n%q\nlogged:\n%q\nwant:\n%q", gotOut, out, gotText, messages)
}

func (w *env) hasMessage(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.messages.String(), text)
}

// The list is printed, and then each row that differs, below the same titles.
func TestChangesArePrinted(t *testing.T) {
	w := newEnv(t, item{"a", "queued", 1}, item{"b", "running", 20})
	w.watch(app.OutputOptions{}, false)
	text := "NAME  STATE      LOAD\na     queued        1\nb     running      20\n"
	w.waitOutput(text, "")
	w.change(item{"a", "succeeded", 5})
	text += "a     succeeded     5\n"
	w.waitOutput(text, "")
	w.change(item{"b", "running", 99}, item{"a-longer-name", "queued", 0}) // the load alone is no change
	text += "a-longer-name  queued        0\n"
	w.waitOutput(text, "")
	w.change(item{"b", "failed", 0})
	text += "b              failed        0\n"
	w.waitOutput(text, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := strings.Count(strings.Join(w.reads, " "), "all"); all > 2 { // the first time, and for the resync of the connection
		t.Errorf("the list was read %d times as a whole: %v", all, w.reads)
	}
}

// Machine-readable output has neither titles nor messages.
func TestFormats(t *testing.T) {
	for name, c := range map[string]struct {
		format      app.OutputOptions
		first, then string
	}{
		"json":  {app.OutputOptions{Output: "json"}, `{"id":"a<b","state":"queued","load":1}` + "\n", `{"id":"a<b","state":"running","load":2}` + "\n"},
		"quiet": {app.OutputOptions{Quiet: true}, "a<b\n", "a<b\n"},
		"yaml":  {app.OutputOptions{Output: "yaml"}, "---\nid: \"a<b\"\nstate: queued\nload: 1\n", "---\nid: \"a<b\"\nstate: running\nload: 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, item{"a<b", "queued", 1})
			w.watch(c.format, false)
			w.waitOutput(c.first, "")
			w.change(item{"a<b", "running", 2})
			w.waitOutput(c.first+c.then, "")
		})
	}
	w := newEnv(t)
	w.watch(app.OutputOptions{}, false)
	w.waitOutput("NAME  STATE      LOAD\n", "there is nothing\n")
}

// A broken connection is reported once, and missed changes are printed after it.
func TestLostConnection(t *testing.T) {
	w := newEnv(t, item{"a", "queued", 0})
	w.watch(app.OutputOptions{}, false)
	text := "NAME  STATE      LOAD\na     queued        0\n"
	w.waitOutput(text, "")
	w.mu.Lock()
	w.refuse = true
	w.mu.Unlock()
	w.events <- ""
	w.waitOutput(text, "reconnecting\n")
	w.mu.Lock()
	w.refuse, w.items = false, []item{{"a", "failed", 0}, {"b", "queued", 0}}
	w.mu.Unlock()
	text += "a     failed        0\nb     queued        0\n"
	w.waitOutput(text, "muster: reconnected\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := strings.Count(w.messages.String(), "; reconnecting"); n != 1 {
		t.Errorf("the loss is logged %d times: %s", n, w.messages.String())
	}
}

// A connection that resumes without any event is back, and changes that came just before the loss are printed.
func TestLostConnectionResumes(t *testing.T) {
	w := newEnv(t, item{"a", "queued", 0})
	w.resumes = true
	w.watch(app.OutputOptions{}, false)
	text := "NAME  STATE      LOAD\na     queued        0\n"
	w.waitOutput(text, "")
	w.mu.Lock()
	w.refuse = true
	w.mu.Unlock()
	w.change(item{"a", "failed", 0})
	w.events <- ""
	for end := time.Now().Add(30 * time.Second); !w.hasMessage("reconnecting\n") && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	w.mu.Lock()
	w.refuse = false
	w.mu.Unlock()
	w.waitOutput(text+"a     failed        0\n", "muster: reconnected\n")
}

// An error of the first read ends it; later ones do if they do not go away by themselves.
func TestErrors(t *testing.T) {
	w := newEnv(t)
	w.err = muster.Errorf(muster.Unavailable, "not now")
	if err := w.watch(app.OutputOptions{}, false)(); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("it ended with %v", err)
	}
	w = newEnv(t, item{"a", "queued", 0})
	w.watch(app.OutputOptions{}, false)
	text := "NAME  STATE      LOAD\na     queued        0\n"
	w.waitOutput(text, "")
	w.mu.Lock()
	w.err = muster.Errorf(muster.Unavailable, "not now")
	w.mu.Unlock()
	before := w.count()
	w.change(item{"a", "running", 0})
	for end := time.Now().Add(30 * time.Second); w.count() == before && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	w.mu.Lock()
	w.err = nil
	w.mu.Unlock()
	w.waitOutput(text+"a     running       0\n", "") // the next read makes up for it

	w = newEnv(t, item{"a", "queued", 0})
	wait := w.watch(app.OutputOptions{}, false)
	w.waitOutput(text, "")
	w.mu.Lock()
	w.err = muster.Errorf(muster.Forbidden, "the key was revoked")
	w.mu.Unlock()
	w.change(item{"a", "running", 0})
	if err := wait(); muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("it ended with %v", err)
	}
}

// On a terminal the table is drawn in place of the one before, and fits.
func TestDraw(t *testing.T) {
	w := newEnv(t, item{"a", "queued", 1})
	w.watch(app.OutputOptions{}, true)
	first := "NAME  STATE   LOAD\x1b[K\r\na     queued     1\x1b[K\r\nwatching; Ctrl-C stops\x1b[K\r\n\x1b[J"
	w.waitOutput(first, "")
	w.change(item{"a", "running", 2})
	second := first + "\x1b[3ANAME  STATE    LOAD\x1b[K\r\na     running     2\x1b[K\r\nwatching; Ctrl-C stops\x1b[K\r\n\x1b[J"
	w.waitOutput(second, "")
	var more []item
	for i := range 40 {
		more = append(more, item{fmt.Sprintf("i%02d", i), "queued", i})
	}
	w.mu.Lock()
	w.items = more
	w.out.Reset()
	w.mu.Unlock()
	w.change(item{"i00", "running", 0})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		text := w.out.String()
		w.mu.Unlock()
		if strings.Contains(text, "i20 ") && strings.HasPrefix(text, "\x1b[3A") {
			if n := strings.Count(text, "\r\n"); n != 23 || !strings.Contains(text, "the first 21; enlarge") {
				t.Errorf("%d lines of 24: %q", n, text)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("drawn: %q", text)
		}
	}
}

func TestCanvas(t *testing.T) {
	var out bytes.Buffer
	c := canvas{screen: term.Screen{Writer: &out, Width: 20}}
	draw := func(text string) string {
		t.Helper()
		out.Reset()
		if err := c.draw(func(s term.Screen) error { return app.WriteOutput(s, []byte(text)) }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, step := range []struct {
		text, want string
		width      int
	}{
		{"a\nb\n", "a\x1b[K\r\nb\x1b[K\r\n\x1b[J", 20},
		{"a\nb\n", "", 20},
		{"c\n", "\x1b[2Ac\x1b[K\r\n\x1b[J", 20},
		{"c\n", "\x1b[2J\x1b[Hc\x1b[K\r\n\x1b[J", 10},
	} {
		c.screen.Width = step.width
		if got := draw(step.text); got != step.want {
			t.Errorf("%q is drawn as %q, want %q", step.text, got, step.want)
		}
	}
	broken := errors.New("broken")
	if err := c.draw(func(term.Screen) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error is lost: %v", err)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range [][3]int{{0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		read := 0
		l := List[int]{Listing: app.Listing[int]{Limit: c[0]}, Fetch: func(context.Context, int) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for ; yield(read, nil); read++ {
				}
			}
		}}
		got := 0
		for range l.fetch(t.Context(), c[1]) {
			got++
		}
		if got != c[2] || read != c[2]-1 {
			t.Errorf("of a list of at most %d rows, the first %d are %d, after %d more", c[0], c[1], got, read)
		}
	}
	w := muster.Worker{Name: "rig", LastSeenAt: 5, Load: &muster.Load{CPU: 1}}
	if s := WithoutHeartbeat(w); s.Load != nil || s.LastSeenAt != 0 || s.Name != "rig" || w.Load == nil {
		t.Errorf("steady is %+v", s)
	}
}
