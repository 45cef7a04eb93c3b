package docker

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestTerminalSizes checks that an engine gets the size of a terminal when it creates and starts a command, and none if the client does not
// know it: a terminal of 0 columns breaks programs.
func TestTerminalSizes(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Skip("no sockets of Unix: ", err)
	}
	sizes := make(chan *[2]int, 2) // of the requests for one command
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		var body struct {
			ConsoleSize *[2]int `json:"ConsoleSize"` //nolint:tagliatelle // Docker's name
		}
		switch {
		case strings.HasSuffix(q.URL.Path, "/exec"):
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id": "x1"}`))
		case strings.HasSuffix(q.URL.Path, "/exec/x1/start"):
			defer hijack(t, w)
		default:
			return
		}
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sizes <- body.ConsoleSize
	})}}
	server.Start()
	defer server.Close()
	e, err := Open("unix://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, tt := range []struct {
		rows, columns int
		passed        bool
	}{{33, 91, true}, {0, 0, false}, {0, 91, false}, {33, 0, false}} {
		x, err := e.Exec(t.Context(), "c1", &ExecOptions{Argv: []string{"sh"}, TTY: true, Rows: tt.rows, Columns: tt.columns})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if got := <-sizes; tt.passed != (got != nil && *got == [2]int{tt.rows, tt.columns}) || !tt.passed && got != nil {
				t.Errorf("%dx%d: the engine got %v", tt.rows, tt.columns, got)
			}
		}
	}
}

// hijack answers that the connection is the command's from now on.
func hijack(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = out.WriteString("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_ = out.Flush()
	t.Cleanup(func() { _ = conn.Close() })
}
