package specvalidate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/specvalidate"
)

func TestNotify(t *testing.T) {
	const at = "https://example.org/hook"
	for name, c := range map[string]struct {
		n    muster.Notify
		want string // of the problem; "" for none
	}{
		"plain":              {muster.Notify{URL: at}, ""},
		"all":                {muster.Notify{URL: at + "?a=b", On: muster.NotifyOn, After: muster.Duration(time.Hour), Preset: "slack", Secret: strings.Repeat("s", 16)}, ""},
		"port":               {muster.Notify{URL: "http://[::1]:8080/x"}, ""},
		"base64":             {muster.Notify{URL: at, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, ""},
		"sealed":             {muster.Notify{URL: at, Secret: "sealed:AAAA"}, ""},
		"no URL":             {muster.Notify{}, "notify[0].url: the URL is missing"},
		"scheme":             {muster.Notify{URL: "ftp://example.org/"}, "is not an http or https URL"},
		"no host":            {muster.Notify{URL: "http:///x"}, "is not an http or https URL"},
		"port only":          {muster.Notify{URL: "http://:80/"}, "is not an http or https URL"},
		"spaces":             {muster.Notify{URL: "http://example.org/ x"}, "is not an http or https URL"},
		"line break":         {muster.Notify{URL: "http://example.org/\r\nX: y"}, "is not an http or https URL"},
		"fragment":           {muster.Notify{URL: at + "#a"}, "cannot be requested"},
		"long URL":           {muster.Notify{URL: "http://example.org/" + strings.Repeat("a", 2048)}, "bytes long"},
		"event":              {muster.Notify{URL: at, On: []string{"fail"}}, `unknown value "fail"`},
		"nearest":            {muster.Notify{URL: at, On: []string{"faild"}}, "did you mean failed?"},
		"twice":              {muster.Notify{URL: at, On: []string{"failed", "failed"}}, "duplicate value"},
		"many":               {muster.Notify{URL: at, On: make([]string, 6)}, "too many"},
		"preset":             {muster.Notify{URL: at, Preset: "slak"}, "did you mean slack?"},
		"after without":      {muster.Notify{URL: at, After: muster.Duration(time.Minute)}, "after is for on: [waiting_long] only"},
		"short after":        {muster.Notify{URL: at, On: []string{"waiting_long"}, After: 1}, "is too short"},
		"short secret":       {muster.Notify{URL: at, Secret: "short"}, "the secret has 5 bytes: use 16 to 512"},
		"secret, not base64": {muster.Notify{URL: at, Secret: "whsec_" + strings.Repeat("ä", 10)}, "base64"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := specvalidate.Notify([]muster.Notify{c.n})
			if c.want == "" {
				if len(wrong) > 0 {
					t.Errorf("rejected: %v", wrong)
				}
				return
			}
			if len(wrong) != 1 || !strings.Contains(wrong[0].String(), c.want) {
				t.Errorf("got %v, want one problem with %q", wrong, c.want)
			}
		})
	}
	if wrong := specvalidate.Notify(make([]muster.Notify, muster.MaxNotify+1)); len(wrong) != 1 {
		t.Errorf("too many: %v", wrong)
	}
}
