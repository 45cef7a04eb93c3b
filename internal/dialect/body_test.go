package dialect_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
)

// testTimeout bounds each wait of these tests.
const testTimeout = 60 * time.Second

// serveLimited serves a handler with limited bodies. It reads a body as a whole, and answers when answer returns.
func serveLimited(t *testing.T, idle, whole time.Duration, memory int64, handler func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	url, _ := serveLimitedListener(t, idle, whole, memory, handler)
	return url
}

func serveLimitedListener(t *testing.T, idle, whole time.Duration, memory int64, handler func(w http.ResponseWriter, r *http.Request)) (url string, l *dialect.Listener) {
	t.Helper()
	change := func(listener *dialect.Listener) {
		l = listener
		l.SetBodyLimits(idle, whole, memory)
	}
	url = serve(t, false, new(logBuffer), change, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/unread" {
			if _, err := dialect.ReadBody(r, 1<<20); err != nil {
				dialect.WriteJSON(w, dialect.HTTPStatus(w, err), err.Error())
				return
			}
		}
		handler(w, r)
	})
	return url, l
}

func ok(w http.ResponseWriter, _ *http.Request) { dialect.WriteJSON(w, http.StatusOK, "ok") }

// sendPartial sends the head of a request, and a part of its body.
func sendPartial(t *testing.T, url, path string, length int, part string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, length, part); err != nil {
		t.Fatal(err)
	}
	return c
}

// readStatus returns the status with which a request is answered.
func readStatus(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// A body without progress ends with an error, also if the handler does not read it, and the connection is closed.
func TestBodyThatStandsStill(t *testing.T) {
	t.Parallel()
	url := serveLimited(t, 200*time.Millisecond, time.Hour, 1<<30, ok)
	for path, want := range map[string]int{"/": http.StatusBadRequest, "/unread": http.StatusOK} {
		c := sendPartial(t, url, path, 1000, "a part of it")
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Errorf("%s is not answered: %v", path, err)
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
			t.Errorf("%s is answered with %s, %v", path, resp.Status, err)
		}
		_ = resp.Body.Close()
		if _, err := r.ReadByte(); err == nil {
			t.Errorf("%s: the connection stays", path)
		}
	}
}

// A slow body is read while bytes come, at most until the timeout of a whole body.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const idle = 4 * time.Second
	url := serveLimited(t, idle, time.Hour, 1<<30, ok)
	c := sendPartial(t, url, "/", 4, "")
	for range 4 {
		time.Sleep(idle / 3)
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if got := readStatus(t, c); got != http.StatusOK {
		t.Errorf("it is answered with %d", got)
	}
	url = serveLimited(t, time.Hour, 500*time.Millisecond, 1<<30, ok)
	c = sendPartial(t, url, "/", 1<<20, "")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				_, _ = io.WriteString(c, "x") // until the server closes the connection
			}
		}
	}()
	if got := readStatus(t, c); got != http.StatusBadRequest {
		t.Errorf("one without an end is answered with %d", got)
	}
	close(stop)
	<-done
}

// The limits of bodies do not end requests that wait for their answers, nor hijacked connections.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	const idle = 300 * time.Millisecond
	url := serveLimited(t, idle, time.Hour, 1<<30, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/switch" {
			c, both, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			line, err := both.ReadString('\n')
			_, _ = io.WriteString(c, line)
			if err != nil {
				t.Errorf("the connection is cut: %v", err)
			}
			return
		}
		_, _ = r.Body.Read(make([]byte, 1)) // there is no more, which is known only then
		select {
		case <-r.Context().Done():
			dialect.WriteJSON(w, http.StatusInternalServerError, "the request ended")
		case <-time.After(3 * idle):
			ok(w, r)
		}
	})
	if got := request(t, http.MethodPost, url+"/", "a body"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("a late answer is %s", got)
	}
	c := sendPartial(t, url, "/switch", 1, "x")
	time.Sleep(3 * idle)
	if _, err := io.WriteString(c, "later\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != "later\n" {
		t.Errorf("the other end sent %q, %v", got, err)
	}
}

// Large incomplete bodies use at most the budget. Small bodies are always accepted.
func TestMemoryOfBodies(t *testing.T) {
	t.Parallel()
	url, l := serveLimitedListener(t, time.Hour, time.Hour, 1<<20, ok)
	large := strings.Repeat("x", 200<<10)
	var unfinished []net.Conn
	for range 4 { // each holds a quarter
		unfinished = append(unfinished, sendPartial(t, url, "/", 1<<20, large))
	}
	for end := time.Now().Add(testTimeout); l.BodyBudget() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are free", l.BodyBudget())
		}
	}
	waitStatus := func(what, status string) {
		t.Helper()
		last := ""
		for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if last = request(t, http.MethodPost, url+"/", large); strings.HasPrefix(last, status) {
				return
			}
		}
		t.Fatalf("%s: %s", what, last)
	}
	waitStatus("there is memory for a fifth", "503 ")
	if got := request(t, http.MethodPost, url+"/", strings.Repeat("x", 60<<10)); !strings.HasPrefix(got, "200 ") {
		t.Errorf("a small body is answered with %.100s", got)
	}
	for _, c := range unfinished {
		_ = c.Close()
	}
	waitStatus("the memory is not given back", "200 ")
	for range 20 {
		if got := request(t, http.MethodPost, url+"/", large); !strings.HasPrefix(got, "200 ") {
			t.Fatalf("a body after others is answered with %.100s", got)
		}
	}
}
