package dtf_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// coordinator is a scripted coordinator of DTF, written from contracts.md 3: R0, which verifies signatures, asks for X-API-Key on the
// upgrade and does not answer to register, or R1, which does none of that.
type coordinator struct {
	tb     testing.TB
	r0     bool
	secret string
	key    string
	http   *httptest.Server

	mu       sync.Mutex
	refuse   bool              // it answers no upgrade
	tasks    []json.RawMessage // frames to send to each worker that registers, again on each connection
	results  map[string][]map[string]any
	beats    []map[string]any
	conns    []*websocket.Conn
	register []map[string]any
	lose     int // results that are read and not answered, before the connection is cut
	script   []string
	always   bool // offer the tasks again with every heartbeat
	bad      int  // frames with a wrong signature
	silent   bool // answers no heartbeat
	noTokens bool // takes keys only, as one that was started again
	tokens   int  // that were refused
	times    []time.Time
}

func startCoordinator(tb testing.TB, r0 bool) *coordinator {
	tb.Helper()
	c := &coordinator{tb: tb, r0: r0, key: "0123456789abcdef0123456789abcdef", results: map[string][]map[string]any{}}
	if r0 {
		c.secret = "s3cr3t"
	}
	c.http = httptest.NewServer(http.HandlerFunc(c.serve))
	tb.Cleanup(func() {
		c.cut()
		c.http.Close()
	})
	return c
}

// cut breaks all connections.
func (c *coordinator) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ws := range c.conns {
		_ = ws.CloseNow()
	}
	c.conns = nil
}

func (c *coordinator) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	switch {
	case refuse:
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	case r.URL.Path != "/ws":
		http.NotFound(w, r)
		return
	case c.r0 && r.Header.Get("X-API-Key") != c.key:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError) // a missing import
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(1 << 20)
	c.mu.Lock()
	c.conns = append(c.conns, ws)
	c.mu.Unlock()
	defer ws.CloseNow()
	worker := ""
	for {
		_, raw, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			c.tb.Errorf("a frame that is not JSON: %s", raw)
			return
		}
		c.note("worker", raw)
		if !c.answer(r.Context(), ws, m, raw, &worker) {
			return
		}
	}
}

// pythonSum is the signature of contracts.md 3.5, made without the code under test where it can be: the frame is signed text already.
func pythonSum(secret string, raw []byte) (text, sum string) {
	at := strings.Index(string(raw), `"signature": "`)
	if at < 0 {
		return "", ""
	}
	end := at + len(`"signature": "`) + 44 + 1
	text = strings.Replace(string(raw[:at])+strings.TrimPrefix(string(raw[end:]), ", "), ", }", "}", 1)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text, base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (c *coordinator) answer(ctx context.Context, ws *websocket.Conn, m map[string]any, raw []byte, worker *string) bool {
	kind, _ := m["type"].(string)
	if kind == "auth" {
		c.mu.Lock()
		stale := c.noTokens && m["token"] != nil
		if stale {
			c.tokens++
		}
		c.mu.Unlock()
		if stale {
			c.send(ctx, ws, `{"type":"auth_response","status":"error","message":"Invalid token"}`, false)
			return false
		}
		if m["api_key"] != c.key && m["token"] != "token-of-"+*worker && m["token"] == nil {
			if c.r0 {
				c.send(ctx, ws, `{"type":"error","message":"Invalid API key"}`, false)
			} else {
				c.send(ctx, ws, `{"type":"auth_response","status":"error","message":"Invalid API key"}`, false)
			}
			return false
		}
		id, _ := m["worker_id"].(string)
		if id == "" {
			id = strings.TrimPrefix(fmt.Sprint(m["token"]), "token-of-")
		}
		*worker = id
		c.send(ctx, ws, fmt.Sprintf(`{"type":"auth_response","status":"success","token":"token-of-%s","worker_id":%q}`, id, id), false)
		return true
	}
	if c.r0 {
		if _, sum := pythonSum(c.secret, raw); sum == "" || m["signature"] != sum {
			c.mu.Lock()
			c.bad++
			c.mu.Unlock()
			c.send(ctx, ws, `{"type":"error","message":"Invalid message signature"}`, false)
			return true
		}
	}
	switch kind {
	case "register":
		c.mu.Lock()
		c.register = append(c.register, m)
		tasks := slices.Clone(c.tasks)
		c.mu.Unlock()
		if !c.r0 {
			c.send(ctx, ws, fmt.Sprintf(`{"type":"register_response","status":"success","worker_id":%q}`, *worker), false)
		}
		for _, t := range tasks {
			c.send(ctx, ws, string(t), false)
		}
	case "heartbeat":
		c.mu.Lock()
		c.beats = append(c.beats, m)
		c.times = append(c.times, time.Now())
		always, silent, tasks := c.always, c.silent, slices.Clone(c.tasks)
		c.mu.Unlock()
		if silent {
			return true
		}
		c.send(ctx, ws, `{"timestamp": 1715000000, "type": "heartbeat_response"}`, c.r0)
		if always {
			for _, t := range tasks {
				c.send(ctx, ws, string(t), false)
			}
		}
	case "task_result":
		id, _ := m["task_id"].(string)
		c.mu.Lock()
		lose := c.lose > 0
		c.lose--
		c.mu.Unlock()
		defer func() { // once the answer is in the transcript
			c.mu.Lock()
			defer c.mu.Unlock()
			c.results[id] = append(c.results[id], m)
		}()
		if lose {
			return false
		}
		if c.r0 {
			c.send(ctx, ws, fmt.Sprintf(`{"task_id": %q, "timestamp": 1715000000, "type": "task_result_response"}`, id), true)
		} else {
			c.send(ctx, ws, fmt.Sprintf(`{"type":"task_result_response","task_id":%q,"received":true}`, id), false)
		}
	default:
		c.send(ctx, ws, `{"type":"error","message":"Unknown message type: `+kind+`"}`, false)
	}
	return true
}

func (c *coordinator) send(ctx context.Context, ws *websocket.Conn, text string, sign bool) {
	if sign {
		text = strings.Replace(text, "1715000000", strconv.FormatInt(time.Now().Unix(), 10), 1)
		mac := hmac.New(sha256.New, []byte(c.secret))
		mac.Write([]byte(text))
		text = strings.TrimSuffix(text, "}") + `, "signature": "` + base64.StdEncoding.EncodeToString(mac.Sum(nil)) + `"}`
	}
	c.note("coordinator", []byte(text))
	_ = ws.Write(ctx, websocket.MessageText, []byte(text))
}

// push sends a frame to all that are connected.
func (c *coordinator) push(text string) {
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, ws := range conns {
		c.send(context.Background(), ws, text, false)
	}
}

func (c *coordinator) got(id string) []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.results[id])
}

func (c *coordinator) count() (beats, registers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.beats), len(c.register)
}

func (c *coordinator) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// note adds a frame to the transcript, without what differs between runs.
func (c *coordinator) note(who string, raw []byte) {
	line := who + ": " + stable(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(line, `"type":"heartbeat`) && slices.Contains(c.script, line) { // however many there are
		return
	}
	c.script = append(c.script, line)
}

// varying are the fields of a transcript that differ between runs.
var varying = []string{"timestamp", "signature", "check_time", "token", "cpu_percent", "memory_percent", "memory_used_gb", "memory_available_gb", "available_gb", "total_gb", "cores", "threads", "platform", "max_tasks", "execution_time_seconds", "hostname", "task_types", "progress", "current_task", "task_status", "hardware", "gpu"}

func stable(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				if name == "task_status" || name == "gpu" {
					delete(v, name)
				} else if slices.Contains(varying, name) {
					v[name] = "*"
				} else {
					v[name] = walk(inner)
				}
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	out, err := json.Marshal(walk(v))
	if err != nil {
		return string(raw)
	}
	return string(out)
}
