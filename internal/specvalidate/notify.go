package specvalidate

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

const (
	maxURL    = 2048       // bytes of the URL of a notification
	maxSealed = 3 * maxURL // of one that the server encrypted
	minSecret = 16         // bytes of its secret
	maxSecret = 512
	minAfter  = muster.Duration(time.Second)
)

// Notify returns the problems of a project's notifications, or nil if they are valid.
func Notify(list []muster.Notify) []muster.FieldError {
	v := &validator{}
	v.notify("notify", list)
	return v.wrong
}

func (v *validator) notify(path string, list []muster.Notify) {
	if !v.atMost(path, len(list), muster.MaxNotify) {
		return
	}
	for i := range list {
		v.notifyOne(fmt.Sprintf("%s[%d].", path, i), &list[i])
	}
}

func (v *validator) notifyOne(at string, n *muster.Notify) {
	v.notifyURL(at+"url", n.URL)
	v.optional(at+"preset", n.Preset, muster.NotifyPresets...)
	if !v.atMost(at+"on", len(n.On), len(muster.NotifyOn)) {
		return
	}
	for i, on := range n.On {
		path := fmt.Sprintf("%son[%d]", at, i)
		if slices.Contains(n.On[:i], on) {
			v.add(path, "", "duplicate value %s", muster.Truncate(on))
			continue
		}
		v.oneOf(path, on, muster.NotifyOn...)
	}
	switch _, waits := n.WaitThreshold(); {
	case n.After != 0 && !waits:
		v.add(at+"after", "add waiting_long to on", "after is for on: [waiting_long] only")
	case n.After != 0 && n.After < minAfter:
		v.add(at+"after", "", "%s is too short: the minimum is %s", n.After, minAfter)
	}
	v.notifySecret(at+"secret", n.Secret)
}

// urlPattern is a URL with a host and without a fragment.
var urlPattern = lazyregexp.New(`^https?://([^/?#@]+@)?(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]%]+)(:[0-9]{1,5})?([/?][^#]*)?$`)

func (v *validator) notifyURL(path, text string) {
	_, fragment, hasFragment := strings.Cut(text, "#")
	origin, _, sealed := muster.CutSealedURL(text)
	switch {
	case sealed && len(text) <= maxSealed && urlPattern.Get().MatchString(origin): // only the server can read the rest
	case text == "":
		v.add(path, "such as https://ntfy.sh/my-topic", "the URL is missing")
	case len(text) > maxURL:
		v.add(path, "", "the URL is %d bytes long: the maximum is %d", len(text), maxURL)
	case hasFragment:
		v.add(path, "", "a URL with # cannot be requested: remove #%s", muster.Truncate(fragment))
	case !urlPattern.Get().MatchString(text) || strings.ContainsFunc(text, isInvalidRune):
		v.add(path, "", "%q is not an http or https URL", muster.Truncate(text))
	}
}

// isInvalidRune reports whether a character is not allowed in a URL.
func isInvalidRune(r rune) bool { return r == utf8.RuneError || r == ' ' || unicode.IsControl(r) }

func (v *validator) notifySecret(path, text string) {
	if text == "" {
		return
	}
	encoded, isBase64 := strings.CutPrefix(text, muster.SecretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case strings.HasPrefix(text, muster.SealedPrefix) && len(text) <= 2*maxSecret: // only the server can read it
	case len(text) < minSecret || len(text) > maxSecret:
		v.add(path, "", "the secret has %d bytes: use %d to %d", len(text), minSecret, maxSecret)
	case isBase64 && (err != nil || len(key) < minSecret):
		v.add(path, "", "a secret that begins with %s must be base64 of at least %d bytes", muster.SecretPrefix, minSecret)
	case strings.ContainsFunc(text, isInvalidRune):
		v.add(path, "", "the secret has a space or a control character, or is not UTF-8")
	}
}
