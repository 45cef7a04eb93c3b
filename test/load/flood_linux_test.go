package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/simworker"
)

// flood describes what the flooding process sends.
type flood struct {
	Addr     string        `json:"addr"`
	Rate     int           `json:"rate"`      // requests per second that it tries to send
	For      time.Duration `json:"for"`       // 0 means until it is killed
	KeepOpen bool          `json:"keep_open"` // connections; false opens one for each request
	Abandon  bool          `json:"abandon"`   // connections, once the request was sent
	Conns    int           `json:"conns"`     // at a time
}

// flooded is what it did.
type flooded struct {
	Sent    int64   `json:"sent"`    // requests
	Limited int64   `json:"limited"` // those of them that were answered with 429
	Seconds float64 `json:"seconds"`
}

// floodVariable has the flood of the flooding process.
const floodVariable = "MUSTER_TEST_FLOOD"

// TestFloodProcess is the flooding process of BenchmarkFlood.
func TestFloodProcess(t *testing.T) {
	var f flood
	if err := json.Unmarshal([]byte(os.Getenv(floodVariable)), &f); err != nil {
		t.Skip("it is a part of BenchmarkFlood")
	}
	ctx, cancel := context.WithTimeout(t.Context(), f.For)
	defer cancel()
	limiter := rate.NewLimiter(rate.Limit(f.Rate), f.Rate/100)
	var sent, limited atomic.Int64
	var conns sync.WaitGroup
	start := time.Now()
	for i := range f.Conns {
		conns.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				f.connection(ctx, limiter, n, &sent, &limited)
			}
		})
	}
	conns.Wait()
	out, err := json.Marshal(flooded{sent.Load(), limited.Load(), time.Since(start).Seconds()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("flooded %s\n", out)
}

// badRequests are requests without a valid key: guessed tokens of both forms, no key with bad JSON, and unknown paths.
func badRequests(n int) string {
	token := fmt.Sprintf("guess-%020d", n)
	if n%8 < 4 {
		token = "mst_admin_" + strings.Map(func(r rune) rune { return 'a' + (r-'0')%10 }, fmt.Sprintf("%032d", n))
	}
	switch n % 4 {
	case 0:
		return "GET /api/v1/jobs HTTP/1.1\r\nHost: muster\r\nAuthorization: Bearer " + token + "\r\n\r\n"
	case 1:
		return "POST /api/v1/jobs HTTP/1.1\r\nHost: muster\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"tasks\": "
	case 2:
		return "POST /link/v1/join HTTP/1.1\r\nHost: muster\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"name\":\"x\"}"
	default:
		return "GET /nothing/" + strconv.Itoa(n) + " HTTP/1.1\r\nHost: muster\r\n\r\n"
	}
}

// connection sends bad requests on one connection, until it fails; only one unless connections are kept open.
func (f *flood) connection(ctx context.Context, limiter *rate.Limiter, n int, sent, limited *atomic.Int64) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := dialer.DialContext(ctx, "tcp", f.Addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answers := bufio.NewReader(conn)
	for ; limiter.Wait(ctx) == nil; n += f.Conns {
		if _, err := io.WriteString(conn, badRequests(n)); err != nil {
			return
		}
		if f.Abandon {
			sent.Add(1)
			return
		}
		status, err := readAnswer(answers)
		if err != nil {
			return
		}
		sent.Add(1)
		if status == http.StatusTooManyRequests {
			limited.Add(1)
		}
		if !f.KeepOpen {
			return
		}
	}
}

// readAnswer reads an answer with little work, and returns its status.
func readAnswer(r *bufio.Reader) (status int, err error) {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			_, err := r.Discard(length)
			return status, err
		}
		if status == 0 {
			if status, err = strconv.Atoi(string(line[len("HTTP/1.1 "):][:3])); err != nil {
				return 0, err
			}
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
}

// start starts the flooding process, and returns what waits for its end. It has only the processor time that others leave, as the sender of a
// flood has a machine of its own: the server's part of the work is what is measured.
func (f *flood) start(b *testing.B) (wait func() flooded) {
	b.Helper()
	config, err := json.Marshal(f)
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	process := exec.CommandContext(b.Context(), "chrt", "--idle", "0", os.Args[0], "-test.run", "^TestFloodProcess$")
	process.Env = append(os.Environ(), floodVariable+"="+string(config))
	process.Stdout, process.Stderr = &out, &out
	if err := process.Start(); err != nil {
		b.Fatal(err)
	}
	return func() (did flooded) {
		err := process.Wait()
		_, text, _ := strings.Cut(out.String(), "flooded ")
		if err != nil || json.NewDecoder(strings.NewReader(text)).Decode(&did) != nil {
			b.Fatalf("the flooding process: %v: %s", err, &out)
		}
		return did
	}
}

// submitPaced submits single tasks for a time, one after another, with a pause between them, and returns how long each took.
func submitPaced(b *testing.B, c *mustertest.Cluster, d time.Duration) (took []time.Duration) {
	b.Helper()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-pace.C {
		start := time.Now()
		c.Submit(arraySpec(muster.KindNoop, 1))
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took
}

// BenchmarkFlood is the time to submit a job of one client while another process sends 10,000 bad requests per second from one address, over 64
// and over 4,000 connections that stay open, and with a connection for each, which waits for the answer or is closed at once, beside the same without it; MUSTER_BENCH_FLOOD is how long, 20s by default. A hundred
// workers with a heartbeat of a second must not be lost or reconnect.
func BenchmarkFlood(b *testing.B) {
	length := 20 * time.Second
	if text := os.Getenv("MUSTER_BENCH_FLOOD"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	const workers = 100
	c := mustertest.New(b, b.TempDir())
	ctx, stop := context.WithCancel(b.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- simworker.Run(ctx, simworker.Config{Server: "http://" + c.Addr, JoinToken: mustertest.JoinToken, Workers: workers, Slots: 4}, func() { close(ready) })
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	select {
	case <-ready:
	case <-time.After(time.Minute):
		b.Fatal("the workers did not connect within a minute")
	}
	endpoint := &http.Client{}
	metric := func(name string) float64 {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, c.URL+"/metrics", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.AdminToken)
		resp, err := endpoint.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			b.Fatal(err)
		}
		_, after, ok := strings.Cut(string(text), "\n"+name+" ")
		var value float64
		if _, err := fmt.Sscan(after, &value); !ok || err != nil {
			b.Fatalf("there is no metric %s", name)
		}
		return value
	}
	report := func(name string, took []time.Duration) {
		b.ReportMetric(milliseconds(took[len(took)/2]), name+"-p50-ms")
		b.ReportMetric(milliseconds(took[len(took)*99/100]), name+"-p99-ms")
	}
	submitPaced(b, c, 2*time.Second) // warm up
	for b.Loop() {
		report("idle", submitPaced(b, c, length))
		sessions := metric("muster_link_sessions_opened_total")
		for name, f := range map[string]flood{"open": {KeepOpen: true, Conns: 64}, "many-open": {KeepOpen: true, Conns: 4_000}, "connecting": {Conns: 64}, "abandoning": {Conns: 64, Abandon: true}} {
			f.Addr, f.Rate, f.For = c.Addr, 10_000, length+2*time.Second
			before := cpuTime(b, c.Server.PID())
			wait := f.start(b)
			time.Sleep(time.Second)
			took := submitPaced(b, c, length)
			did := wait()
			report(name, took)
			b.ReportMetric(float64(did.Sent)/did.Seconds, name+"-requests/s")
			b.ReportMetric(float64(did.Limited)/float64(did.Sent)*100, name+"-limited-%")
			b.ReportMetric((cpuTime(b, c.Server.PID())-before).Seconds()/did.Seconds*100, name+"-cpu-%")
		}
		report("idle-again", submitPaced(b, c, length))
		b.ReportMetric(metric("muster_lease_expirations_total"), "lost-attempts")
		b.ReportMetric(metric("muster_link_sessions_opened_total")-sessions, "reconnects")
	}
	b.ReportMetric(0, "ns/op")
}
