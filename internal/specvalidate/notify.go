package specvalidate

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

const (
	maxURL    = 2048       // bytes of the URL of a notification
	maxSealed = 3 * maxURL // of one that the server sealed
	minSecret = 16         // bytes of its secret
	maxSecret = 512
	minAfter  = muster.Duration(time.Second)
)

// Notify returns what is wrong with the notifications of a project, and nothing if they can be accepted.
func Notify(list []muster.Notify) []muster.FieldError {
	v := &validator{}
	v.notify("notify", list)
	return v.wrong
}

func (v *validator) notify(path string, list []muster.Notify) {
	if len(list) > muster.MaxNotify {
		v.add(path, "", "%d entries are too many: at most %d are allowed", len(list), muster.MaxNotify)
		return
	}
	for i := range list {
		v.notifyOne(fmt.Sprintf("%s[%d].", path, i), &list[i])
	}
}

func (v *validator) notifyOne(at string, n *muster.Notify) {
	v.notifyURL(at+"url", n.URL)
	if n.Preset != "" {
		v.oneOf(at+"preset", n.Preset, muster.NotifyPresets...)
	}
	if len(n.On) > len(muster.NotifyOn) {
		v.add(at+"on", "", "%d entries are too many: at most %d are allowed", len(n.On), len(muster.NotifyOn))
		return
	}
	for i, on := range n.On {
		path := fmt.Sprintf("%son[%d]", at, i)
		if slices.Contains(n.On[:i], on) {
			v.add(path, "", "%s is there twice", truncate([]byte(on)))
			continue
		}
		v.oneOf(path, on, muster.NotifyOn...)
	}
	switch _, waits := n.WaitThreshold(); {
	case n.After != 0 && !waits:
		v.add(at+"after", "add waiting_long to on", "after is for on: [waiting_long] only")
	case n.After != 0 && n.After < minAfter:
		v.add(at+"after", "", "%s is too short: write %s or more", n.After, minAfter)
	}
	v.notifySecret(at+"secret", n.Secret)
}

// urlPattern is a URL of a host. A fragment is not requested, so there is none.
var urlPattern = regexp.MustCompile(`^https?://([^/?#@]+@)?(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]%]+)(:[0-9]{1,5})?([/?][^#]*)?$`)

func (v *validator) notifyURL(path, text string) {
	_, fragment, hasFragment := strings.Cut(text, "#")
	origin, _, sealed := muster.CutSealedURL(text)
	switch {
	case sealed && len(text) <= maxSealed && urlPattern.MatchString(origin): // only the server can read the rest
	case text == "":
		v.add(path, "such as https://ntfy.sh/my-topic", "the URL is missing")
	case len(text) > maxURL:
		v.add(path, "", "the URL is %d bytes long: at most %d are allowed", len(text), maxURL)
	case hasFragment:
		v.add(path, "", "a URL with # cannot be requested: leave out #%s", truncate([]byte(fragment)))
	case !urlPattern.MatchString(text) || strings.ContainsFunc(text, isInvalidRune):
		v.add(path, "", "%q is not an http or https URL", truncate([]byte(text)))
	}
}

// isInvalidRune reports whether a character cannot stand in a URL.
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
		v.add(path, "", "the secret has %d bytes: write %d to %d", len(text), minSecret, maxSecret)
	case isBase64 && (err != nil || len(key) < minSecret):
		v.add(path, "", "a secret that begins with %s is base64 of at least %d bytes, and this one is not", muster.SecretPrefix, minSecret)
	case strings.ContainsFunc(text, isInvalidRune):
		v.add(path, "", "the secret has a space, a control character or no UTF-8")
	}
}
