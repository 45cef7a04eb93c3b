package builtin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestCalls(t *testing.T) {
	var flaky, late atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "session=secret")
		_, _ = fmt.Fprintf(w, `{"method": %q, "body": %q, "key": %q, "type": %q, "n": 1}`, r.Method, body, r.Header.Get("X-Key"), r.Header.Get("Content-Type"))
	})
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, _ *http.Request) {
		if flaky.Add(1) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	mux.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) {
		late.Add(1)
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 5000)) })
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0xfe, 0}) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	web := httptest.NewServer(mux)
	defer web.Close()

	for _, c := range []struct {
		name, input string
		class       string // of the failure, "" for none
		tries       float64
		check       func(w *env, e outcome)
	}{
		{name: "one", input: `{"url": "URL/ok?token=secret", "headers": {"X-Key": "k"}}`, tries: 1, check: func(w *env, e outcome) {
			answer, _ := e.result["response"].(map[string]any)
			body, _ := answer["json"].(map[string]any)
			if body["key"] != "k" || body["method"] != "GET" {
				w.t.Errorf("the answer is %v", e.result)
			}
			line := w.artifact("responses.jsonl")[0]
			if text := fmt.Sprint(line, w.log.String()); strings.Contains(text, "secret") || !strings.Contains(text, "/ok?…") {
				w.t.Errorf("a secret is kept: %s", text)
			}
		}},
		{name: "json is posted", input: `{"url": "URL/ok", "json": {"a": 1}, "expect": {"json": {"method": "POST", "body": "{\"a\": 1}", "type": "application/json"}}}`, tries: 1},
		{name: "text is put", input: `{"requests": [{"url": "URL/ok", "method": "put", "body": "hi"}], "expect": {"json": {"method": "PUT", "body": "hi"}}}`, tries: 1},
		{name: "other JSON", input: `{"url": "URL/ok", "expect": {"json": {"n": 2}}}`, class: classJSON, tries: 1, check: func(w *env, e outcome) {
			e.failed(w.t, "exit_code", "n is 1, not 2")
		}},
		{name: "no JSON", input: `{"url": "URL/long", "expect": {"json": {}}}`, class: classJSON, tries: 1},
		{name: "again until it works", input: `{"url": "URL/flaky"}`, tries: 3, check: func(w *env, e outcome) { e.numbers(w.t, map[string]float64{"retries": 2, "succeeded": 1}) }},
		{name: "asked to come tomorrow", input: `{"url": "URL/late"}`, class: classStatus, tries: 1},
		{name: "not the status", input: `{"url": "URL/gone"}`, class: classStatus, tries: 1, check: func(w *env, e outcome) { e.failed(w.t, "exit_code", "410 Gone") }},
		{name: "the status that is expected", input: `{"url": "URL/gone", "expect": {"status": [404, 410]}}`, tries: 1},
		{name: "too large", input: `{"url": "URL/long", "max_response": 4999}`, class: classTooLarge, tries: 1},
		{name: "cut", input: `{"url": "URL/long", "keep_body": 10}`, tries: 1, check: func(w *env, _ outcome) {
			if line := w.artifact("responses.jsonl")[0]; line["body"] != "xxxxxxxxxx" || line["body_cut"] != true || line["bytes"] != 5000.0 {
				w.t.Errorf("%v", line)
			}
		}},
		{name: "no text", input: `{"url": "URL/binary"}`, tries: 1, check: func(w *env, _ outcome) {
			if line := w.artifact("responses.jsonl")[0]; line["body_base64"] != "//4A" {
				w.t.Errorf("%v", line)
			}
		}},
		{name: "no answer", input: `{"url": "URL/hang", "timeout": "20ms", "retries": 0}`, class: classTimeout, tries: 1},
		{name: "no answer in all the time", input: `{"url": "URL/hang", "total": 1}`, class: classTimeout, tries: 1},
		{name: "connection refused", input: `{"url": "http://127.0.0.1:1", "retries": 1}`, class: classConnect, tries: 2},
		{name: "in circles", input: `{"url": "URL/round", "redirects": 3}`, class: classRefused, tries: 1},
		{name: "elsewhere", input: `{"url": "URL/away"}`, class: classRefused, tries: 1},
		{name: "a redirect that is wanted", input: `{"url": "URL/round", "redirects": 0, "expect": {"status": [302]}}`, tries: 1},
		{name: "some may fail", input: `{"requests": [{"url": "URL/ok"}, {"url": "URL/gone"}], "max_failed": 1}`, class: "-", check: func(w *env, e outcome) {
			e.numbers(w.t, map[string]float64{"calls": 2, "failed": 1, "succeeded": 1})
			if e.code != 0 {
				w.t.Errorf("it ended with %s", e.message)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnv(t)
			e := w.run(t.Context(), "api", strings.ReplaceAll(c.input, "URL", web.URL))
			if c.check != nil {
				c.check(w, e)
			}
			if c.class == "-" {
				return
			}
			if (e.code == 0) != (c.class == "") {
				t.Errorf("it ended with %d: %s\n%s", e.code, e.message, w.log.String())
			}
			line := w.artifact("responses.jsonl")[0]
			bad, _ := line["error"].(map[string]any)
			if class, _ := bad["class"].(string); class != c.class || line["tries"] != c.tries {
				t.Errorf("%v after %v tries, not %s after %v", line["error"], line["tries"], c.class, c.tries)
			}
		})
	}
}

// Many calls go at once, at most so many, and each is accounted for.
func TestConcurrentCalls(t *testing.T) {
	var now, most, all atomic.Int32
	var hold = make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if all.Add(1) == 3 {
			close(hold)
		}
		<-hold // the first three are there together
	}))
	defer web.Close()
	w := newEnv(t)
	e := w.run(t.Context(), "api", `{"requests": [{"url": "`+web.URL+`/a"}, {"url": "`+web.URL+`/b"}], "repeat": 20, "concurrency": 3}`)
	e.numbers(t, map[string]float64{"calls": 40, "succeeded": 40, "failed": 0})
	if e.code != 0 || most.Load() != 3 || len(w.artifact("responses.jsonl")) != 40 {
		t.Errorf("%d, %d at once: %s", e.code, most.Load(), e.message)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	t.Setenv("HTTP_PROXY", web.URL) // which could reach them
	w := newEnv(t)
	w.public = true
	e := w.run(t.Context(), "api", `{"url": "`+web.URL+`"}`)
	e.failed(t, "exit_code", "is not public", "--allow-private-addresses")
}

func TestBadCalls(t *testing.T) {
	w := newEnv(t)
	for input, word := range map[string]string{
		`{"url": "http://"}`: "input.url",
		`{"requests": [{"url": "https://a"}, {"url": "http:///x"}]}`: "input.requests[1].url",
		`{"url": "https://a", "body": "x", "json": 1}`:               "both body and json",
		`{"url": "https://a", "headers": {"X": "a\r\nHost: b"}}`:     "header",
		`{"requests": [{"url": "https://a"}, {"url": "https://b"}], "repeat": 100000, "max_failed": 1, "concurrency": 1, "rate": 1, "total": "1ms"}`: "not made",
	} {
		e := w.run(t.Context(), "api", input)
		if word == "not made" {
			e.failed(t, "exit_code", word)
			continue
		}
		e.failed(t, "bad_input", word)
	}
}
