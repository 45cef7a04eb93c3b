package webhook_test

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/muster-dev/muster"
)

// The receivers' documentation of the body: https://docs.slack.dev/reference/block-kit/blocks and
// https://discord.com/developers/docs/resources/webhook#execute-webhook, with their limits.
const (
	slackSchema = `{"type":"object","required":["text","blocks"],"additionalProperties":false,"properties":{"text":{"type":"string","minLength":1,"maxLength":40000},
		"blocks":{"type":"array","minItems":1,"maxItems":50,"items":{"oneOf":[
		{"type":"object","required":["type","text"],"additionalProperties":false,"properties":{"type":{"const":"section"},"text":{"$ref":"#/$defs/text"}}},
		{"type":"object","required":["type","elements"],"additionalProperties":false,"properties":{"type":{"const":"context"},"elements":{"type":"array","minItems":1,"maxItems":10,"items":{"$ref":"#/$defs/text"}}}}]}}},
		"$defs":{"text":{"type":"object","required":["type","text"],"additionalProperties":false,"properties":{"type":{"enum":["mrkdwn","plain_text"]},"text":{"type":"string","minLength":1,"maxLength":3000}}}}}`
	discordSchema = `{"type":"object","required":["content"],"additionalProperties":false,"properties":{"content":{"type":"string","minLength":1,"maxLength":2000},
		"embeds":{"type":"array","maxItems":10,"items":{"type":"object","additionalProperties":false,"properties":{"title":{"type":"string","maxLength":256},
		"description":{"type":"string","maxLength":4096},"url":{"type":"string","pattern":"^https?://"},"timestamp":{"type":"string","format":"date-time"},"color":{"type":"integer","minimum":0,"maximum":16777215},
		"fields":{"type":"array","maxItems":25,"items":{"type":"object","required":["name","value"],"additionalProperties":false,"properties":{"name":{"type":"string","minLength":1,"maxLength":256},"value":{"type":"string","minLength":1,"maxLength":1024},"inline":{"type":"boolean"}}}}}}},
		"allowed_mentions":{"type":"object","additionalProperties":false,"properties":{"parse":{"type":"array","maxItems":0}}}}}`
)

func validateBody(t *testing.T, shape, body string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(shape))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("shape.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("shape.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
}

// Presets have the form that their receivers document, whatever a job is called.
func TestPresets(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	w.run()
	n := 0
	send := func(preset, on string, state muster.TaskState) request {
		t.Helper()
		n++
		at := muster.Notify{URL: r.URL + "/" + preset, Preset: preset, On: []string{on}}
		if on == muster.OnWaitingLong {
			at.After = muster.Duration(time.Second)
			w.submit(id(n), "default", at)
			return r.next(t)
		}
		w.submit(id(n), "default", at)
		w.end(id(n), "default", state)
		return r.next(t)
	}
	for _, state := range []muster.TaskState{muster.Succeeded, muster.Failed, muster.TimedOut, muster.Cancelled} {
		slack := send("slack", muster.OnEnded, state)
		validateBody(t, slackSchema, slack.body)
		if slack.Get("Content-Type") != "application/json" || strings.Contains(slack.body, "<model>") {
			t.Errorf("Slack: %+v", slack)
		}
		discord := send("discord", muster.OnEnded, state)
		validateBody(t, discordSchema, discord.body)

		ntfy := send("ntfy", muster.OnEnded, state)
		title, err := new(mime.WordDecoder).DecodeHeader(ntfy.Get("Title"))
		if err != nil || !strings.HasPrefix(title, "train <model> & co ") {
			t.Errorf("ntfy's title %q, %v", title, err)
		}
		priority := map[muster.TaskState]string{muster.Succeeded: "default", muster.Failed: "high", muster.TimedOut: "high", muster.Cancelled: "low"}[state]
		if ntfy.Get("Priority") != priority || ntfy.Get("Tags") == "" || !strings.HasPrefix(ntfy.Get("Click"), "https://muster.example/jobs/") ||
			!strings.HasPrefix(ntfy.body, "Job ") || len(ntfy.body) > 4096 || !strings.HasPrefix(ntfy.Get("Content-Type"), "text/plain") {
			t.Errorf("ntfy: %+v", ntfy)
		}
		if state == muster.Failed {
			for _, q := range []request{slack, discord, ntfy} {
				if !strings.Contains(q.body, "out_of_memory") {
					t.Errorf("no reason in %s", q.body)
				}
			}
		}
	}
	var m struct {
		Text string `json:"text"`
	}
	if q := send("slack", muster.OnWaitingLong, 0); json.Unmarshal([]byte(q.body), &m) != nil || !strings.Contains(m.Text, "has waited for") {
		t.Errorf("Slack of a wait: %s", q.body)
	}
}
