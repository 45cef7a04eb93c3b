package dtf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
)

const (
	dialTimeout            = 15 * time.Second
	answerTimeout          = 30 * time.Second // for the answer to a result
	defaultRegisterTimeout = 2 * time.Second  // for the answer to register: coordinators that verify signatures send none
	maxMissedBeats         = 3                // without an answer until the line is taken for dead
)

// coordinatorConn is one connection of a bridge to a coordinator, as its worker. One goroutine reads and one writes; answers are told from tasks by
// what they say, so that nothing that the coordinator sends is lost.
type coordinatorConn struct {
	b      *Bridge
	url    string
	ws     *websocket.Conn
	signer signer

	mu              sync.Mutex
	waiting         map[string]chan error // for the answers to results, by task
	order           []string              // of waiting, oldest first
	signatureWarned bool                  // that the coordinator's signatures are not right
	wasRegistered   bool                  // it was registered; guarded by Bridge.mu
}

// socketURL is where a coordinator's WebSocket is.
func socketURL(coordinator string) (string, error) {
	base := strings.TrimRight(coordinator, "/")
	switch {
	case strings.HasPrefix(base, "http://"):
		return "ws://" + strings.TrimPrefix(base, "http://") + "/ws", nil
	case strings.HasPrefix(base, "https://"):
		return "wss://" + strings.TrimPrefix(base, "https://") + "/ws", nil
	case strings.HasPrefix(base, "ws://"), strings.HasPrefix(base, "wss://"):
		return base + "/ws", nil
	}
	return "", muster.Errorf(muster.Invalid, "--coordinator %q is no URL: write such as http://localhost:8080", coordinator)
}

// dial connects to a coordinator, authenticates and registers.
func (b *Bridge) dial(ctx context.Context, coordinator string) (*coordinatorConn, error) {
	url, err := socketURL(coordinator)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	key, token := b.credentials()
	if key != "" {
		header.Set("X-API-Key", key) // the signed coordinator asks for it, others do not mind
	} else if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header, HTTPClient: b.http}) //nolint:bodyclose // Dial says that it never needs to be
	if err != nil {
		switch {
		case resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
			return nil, muster.Errorf(muster.Unauthenticated, "the coordinator %s does not take the API key or token (HTTP %d)", coordinator, resp.StatusCode)
		case resp != nil && resp.StatusCode == http.StatusNotFound:
			return nil, muster.Errorf(muster.Unavailable, "%s has no /ws: it is no coordinator that workers can join (current versions of DTF have none)", coordinator)
		}
		return nil, muster.Errorf(muster.Unavailable, "the coordinator %s cannot be reached: %w", coordinator, err)
	}
	ws.SetReadLimit(maxFrame)
	l := &coordinatorConn{b: b, url: coordinator, ws: ws, signer: b.signer, waiting: map[string]chan error{}}
	err = l.handshake(ctx)
	if err == nil {
		return l, nil
	}
	_ = ws.CloseNow()
	if errors.Is(err, errTokenRejected) {
		return b.dial(ctx, coordinator)
	}
	return nil, err
}

// errTokenRejected says that a token was refused and forgotten: it may have expired, or be of another coordinator.
var errTokenRejected = errors.New("the API key is used instead")

// handshake authenticates and registers.
func (l *coordinatorConn) handshake(ctx context.Context) error {
	key, token := l.b.credentials()
	request := &message{Type: typeAuth, AuthType: "api_key", APIKey: key, WorkerID: l.b.workerID()}
	if token != "" {
		request = &message{Type: typeAuth, AuthType: "token", Token: token}
	}
	if err := l.write(ctx, request); err != nil {
		return err
	}
	m, err := l.read(ctx)
	if err != nil {
		return err
	}
	if m.Type != typeAuthResponse || m.Status != statusSuccess {
		reason := cmp.Or(m.Message, "it answered with "+sanitizeName(m.Type))
		if token != "" && key != "" {
			l.b.clearToken()
			return muster.Errorf(muster.Unavailable, "the coordinator %s does not take the token (%s): %w", l.url, sanitizeName(reason), errTokenRejected)
		}
		return muster.Errorf(muster.Unauthenticated, "the coordinator %s does not let this worker in: %s", l.url, sanitizeName(reason))
	}
	l.b.setIdentity(m.WorkerID, m.Token)
	caps, hostname := l.b.capabilities(ctx)
	return l.writeSigned(ctx, &message{Type: typeRegister, WorkerID: l.b.workerID(), Hostname: hostname, Capabilities: caps, Timestamp: time.Now().Unix()})
}

// write sends a message as it is.
func (l *coordinatorConn) write(ctx context.Context, m *message) error {
	return l.send(ctx, m, signer{})
}

// writeSigned sends a message signed, if the secret is known.
func (l *coordinatorConn) writeSigned(ctx context.Context, m *message) error {
	return l.send(ctx, m, l.signer)
}

func (l *coordinatorConn) send(ctx context.Context, m *message, s signer) error {
	raw, err := s.sign(m, time.Now())
	if err != nil {
		return err
	}
	if len(raw) > maxFrame {
		return muster.Errorf(muster.TooLarge, "a message of %d bytes is more than a coordinator takes", len(raw))
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := l.ws.Write(ctx, websocket.MessageText, raw); err != nil {
		return muster.Errorf(muster.Unavailable, "the connection to %s broke: %w", l.url, err)
	}
	return nil
}

// read returns the next message that can be read; others are left aside with a line in the log.
func (l *coordinatorConn) read(ctx context.Context) (*message, error) {
	for {
		_, raw, err := l.ws.Read(ctx)
		if err != nil {
			return nil, muster.Errorf(muster.Unavailable, "the connection to %s broke: %w", l.url, err)
		}
		m, v, err := decode(raw)
		if err != nil {
			l.b.log.Warn("a message of the coordinator cannot be read", slog.Any("why", err))
			continue
		}
		l.checkSignature(m, &v)
		return m, nil
	}
}

// checkSignature tells once if a signature of the coordinator is not right. DTF's own workers go on, and so does this one: tasks are never signed.
func (l *coordinatorConn) checkSignature(m *message, v *value) {
	if !l.signer.enabled() || m.Signature == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.signatureWarned && !l.signer.verify(v, time.Now()) {
		l.signatureWarned = true
		l.b.log.Warn("the coordinator's signatures do not fit to the secret, or its clock is off by more than a minute", slog.String("coordinator", l.url))
	}
}

// serve works for the coordinator until the connection ends or ctx does. It returns why.
func (l *coordinatorConn) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.close()
	frames := make(chan *message)
	broken := make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		for {
			m, err := l.read(ctx)
			if err != nil {
				broken <- err
				return
			}
			select {
			case frames <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	if err := l.awaitRegistered(ctx, frames, broken); err != nil {
		return err
	}
	l.b.setConn(l)
	defer l.b.clearConn(l)
	heartbeat := time.NewTicker(l.b.cfg.Heartbeat)
	defer heartbeat.Stop()
	missed := 0
	for first := true; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				_ = l.ws.Close(websocket.StatusNormalClosure, "")
				return ctx.Err()
			case err := <-broken:
				return err
			case m := <-frames:
				if m.Type == typeHeartbeatResponse {
					missed = 0
				}
				if err := l.handle(ctx, m); err != nil {
					return err
				}
				continue
			case <-heartbeat.C:
			}
		}
		if !l.b.shouldServe() {
			return muster.Errorf(muster.Unavailable, "the worker %s is not there", l.b.cfg.Name)
		}
		if missed++; missed > maxMissedBeats {
			return muster.Errorf(muster.Unavailable, "the coordinator %s does not answer heartbeats", l.url)
		}
		m := l.b.nextHeartbeat()
		if err := l.writeSigned(ctx, m); err != nil {
			l.b.requeueNotice(m)
			return err
		}
	}
}

// awaitRegistered waits for the answer to register. None is one, too: a coordinator that verifies signatures says nothing.
func (l *coordinatorConn) awaitRegistered(ctx context.Context, frames <-chan *message, broken <-chan error) error {
	timer := time.NewTimer(l.b.registerTimeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broken:
			return err
		case <-timer.C:
			return nil
		case m := <-frames:
			switch {
			case m.Type == typeRegisterResponse && m.Status != statusError:
				l.b.setIdentity(m.WorkerID, "")
				return nil
			case m.Type == typeRegisterResponse || m.Type == typeError:
				return l.registrationError(m)
			}
			if err := l.handle(ctx, m); err != nil { // a task may come before
				return err
			}
		}
	}
}

// registrationError is why a coordinator does not register this worker.
func (l *coordinatorConn) registrationError(m *message) error {
	if m.Message == errSignature {
		if l.signer.enabled() {
			return muster.Errorf(muster.Unauthenticated, "the coordinator %s does not take the signatures: its secret_key is another one than that of --security-config, or the clocks differ by more than a minute", l.url)
		}
		return muster.Errorf(muster.Unauthenticated, "the coordinator %s verifies signatures: give its security_config.json with --security-config", l.url)
	}
	return muster.Errorf(muster.Unavailable, "the coordinator %s does not register this worker: %s", l.url, sanitizeName(m.Message))
}

// handle does what a coordinator says.
func (l *coordinatorConn) handle(ctx context.Context, m *message) error {
	switch m.Type {
	case typeHeartbeatResponse, typeRegisterResponse, typeAuthResponse:
	case typeResultResponse:
		var err error
		if m.Status == statusError {
			err = muster.Errorf(muster.Unavailable, "the coordinator does not take the result: %s", sanitizeName(m.Message))
		}
		l.resolveResult(m.TaskID, err)
	case typeExecute:
		l.b.handleOffer(ctx, l, wireTask{TaskID: m.TaskID, TaskType: m.TaskType, Config: m.Config})
	case typeExecuteBatch:
		for _, t := range m.Tasks {
			l.b.handleOffer(ctx, l, t)
		}
	case typeCancel:
		l.b.cancel(m.TaskID, m.Reason)
	case typeCancelBatch:
		for _, id := range m.TaskIDs {
			l.b.cancel(id, m.Reason)
		}
	case typeError:
		if m.Message == errSignature || m.Message == "Not authenticated" || m.Message == "Worker not registered" {
			return l.registrationError(m)
		}
		l.b.log.Warn("the coordinator reports an error", slog.String("message", sanitizeName(m.Message)))
		l.resolveResult(m.TaskID, resultError(m.Message))
	default:
		l.b.log.Warn("the coordinator sent a message of an unknown type", slog.String("type", sanitizeName(m.Type)))
	}
	return nil
}

// resultError is what an error of the coordinator means for a result: some it will never take.
func resultError(text string) error {
	lower := strings.ToLower(text)
	if strings.Contains(lower, "task") && (strings.Contains(lower, "not found") || strings.Contains(lower, "unknown task") || strings.Contains(lower, "already completed")) {
		return muster.Errorf(muster.NotFound, "the coordinator does not know the task: %s", sanitizeName(text))
	}
	return muster.Errorf(muster.Unavailable, "the coordinator does not take the result: %s", sanitizeName(text))
}

// report sends the result of a task and waits until the coordinator has answered.
func (l *coordinatorConn) report(ctx context.Context, m *message) error {
	done := make(chan error, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return muster.Errorf(muster.Unavailable, "the connection to %s broke", l.url)
	}
	if l.waiting[m.TaskID] == nil {
		l.order = append(l.order, m.TaskID)
	}
	l.waiting[m.TaskID] = done
	l.mu.Unlock()
	if err := l.writeSigned(ctx, m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "the coordinator %s does not answer to the result of %s: %w", l.url, sanitizeName(m.TaskID), ctx.Err())
	}
}

// resolveResult passes the answer to a result on. One without an id is to the oldest result that waits.
func (l *coordinatorConn) resolveResult(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" && len(l.order) > 0 {
		id = l.order[0]
	}
	done := l.waiting[id]
	if done == nil {
		return
	}
	delete(l.waiting, id)
	l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == id })
	done <- err
}

// close ends the connection; results without an answer are sent again on the next one.
func (l *coordinatorConn) close() {
	_ = l.ws.CloseNow()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, done := range l.waiting {
		done <- muster.Errorf(muster.Unavailable, "the connection to %s broke before the result was acknowledged", l.url)
	}
	l.waiting, l.order = nil, nil
}

// newFailure is the failure of a task that cannot be one of Muster's.
func newFailure(worker, task, reason string) *message {
	zero := 0.0
	return &message{Type: typeTaskResult, WorkerID: worker, TaskID: task, Status: statusFailed, Seconds: &zero, Error: reason, Timestamp: time.Now().Unix()}
}

// isFatal reports whether another try would fail like this one.
func isFatal(err error) bool {
	code := muster.CodeOf(err)
	return code == muster.Unauthenticated || code == muster.Forbidden || code == muster.Invalid
}

func marshalOrNull(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}
