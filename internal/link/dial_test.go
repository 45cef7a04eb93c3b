package link_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
)

// dialer counts calls, and fails with err.
type dialer struct {
	err   error
	tries int
}

func (d *dialer) Dial(context.Context) (link.WorkerConn, error) {
	if d.tries++; d.err != nil {
		return nil, d.err
	}
	w, _ := linktest.Pipe(1)
	return w, nil
}

func (d *dialer) DialExec(ctx context.Context, _ string) (link.FrameConn, error) {
	_, err := d.Dial(ctx)
	return nil, err
}

// The connection of a command uses the transport that works for sessions.
func TestFallbackDialsCommandsOverTheWorkingTransport(t *testing.T) {
	socket, poll := &dialer{err: muster.Errorf(muster.Unavailable, "no upgrade")}, &dialer{}
	f := &link.Fallback{First: socket, Second: poll}
	if _, err := f.Dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.DialExec(t.Context(), "0123456789abcdef"); err != nil || socket.tries != 1 || poll.tries != 2 {
		t.Errorf("%v after %d and %d dials", err, socket.tries, poll.tries)
	}
}

// httpResponse returns the response of a server or of a proxy in front of it.
func httpResponse(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}
}

// refusalResponse returns the response of a server that refuses with err.
func refusalResponse(err error) *http.Response {
	w := httptest.NewRecorder()
	link.WriteError(w, err)
	return w.Result()
}

func TestOnlyTheServerItselfRefusesAKey(t *testing.T) {
	for name, c := range map[string]struct {
		resp *http.Response
		poll bool // whether it may come from a proxy that blocks WebSocket
		text string
	}{
		"an unknown key":    {refusalResponse(muster.Errorf(muster.Unauthenticated, "who is this?")), false, "the server answered 401: who is this?"},
		"a removed worker":  {refusalResponse(muster.Errorf(muster.Forbidden, "not you")), false, "the server answered 403: not you"},
		"a proxy with HTML": {httpResponse(403, "<h1>no upgrade</h1>"), true, ""},
		"a proxy with 401":  {httpResponse(401, ""), true, ""},
		"a proxy with JSON": {httpResponse(403, `{"code":403,"detail":"blocked"}`), true, ""},
		"an unknown code":   {httpResponse(403, `{"code":"policy","detail":"blocked"}`), true, ""},
	} {
		poll := &dialer{}
		_, err := (&link.Fallback{First: &dialer{err: link.DialError("http://s", link.ResponseError(c.resp))}, Second: poll}).Dial(t.Context())
		if poll.tries > 0 != c.poll || (err == nil) != c.poll || err != nil && (err.Error() != c.text || link.Retryable(err)) {
			t.Errorf("%s: poll was tried %d times, and the error was %v", name, poll.tries, err)
		}
	}
}

func TestFallbackRemembersWhatWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, poll := &dialer{err: link.DialError("http://s", link.ResponseError(httpResponse(502, "no upgrade")))}, &dialer{}
		f := &link.Fallback{First: ws, Second: poll}
		dial := func() {
			t.Helper()
			if _, err := f.Dial(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		dial()
		dial()
		if ws.tries != 1 || poll.tries != 2 {
			t.Errorf("the second dial tried WebSocket %d times, poll %d", ws.tries, poll.tries)
		}
		time.Sleep(11 * time.Minute)
		ws.err = nil
		dial()
		dial()
		if ws.tries != 3 || poll.tries != 2 {
			t.Errorf("after WebSocket works again: WebSocket %d, poll %d", ws.tries, poll.tries)
		}
	})
}

func TestFallbackDoesNotTurnToPollForNothing(t *testing.T) {
	for name, err := range map[string]error{
		"a refused key":        muster.Errorf(muster.Unauthenticated, "no"),
		"a removed worker":     muster.Errorf(muster.Forbidden, "no"),
		"no server":            link.DialError("http://s", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}),
		"no credential":        link.DialError("http://s", link.CredentialError(muster.Errorf(muster.Invalid, "the worker's clock is ahead"))),
		"a server that starts": link.DialError("http://s", link.ResponseError(httpResponse(503, "starting"))),
	} {
		poll := &dialer{}
		_, got := (&link.Fallback{First: &dialer{err: err}, Second: poll}).Dial(t.Context())
		if poll.tries > 0 || muster.CodeOf(got) != muster.CodeOf(err) {
			t.Errorf("%s: poll was tried %d times, and the error was %v", name, poll.tries, got)
		}
	}
}

func TestFallbackTellsOfBothFailures(t *testing.T) {
	f := &link.Fallback{First: &dialer{err: link.DialError("http://s", link.ResponseError(httpResponse(502, "one")))}, Second: &dialer{err: link.DialError("http://s", link.ResponseError(httpResponse(404, "two")))}}
	_, err := f.Dial(t.Context())
	want := "cannot connect to http://s: the server answered 502: one; then: cannot connect to http://s: the server answered 404: two"
	if muster.CodeOf(err) != muster.Unavailable || err.Error() != want || !link.Retryable(err) {
		t.Errorf("%v", err)
	}
}

// A refusal with Retry-After says so to the caller, and is no reason to try the other transport.
func TestBusyServerNamesADelay(t *testing.T) {
	resp := httpResponse(http.StatusTooManyRequests, "later")
	resp.Header = http.Header{"Retry-After": {"7"}}
	second := &dialer{}
	_, err := (&link.Fallback{First: &dialer{err: link.DialError("http://s", link.ResponseError(resp))}, Second: second}).Dial(t.Context())
	if backoff.DelayOf(err) != 7*time.Second || second.tries != 0 || muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("%v, with a delay of %s; the other transport was tried %d times", err, backoff.DelayOf(err), second.tries)
	}
}
