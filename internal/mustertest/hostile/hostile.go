// Package hostile has servers that attack the terminals of their clients.
package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/testkit"
)

// Payload sets the title and the clipboard, clears the screen, asks for an answer, draws in magenta, and has 8-bit controls, a change of
// direction and a line that looks like one of the program.
const Payload = "\x1b]0;X\x07\x1b]52;c;eA==\x1b\\\x1b[2J\x1b[6n\x1b[35m\u009b31m\u009d0;Y\u202e\b\r\nmuster: FAKE"

// Proxy returns the URL of a server that passes requests to another one and appends the payload to each text of its answers: also to ids, which
// it removes from requests again. Times, states and other texts that a client must be able to read stay.
func Proxy(tb testing.TB, server string) string {
	tb.Helper()
	target, err := url.Parse(server)
	testkit.NoError(tb, err)
	return start(tb, &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Path, r.Out.URL.RawPath = strings.ReplaceAll(r.In.URL.Path, Payload, ""), ""
			r.Out.URL.RawQuery = strings.ReplaceAll(r.In.URL.RawQuery, url.QueryEscape(Payload), "")
			r.SetURL(target)
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		ModifyResponse: attack,
	})
}

// Refuse returns the URL of a server that answers each request with an error that has the payload. A worker may join, and then gets a goodbye
// with it.
func Refuse(tb testing.TB) string {
	tb.Helper()
	mux := http.NewServeMux()
	secret := testworker.Serve(mux, "w-hostile", "token")
	identify := func(*http.Request) (link.Peer, error) { return link.Peer{Worker: "w-hostile", Secret: secret()}, nil }
	sessions := wslink.NewServer(identify, func(ctx context.Context, conn link.ServerConn, _ link.Peer) {
		defer conn.Close()
		if _, err := conn.Recv(ctx); err == nil {
			_ = conn.Send(ctx, &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Forbidden, Message: "refused" + Payload}}) // the worker may be gone
		}
	})
	go func() { _ = sessions.Run(tb.Context()) }() // ends with the test
	mux.Handle(link.PathSocket, sessions)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		p := wire.Problem{Code: muster.Forbidden, Detail: "refused" + Payload, Errors: []muster.FieldError{{Path: "a" + Payload, Message: "b" + Payload, Hint: Payload}}}
		_ = json.NewEncoder(w).Encode(p) // the client may be gone
	})
	return start(tb, mux)
}

func start(tb testing.TB, handler http.Handler) string {
	tb.Helper()
	s := httptest.NewServer(handler)
	tb.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// attack changes a response.
func attack(r *http.Response) error {
	switch contentType := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(contentType, "text/event-stream"):
		in := r.Body
		out, w := io.Pipe()
		go func() {
			defer in.Close()
			lines := bufio.NewReader(in)
			for {
				line, err := lines.ReadBytes('\n')
				if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
					line = append(append([]byte("data: "), attackJSON(bytes.TrimSpace(data))...), '\n')
				}
				if _, errOut := w.Write(line); errOut != nil || err != nil {
					w.CloseWithError(err)
					return
				}
			}
		}()
		r.Body = readCloser{out, w}
	case strings.Contains(contentType, "json"):
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		data = attackJSON(data)
		r.Body = io.NopCloser(bytes.NewReader(data))
		r.ContentLength = int64(len(data))
		r.Header.Set("Content-Length", strconv.Itoa(len(data)))
	}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// attackJSON appends the payload to the texts of a document; other data is returned as it is.
func attackJSON(data []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var document any
	if d.Decode(&document) != nil {
		return data
	}
	changed, err := json.Marshal(attackValue("", document))
	if err != nil {
		return data
	}
	return changed
}

func attackValue(name string, v any) any {
	switch v := v.(type) {
	case string:
		if structure.Get().MatchString(v) || slices.Contains(words, v) || slices.Contains(structural, name) {
			return v
		}
		return v + Payload
	case []any:
		for i := range v {
			v[i] = attackValue(name, v[i])
		}
	case map[string]any:
		changed := map[string]any{}
		for key, value := range v {
			if slices.Contains(maps, name) {
				changed[key+Payload] = attackValue("", value)
			} else {
				changed[key] = attackValue(key, value)
			}
		}
		return changed
	}
	return v
}

var (
	// structure matches ids, times, durations, sizes and digests.
	structure = lazyregexp.New(`^(|\d+(\.\d+)?(#\d+)?|\d{4}-\d\d-\d\dT.*|\d+(\.\d+)?[KMGTP]?i?B|(\d+(\.\d+)?(ns|us|ms|[smhd]))+|[0-9a-f]{40,})$`)
	// words are states and types.
	words = []string{
		"waiting", "queued", "assigned", "running", "cancelling", "succeeded", "failed", "timed_out", "cancelled", "skipped", "job", "task", "worker", "resync",
		"stdout", "stderr", "system", "process",
	}
	// structural are members whose texts select what a client does, or are encoded.
	structural = []string{"code", "bytes", "array"}
	// maps are members whose own members have names that users choose.
	maps = []string{"labels", "metrics", "env", "result", "input", "params"}
)
