package muster_test

import (
	"testing"

	"github.com/muster-dev/muster"
)

func TestHideCredentials(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                              "",
		"http://h:1/x":                  "http://h:1/x",
		"http://user:pw@h:1/x":          "http://xxxxx@h:1/x",
		"https://token@h":               "https://xxxxx@h",
		"user:pw@h:1":                   "xxxxx@h:1",
		"http://user:a@b@h":             "http://xxxxx@h",
		"http://user:a/b@h":             "http://xxxxx@h",
		"http://user:pw@[::1":           "http://xxxxx@[::1",
		"http://user:pw@":               "http://xxxxx@",
		"http://user:%zz@h":             "http://xxxxx@h",
		"http://h/models/name@revision": "http://h/models/name@revision",
		"http://h:80/name@revision":     "http://h:80/name@revision",
		"http://user:pw@h/a@b":          "http://xxxxx@b",
	} {
		if got := muster.HideCredentials(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
