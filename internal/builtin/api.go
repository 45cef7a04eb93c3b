package builtin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/agent/run"
)

type request struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
	JSON    json.RawMessage   `json:"json"`
	Expect  *expect           `json:"expect"`
}

// expect is the condition for a call to succeed.
type expect struct {
	Status []int           `json:"status"`
	JSON   json.RawMessage `json:"json"`
}

type apiInput struct {
	request
	Requests    []request       `json:"requests"`
	Repeat      int             `json:"repeat"`
	Concurrency int             `json:"concurrency"`
	Rate        float64         `json:"rate"`
	Timeout     muster.Duration `json:"timeout"`
	Total       muster.Duration `json:"total"`
	MaxResponse int64           `json:"max_response"`
	KeepBody    int             `json:"keep_body"`
	Retries     int             `json:"retries"`
	Redirects   int             `json:"redirects"`
	MaxFailed   int             `json:"max_failed"`
}

// maxCalls is how many calls one task makes; more need several tasks.
const maxCalls = 1_000_000

func api(ctx context.Context, t *task) (any, error) {
	in := apiInput{
		Repeat: 1, Concurrency: 4, Timeout: muster.Duration(30 * time.Second), MaxResponse: 10 << 20, KeepBody: 64 << 10, Retries: 3, Redirects: 5,
	}
	if err := t.decodeInput(&in); err != nil {
		return nil, err
	}
	calls, err := in.calls()
	if err != nil {
		return nil, err
	}
	responses, err := t.createJSONL("responses.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() { _ = responses.close() }() // record reports errors
	transport := outbound.Transport(t.allowPrivate)
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = in.Concurrency, in.Concurrency
	transport.ResponseHeaderTimeout = 0 // each try has its own timeout
	if t.allowPrivate {
		transport.Proxy = proxy
	}
	own := transport.Clone()
	own.DialContext = (&net.Dialer{Timeout: 15 * time.Second}).DialContext
	r := &callRunner{
		in: &in, t: t, calls: calls, responses: responses,
		caller: caller{
			client: &http.Client{Transport: outbound.ExceptServer(t.server, own, transport), CheckRedirect: outbound.Redirects(in.Redirects)},
			in:     &in,
		},
		sum: apiResult{Statuses: map[string]int{}, Failures: map[string]int{}},
	}
	return r.run(ctx)
}

// proxy returns the proxy of network: allowlist, also for the worker's own addresses if the stage names them, for which Go uses no proxy.
// Without that network it returns the proxy of the environment.
func proxy(r *http.Request) (*url.URL, error) {
	proxyURL := &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(run.ProxyPort))}
	excluded := strings.Split(os.Getenv("NO_PROXY"), ",")
	if os.Getenv("HTTP_PROXY") == proxyURL.String() && !slices.Contains(excluded, r.URL.Hostname()) {
		return proxyURL, nil
	}
	return http.ProxyFromEnvironment(r)
}

// calls validates what a schema cannot, and adds the defaults.
func (in *apiInput) calls() ([]request, error) {
	calls := in.Requests
	if len(calls) == 0 {
		calls = []request{in.request}
	}
	if len(calls)*in.Repeat > maxCalls {
		return nil, failf(muster.BadInput, "input.repeat: %d × %d calls exceed the limit of %d: split them into several tasks, such as with array", in.Repeat, len(calls), maxCalls)
	}
	for i := range calls {
		c := &calls[i]
		field := "input.url"
		if len(in.Requests) > 0 {
			field = fmt.Sprintf("input.requests[%d].url", i)
		}
		u, err := url.Parse(c.URL)
		if err == nil {
			err = outbound.CheckScheme(u)
		}
		if err != nil {
			return nil, failf(muster.BadInput, "%s: %w", field, err)
		}
		if c.Body == nil && c.JSON == nil {
			c.Body, c.JSON = in.Body, in.JSON
		}
		if c.Body != nil && c.JSON != nil {
			return nil, failf(muster.BadInput, "%s: the call has both body and json: remove one", strings.TrimSuffix(field, ".url"))
		}
		c.Expect = cmp.Or(c.Expect, in.Expect, &expect{})
		c.Method = strings.ToUpper(cmp.Or(c.Method, in.Method))
		if c.Method == "" {
			c.Method = http.MethodGet
			if c.Body != nil || c.JSON != nil {
				c.Method = http.MethodPost
			}
		}
		headers := maps.Clone(in.Headers)
		if headers == nil {
			headers = map[string]string{}
		}
		maps.Copy(headers, c.Headers)
		c.Headers = headers
		for name, v := range headers {
			if textproto.TrimString(name) != name || name == "" || strings.ContainsAny(name+v, "\r\n\x00") {
				return nil, failf(muster.BadInput, "%s: %q is not a valid header", strings.TrimSuffix(field, ".url"), shorten(name, 60))
			}
		}
	}
	return calls, nil
}

type apiResult struct {
	Calls     int             `json:"calls"`
	Succeeded int             `json:"succeeded"`
	Failed    int             `json:"failed"`
	NotMade   int             `json:"not_made,omitempty"`
	Retries   int             `json:"retries"`
	Statuses  map[string]int  `json:"statuses"`           // answers by status; the last one of each call
	Failures  map[string]int  `json:"failures,omitempty"` // failed calls by class
	Latency   *durationStats  `json:"latency_ms,omitempty"`
	Bytes     int64           `json:"bytes"` // of bodies
	Seconds   float64         `json:"seconds"`
	PerSecond float64         `json:"calls_per_second,omitempty"`
	Response  *singleResponse `json:"response,omitempty"`
}

// singleResponse is the answer to the only call, for later stages.
type singleResponse struct {
	Status int             `json:"status"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Body   string          `json:"body,omitempty"`
}

// callRunner makes all calls, several at once.
type callRunner struct {
	caller
	in        *apiInput
	t         *task
	calls     []request
	responses *jsonlWriter
	limiter   *rate.Limiter

	mu       sync.Mutex
	next     int
	latency  []float64
	sum      apiResult
	writeErr error
	first    *callRecord
}

func (r *callRunner) run(ctx context.Context) (any, error) {
	total := len(r.calls) * r.in.Repeat
	callsCtx := ctx
	if r.in.Total > 0 {
		var cancel context.CancelFunc
		callsCtx, cancel = context.WithTimeoutCause(ctx, r.in.Total.Std(), errTotal)
		defer cancel()
	}
	if r.in.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(r.in.Rate), 1)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for range min(r.in.Concurrency, total) {
		wg.Go(func() {
			for i := r.claim(callsCtx, total); i >= 0; i = r.claim(callsCtx, total) {
				if a := r.call(callsCtx, i%len(r.calls), &r.calls[i%len(r.calls)]); a != nil {
					a.N = i + 1
					r.record(a, total)
				}
			}
		})
	}
	wg.Wait()
	s := &r.sum
	s.Seconds = time.Since(start).Seconds()
	s.NotMade = total - s.Calls
	s.Latency = newDurationStats(r.latency)
	if s.Seconds > 0 {
		s.PerSecond = float64(s.Calls) / s.Seconds
	}
	if total == 1 && r.first != nil && r.first.Status != 0 {
		s.Response = r.first.singleResponse()
	}
	switch {
	case r.writeErr != nil:
		return s, r.writeErr
	case ctx.Err() != nil:
		return s, ctx.Err()
	case s.Failed+s.NotMade > r.in.MaxFailed:
		return s, failf(muster.ExitCode, "%d of %d calls failed: %s", s.Failed+s.NotMade, total, r.failureSummary())
	}
	return s, nil
}

// claim returns the number of the next call, or -1 if there is none.
func (r *callRunner) claim(ctx context.Context, total int) int {
	if r.limiter != nil && r.limiter.Wait(ctx) != nil {
		return -1 // the total time is over, or would be
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == total || r.writeErr != nil || ctx.Err() != nil {
		return -1
	}
	r.next++
	return r.next - 1
}

func (r *callRunner) record(a *callRecord, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.sum
	s.Calls++
	s.Retries += a.Tries - 1
	s.Bytes += a.Bytes
	if a.Status != 0 {
		s.Statuses[strconv.Itoa(a.Status)]++
		r.latency = append(r.latency, a.Latency)
	}
	if a.Error == nil {
		s.Succeeded++
	} else {
		s.Failed++
		s.Failures[a.Error.Class]++
		if s.Failed <= 20 {
			_, _ = fmt.Fprintf(r.t.stdout, "%s %s: %s\n", a.Method, a.URL, a.Error.Message)
		}
	}
	if r.first == nil {
		r.first = a
	}
	if r.writeErr == nil {
		r.writeErr = r.responses.write(a)
	}
	r.t.progress.report(float64(s.Calls)/float64(total), fmt.Sprintf("call %d/%d", s.Calls, total),
		map[string]float64{"failed": float64(s.Failed), "latency_ms": a.Latency})
}

// failureSummary lists the classes of failures, the most frequent first.
func (r *callRunner) failureSummary() string {
	classes := slices.Collect(maps.Keys(r.sum.Failures))
	slices.SortFunc(classes, func(a, b string) int {
		return cmp.Or(r.sum.Failures[b]-r.sum.Failures[a], cmp.Compare(a, b))
	})
	var parts []string
	for _, c := range classes {
		parts = append(parts, fmt.Sprintf("%s (%d)", c, r.sum.Failures[c]))
	}
	if n := r.sum.NotMade; n > 0 {
		parts = append(parts, fmt.Sprintf("not made in the total time (%d)", n))
	}
	text := strings.Join(parts, ", ")
	if len(r.calls)*r.in.Repeat == 1 && r.first != nil {
		text = r.first.Error.Message
	}
	return text + "; responses.jsonl has each"
}

func (a *callRecord) singleResponse() *singleResponse {
	o := &singleResponse{Status: a.Status}
	const maxBody = 64 << 10
	switch {
	case a.Cut || len(a.Body) > maxBody:
	case json.Valid([]byte(a.Body)):
		var b bytes.Buffer
		if json.Compact(&b, []byte(a.Body)) == nil {
			o.JSON = b.Bytes()
		}
	default:
		o.Body = a.Body
	}
	return o
}
