package webhook

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// The types of messages that are not the state of a job.
const (
	typeWaiting = "job.waiting_long"
	typeTest    = "test"
)

// message is a notification in Muster's own JSON.
type message struct {
	Type      string      `json:"type"` // job. and the state of the job, job.waiting_long, or test
	Timestamp muster.Time `json:"timestamp"`
	Data      messageData `json:"data"`
}

type messageData struct {
	Message      string       `json:"message"` // one sentence
	Project      string       `json:"project"`
	Job          *muster.Job  `json:"job,omitempty"` // without spec and stages
	URL          string       `json:"url,omitempty"` // of the job in the dashboard
	WaitingSince muster.Time  `json:"waiting_since,omitzero"`
	WaitReason   string       `json:"why,omitempty"`
	Failures     []failedTask `json:"failures,omitempty"` // the first maxFailures failed tasks
}

type failedTask struct {
	Task    muster.TaskID   `json:"task"`
	Reason  muster.Reason   `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	Worker  muster.WorkerID `json:"worker,omitempty"`
}

// maxText is the most bytes of a foreign text in a message.
const maxText = 300

// truncate replaces control characters, and cuts a text to limit bytes.
func truncate(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("…")], "") + "…"
}

func endMessage(job *muster.Job, state muster.JobState, at muster.Time, failures []failedTask, link string) message {
	j := *job
	j.State, j.FinishedAt, j.Spec, j.Groups = state, at, nil, nil
	text := fmt.Sprintf("Job %s (%s) %s", j.ID, truncate(j.Name, maxText), stateText(state))
	if failed := j.Counts[muster.Failed] + j.Counts[muster.TimedOut]; failed > 0 && j.Counts.Total() > 1 {
		text += fmt.Sprintf(": %d of %d tasks failed", failed, j.Counts.Total())
	} else if j.StartedAt != 0 && at > j.StartedAt {
		text += " after " + formatDuration(at.Sub(j.StartedAt))
	}
	return message{Type: "job." + string(state), Timestamp: at, Data: messageData{Message: text, Project: j.Project, Job: &j, URL: link, Failures: failures}}
}

func stateText(state muster.JobState) string {
	switch state {
	case muster.JobCancelled:
		return "was cancelled"
	case muster.JobTimedOut:
		return "timed out"
	default:
		return string(state)
	}
}

// formatDuration formats a duration for humans, such as 1h30m.
func formatDuration(d muster.Duration) string {
	unit := time.Second
	if d.Std() < time.Second {
		unit = time.Millisecond
	}
	text := d.Std().Round(unit).String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}

func waitMessage(job *muster.Job, now, since muster.Time, why, link string) message {
	j := *job
	j.Spec, j.Groups = nil, nil
	text := fmt.Sprintf("Job %s (%s) has waited for %s: none of its tasks runs", j.ID, truncate(j.Name, maxText), formatDuration(now.Sub(since)))
	return message{Type: typeWaiting, Timestamp: now, Data: messageData{Message: text, Project: j.Project, Job: &j, URL: link, WaitingSince: since, WaitReason: truncate(why, 2*maxText)}}
}

func testMessage(project string, now muster.Time, link string) message {
	return message{Type: typeTest, Timestamp: now, Data: messageData{Message: "This is a test of the notifications of project " + project, Project: project, URL: link}}
}

func (m *message) delivery(n *muster.Notify, now muster.Time) (store.Delivery, error) {
	d := store.Delivery{
		Message: "msg_" + rand.Text(), Project: m.Data.Project, Event: m.Type, URL: n.URL, Host: hostPort(n.URL), Preset: n.Preset, Secret: n.Secret,
		CreatedAt: now, NextAt: now,
	}
	if m.Data.Job != nil {
		d.Job = m.Data.Job.ID
	}
	var body any = m
	switch n.Preset {
	case muster.PresetSlack:
		body = slackBody(m)
	case muster.PresetDiscord:
		body = discordBody(m)
	case muster.PresetNtfy:
		d.Body, d.Headers = ntfyBody(m)
		return d, nil
	}
	d.Headers = map[string]string{"Content-Type": "application/json"}
	var err error
	if d.Body, err = json.Marshal(body); err != nil {
		return store.Delivery{}, fmt.Errorf("encode: %w", err)
	}
	return d, nil
}

// hostPort returns the host and port of a URL, for the limits of attempts.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
