package dtf

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

const (
	dialTimeout            = 15 * time.Second
	answerTimeout          = 30 * time.Second // for the answer to a result
	defaultRegisterTimeout = 2 * time.Second  // for the answer to register: coordinators that verify signatures send none
	maxMissedBeats         = 3                // without an answer before the connection is closed
)

// coordinatorConn is a connection to a coordinator. One goroutine reads and dispatches messages by their type, so that an answer never hides a
// task.
type coordinatorConn struct {
	b      *Bridge
	url    string
	ws     *websocket.Conn
	signer signer

	mu              sync.Mutex
	waiting         map[string]chan error // for answers to results, by task
	order           []string              // of waiting, oldest first
	signatureWarned bool                  // a wrong signature was logged
}

// socketURL returns the URL of a coordinator's WebSocket.
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
	return "", muster.Errorf(muster.Invalid, "invalid --coordinator %q: use a URL such as http://localhost:8080", coordinator)
}

func (b *Bridge) dial(ctx context.Context, coordinator string) (*coordinatorConn, error) {
	url, err := socketURL(coordinator)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	key, token := b.cfg.APIKey, b.currentState().Token
	if key != "" {
		header.Set("X-API-Key", key) // the signing coordinator requires it, others ignore it
	} else if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header, HTTPClient: b.http}) //nolint:bodyclose // not necessary after Dial
	if err != nil {
		switch {
		case resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
			return nil, muster.Errorf(muster.Unauthenticated, "the coordinator %s refused the API key or token (HTTP %d)", coordinator, resp.StatusCode)
		case resp != nil && resp.StatusCode == http.StatusNotFound:
			return nil, muster.Errorf(muster.Unavailable, "%s has no /ws: workers cannot join it (as with current versions of DTF)", coordinator)
		}
		return nil, muster.Errorf(muster.Unavailable, "cannot reach the coordinator %s: %w", coordinator, err)
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

// errTokenRejected is the error for a token that was refused and removed: it may have expired, or be another coordinator's.
var errTokenRejected = errors.New("using the API key instead")

func (l *coordinatorConn) handshake(ctx context.Context) error {
	key, state := l.b.cfg.APIKey, l.b.currentState()
	request := &message{Type: typeAuth, AuthType: "api_key", APIKey: key, WorkerID: state.WorkerID}
	if state.Token != "" {
		request = &message{Type: typeAuth, AuthType: "token", Token: state.Token}
	}
	if err := l.send(ctx, request, signer{}); err != nil {
		return err
	}
	m, err := l.read(ctx)
	if err != nil {
		return err
	}
	if m.Type != typeAuthResponse || m.Status != statusSuccess {
		reason := cmp.Or(m.Message, "it answered with "+lenient.Name(m.Type))
		if state.Token != "" && key != "" {
			l.b.setIdentity("", "-")
			return muster.Errorf(muster.Unavailable, "the coordinator %s refused the token (%s): %w", l.url, lenient.Name(reason), errTokenRejected)
		}
		return muster.Errorf(muster.Unauthenticated, "the coordinator %s refused this worker: %s", l.url, lenient.Name(reason))
	}
	l.b.setIdentity(m.WorkerID, m.Token)
	caps := l.b.capabilities(ctx)
	return l.writeSigned(ctx, &message{Type: typeRegister, WorkerID: l.b.currentState().WorkerID, Hostname: caps.Hostname, Capabilities: caps, Timestamp: time.Now().Unix()})
}

// writeSigned sends a message with a signature if there is a secret.
func (l *coordinatorConn) writeSigned(ctx context.Context, m *message) error {
	return l.send(ctx, m, l.signer)
}

func (l *coordinatorConn) send(ctx context.Context, m *message, s signer) error {
	raw, err := s.sign(m, time.Now())
	if err != nil {
		return err
	}
	if len(raw) > maxFrame {
		return muster.Errorf(muster.TooLarge, "a message of %d bytes is too large for a coordinator", len(raw))
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := l.ws.Write(ctx, websocket.MessageText, raw); err != nil {
		return muster.Errorf(muster.Unavailable, "lost the connection to %s: %w", l.url, err)
	}
	return nil
}

// read returns the next valid message. It logs and skips others.
func (l *coordinatorConn) read(ctx context.Context) (*message, error) {
	for {
		_, raw, err := l.ws.Read(ctx)
		if err != nil {
			return nil, muster.Errorf(muster.Unavailable, "lost the connection to %s: %w", l.url, err)
		}
		m, v, err := decode(raw)
		if err != nil {
			l.b.log.Warn("invalid message from the coordinator", slog.Any("why", err))
			continue
		}
		l.checkSignature(m, &v)
		return m, nil
	}
}

// checkSignature logs the first wrong signature of the coordinator. It has no other effect, as in DTF's own workers: tasks are never signed.
func (l *coordinatorConn) checkSignature(m *message, v *value) {
	if !l.signer.enabled() || m.Signature == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.signatureWarned && !l.signer.verify(v, time.Now()) {
		l.signatureWarned = true
		l.b.log.Warn("wrong signature from the coordinator: check the secret and the clocks", slog.String("coordinator", l.url))
	}
}

// serve handles messages and sends heartbeats until the connection or ctx ends. It returns why, and whether the coordinator accepted the
// worker.
func (l *coordinatorConn) serve(ctx context.Context) (registered bool, err error) {
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
		return false, err
	}
	l.b.setConn(l)
	defer l.b.clearConn(l)
	heartbeat := time.Tick(l.b.cfg.Heartbeat)
	missed := 0
	for first := true; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				_ = l.ws.Close(websocket.StatusNormalClosure, "")
				return true, ctx.Err()
			case err := <-broken:
				return true, err
			case m := <-frames:
				if m.Type == typeHeartbeatResponse {
					missed = 0
				}
				if err := l.handle(ctx, m); err != nil {
					return true, err
				}
				continue
			case <-heartbeat:
			}
		}
		if !l.b.shouldServe() {
			return true, muster.Errorf(muster.Unavailable, "the worker %s is not active", l.b.cfg.Name)
		}
		if missed++; missed > maxMissedBeats {
			return true, muster.Errorf(muster.Unavailable, "the coordinator %s does not answer heartbeats", l.url)
		}
		m := l.b.nextHeartbeat()
		if err := l.writeSigned(ctx, m); err != nil {
			l.b.requeueNotice(m)
			return true, err
		}
	}
}

// awaitRegistered waits for the answer to register. No answer within registerTimeout means success: coordinators that verify signatures
// send none.
func (l *coordinatorConn) awaitRegistered(ctx context.Context, frames <-chan *message, broken <-chan error) error {
	timeout := time.After(l.b.registerTimeout)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broken:
			return err
		case <-timeout:
			return nil
		case m := <-frames:
			switch {
			case m.Type == typeRegisterResponse && m.Status != statusError:
				l.b.setIdentity(m.WorkerID, "")
				return nil
			case m.Type == typeRegisterResponse || m.Type == typeError:
				return l.registrationError(m)
			}
			if err := l.handle(ctx, m); err != nil { // a task may come first
				return err
			}
		}
	}
}

func (l *coordinatorConn) registrationError(m *message) error {
	if m.Message == errSignature {
		if l.signer.enabled() {
			return muster.Errorf(muster.Unauthenticated, "the coordinator %s refused the signature: check the secret_key of --security-config and the clocks", l.url)
		}
		return muster.Errorf(muster.Unauthenticated, "the coordinator %s verifies signatures: use --security-config with its security_config.json", l.url)
	}
	return muster.Errorf(muster.Unavailable, "the coordinator %s refused to register this worker: %s", l.url, lenient.Name(m.Message))
}

func (l *coordinatorConn) handle(ctx context.Context, m *message) error {
	switch m.Type {
	case typeHeartbeatResponse, typeRegisterResponse, typeAuthResponse:
	case typeResultResponse:
		var err error
		if m.Status == statusError {
			err = muster.Errorf(muster.Unavailable, "the coordinator refused the result: %s", lenient.Name(m.Message))
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
		l.b.log.Warn("error from the coordinator", slog.String("message", lenient.Name(m.Message)))
		l.resolveResult(m.TaskID, resultError(m.Message))
	default:
		l.b.log.Warn("message of unknown type from the coordinator", slog.String("type", lenient.Name(m.Type)))
	}
	return nil
}

// resultError converts an error of the coordinator: NotFound if it will never accept the result.
func resultError(text string) error {
	lower := strings.ToLower(text)
	if strings.Contains(lower, "task") && (strings.Contains(lower, "not found") || strings.Contains(lower, "unknown task") || strings.Contains(lower, "already completed")) {
		return muster.Errorf(muster.NotFound, "the coordinator does not know the task: %s", lenient.Name(text))
	}
	return muster.Errorf(muster.Unavailable, "the coordinator refused the result: %s", lenient.Name(text))
}

func (l *coordinatorConn) report(ctx context.Context, m *message) error {
	done := make(chan error, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return muster.Errorf(muster.Unavailable, "lost the connection to %s", l.url)
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
		return muster.Errorf(muster.Unavailable, "the coordinator %s did not acknowledge the result of %s: %w", l.url, lenient.Name(m.TaskID), ctx.Err())
	}
}

// resolveResult handles the answer to a result. An answer without an id is for the oldest one.
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

// close closes the connection. Results without an answer are sent again on the next one.
func (l *coordinatorConn) close() {
	_ = l.ws.CloseNow()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, done := range l.waiting {
		done <- muster.Errorf(muster.Unavailable, "lost the connection to %s before the result was acknowledged", l.url)
	}
	l.waiting, l.order = nil, nil
}
