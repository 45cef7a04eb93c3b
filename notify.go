package muster

import (
	"slices"
	"strings"
	"time"
)

// Forms of Notify.Secret other than plain text.
const (
	SecretPrefix = "whsec_"  // base64, as Standard Webhooks writes secrets
	SealedPrefix = "sealed:" // encrypted by the server
)

// CutSealedURL splits a Notify.URL of which all but scheme, host and port is encrypted by the server: https://hooks.slack.com/#sealed:….
// No other URL has a fragment.
func CutSealedURL(url string) (origin, sealed string, ok bool) {
	return strings.Cut(url, "/#"+SealedPrefix)
}

// URLOrigin returns scheme, host and port of a URL, without user and password.
func URLOrigin(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

// MaskURL returns what may be shown of the URL of a webhook, whose path and query may be secret: https://hooks.slack.com/….
func MaskURL(url string) string { return URLOrigin(url) + "/…" }

// MaxNotify is how many notifications a job or a project may have.
const MaxNotify = 10

// Notify asks for an HTTP request when something becomes of a job.
type Notify struct {
	URL    string   `json:"url"`              // http or https
	On     []string `json:"on,omitempty"`     // what is notified: ended (default), succeeded, failed, cancelled or waiting_long
	After  Duration `json:"after,omitempty"`  // how long a job waits until that counts as waiting_long; default 10m
	Preset string   `json:"preset,omitempty"` // the form of the body: slack, discord, ntfy, or "" for Muster's own JSON
	Secret string   `json:"secret,omitempty"` // signs the request; default: the project's own secret, which the server makes
}

// What a Notify may name.
const (
	OnEnded       = "ended"        // the job has ended, in whatever state
	OnSucceeded   = "succeeded"    // the job has ended succeeded
	OnFailed      = "failed"       // the job has ended failed or timed_out
	OnCancelled   = "cancelled"    // the job has ended cancelled
	OnWaitingLong = "waiting_long" // no task of the job runs, for After
)

// NotifyOn lists what Notify.On may have, and NotifyPresets what Notify.Preset may be.
var (
	NotifyOn      = []string{OnEnded, OnSucceeded, OnFailed, OnCancelled, OnWaitingLong}
	NotifyPresets = []string{PresetSlack, PresetDiscord, PresetNtfy}
)

// The presets.
const (
	PresetSlack   = "slack"
	PresetDiscord = "discord"
	PresetNtfy    = "ntfy"
)

// Matches reports whether the end of a job in a state is notified.
func (n *Notify) Matches(state JobState) bool {
	if len(n.On) == 0 {
		return true
	}
	return slices.ContainsFunc(n.On, func(on string) bool {
		switch on {
		case OnEnded:
			return true
		case OnSucceeded:
			return state == JobSucceeded
		case OnFailed:
			return state == JobFailed || state == JobTimedOut
		case OnCancelled:
			return state == JobCancelled
		default:
			return false
		}
	})
}

// WaitThreshold returns how long a job waits until that is notified; false means that it is not.
func (n *Notify) WaitThreshold() (Duration, bool) {
	return n.After.Or(Duration(10 * time.Minute)), slices.Contains(n.On, OnWaitingLong)
}
