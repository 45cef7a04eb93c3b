package linktest

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/testkit"
)

// Intercepted is a frame on its way through an Interceptor.
type Intercepted struct {
	Conn int  // number of the connection, from 1 in the order in which they were opened
	Up   bool // to the server
	N    int  // number of the frame in its direction, from 1
	Data []byte
}

// Interceptor is an attacker between workers and a server without TLS, who sees and replaces every frame, over WebSocket and over polls.
type Interceptor struct {
	Addr string // where it listens, "127.0.0.1:port"

	target  string
	replace func(Intercepted) [][]byte
	header  func(up bool, h http.Header)

	mu    sync.Mutex
	conns int
	polls map[string]*poll
}

// poll is a connection over polls.
type poll struct {
	conn               int
	sent               int // frames of the worker
	forwarded, fetched int // requests of the worker's frames; frames that the server has delivered
}

// NewInterceptor forwards connections to target until the test ends. It calls replace for every frame and forwards what that returns, and
// header, unless it is nil, for the header of each request and response, which may be changed. Calls for different connections or directions
// are concurrent.
func NewInterceptor(tb testing.TB, target string, replace func(Intercepted) [][]byte, header func(up bool, h http.Header)) *Interceptor {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	testkit.NoError(tb, err)
	if header == nil {
		header = func(bool, http.Header) {}
	}
	i := &Interceptor{Addr: l.Addr().String(), target: "http://" + target, replace: replace, header: header, polls: map[string]*poll{}}
	server := &http.Server{Handler: i, ReadHeaderTimeout: stepTimeout}
	var loop sync.WaitGroup
	loop.Go(func() { _ = server.Serve(l) }) // ends by Close
	tb.Cleanup(func() {
		server.Close()
		loop.Wait()
	})
	return i
}

// ServeHTTP forwards a request.
func (i *Interceptor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.header(true, r.Header)
	switch op := r.URL.Query().Get("op"); {
	case r.Header.Get("Upgrade") != "":
		i.serveSocket(w, r)
	case op == "send":
		i.serveSend(w, r)
	case op == "recv":
		i.serveRecv(w, r)
	default:
		if op == "open" {
			i.mu.Lock()
			i.conns++
			i.polls[r.URL.Query().Get("session")] = &poll{conn: i.conns}
			i.mu.Unlock()
		}
		i.forward(w, r)
	}
}

// serveSocket forwards the frames of a WebSocket.
func (i *Interceptor) serveSocket(w http.ResponseWriter, r *http.Request) {
	header := http.Header{}
	for name, values := range r.Header {
		if !strings.HasPrefix(name, "Sec-Websocket") && name != "Upgrade" && name != "Connection" {
			header[name] = values
		}
	}
	server, resp, err := websocket.Dial(r.Context(), i.target+r.URL.String(), &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		copyResponse(w, resp)
		return
	}
	defer func() { _ = server.CloseNow() }()
	i.header(false, resp.Header)
	if nonce := resp.Header.Get(link.HeaderNonce); nonce != "" {
		w.Header().Set(link.HeaderNonce, nonce)
	}
	worker, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = worker.CloseNow() }()
	i.mu.Lock()
	i.conns++
	conn := i.conns
	i.mu.Unlock()
	server.SetReadLimit(-1)
	worker.SetReadLimit(-1)
	ctx := r.Context()
	pump := func(to, from *websocket.Conn, up bool) {
		defer func() { _ = to.Close(websocket.StatusNormalClosure, "") }()
		for n := 1; ; n++ {
			kind, b, err := from.Read(ctx)
			if err != nil {
				return
			}
			for _, b := range i.replace(Intercepted{conn, up, n, b}) {
				if to.Write(ctx, kind, b) != nil {
					return
				}
			}
		}
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(server, worker, true) })
	pumps.Go(func() { pump(worker, server, false) })
	pumps.Wait()
}

// serveSend forwards what replaces a frame of a poll.
func (i *Interceptor) serveSend(w http.ResponseWriter, r *http.Request) {
	p := i.poll(r)
	body, err := io.ReadAll(r.Body)
	if p == nil || err != nil {
		http.Error(w, "the session has ended", http.StatusGone)
		return
	}
	i.mu.Lock()
	p.sent++
	n := p.sent
	i.mu.Unlock()
	for _, b := range i.replace(Intercepted{p.conn, true, n, body}) {
		i.mu.Lock()
		p.forwarded++
		seq := p.forwarded
		i.mu.Unlock()
		resp, err := i.request(r, "seq", seq, b)
		if err != nil || resp.StatusCode != http.StatusOK {
			copyResponse(w, resp)
			return
		}
		resp.Body.Close()
	}
}

// serveRecv forwards what replaces the frames of the server.
func (i *Interceptor) serveRecv(w http.ResponseWriter, r *http.Request) {
	p := i.poll(r)
	if p == nil {
		http.Error(w, "the session has ended", http.StatusGone)
		return
	}
	i.mu.Lock()
	after := p.fetched
	i.mu.Unlock()
	resp, err := i.request(r, "after", after, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		copyResponse(w, resp)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	for b := range bytes.Lines(body) {
		i.mu.Lock()
		p.fetched++
		n := p.fetched
		i.mu.Unlock()
		for _, b := range i.replace(Intercepted{p.conn, false, n, bytes.TrimSuffix(b, []byte("\n"))}) {
			_, _ = w.Write(append(b, '\n')) // the worker may have left
		}
	}
}

func (i *Interceptor) poll(r *http.Request) *poll {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.polls[r.URL.Query().Get("session")]
}

// request repeats r at the server with another number and body.
func (i *Interceptor) request(r *http.Request, name string, number int, body []byte) (*http.Response, error) {
	u := *r.URL
	q := u.Query()
	q.Set(name, strconv.Itoa(number))
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(r.Context(), r.Method, i.target+u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	return http.DefaultClient.Do(req)
}

// forward forwards a request that has no frame, with its response.
func (i *Interceptor) forward(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, i.target+r.URL.String(), r.Body)
	if err != nil {
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		i.header(false, resp.Header)
	}
	copyResponse(w, resp)
}

// copyResponse passes a response on; nil means that the server does not answer.
func copyResponse(w http.ResponseWriter, resp *http.Response) {
	if resp == nil {
		http.Error(w, "no answer", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the worker may have left
}
