package allow

import (
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/muster-dev/muster"
)

// None, alone in a list of an owner's, stands for an empty list; Own among users for the image's own.
const (
	None = "none"
	Own  = "default"
)

var (
	imageRule    = regexp.MustCompile(`^[A-Za-z0-9*\[][A-Za-z0-9*._/:@\[\]-]{0,511}$`)
	userRule     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	variableRule = regexp.MustCompile(`^[A-Za-z0-9_*]{1,256}$`)
)

// Image reads an entry of muster.Allow.Images.
func Image(s string) (string, error) {
	if !imageRule.MatchString(s) || strings.HasSuffix(s, "/") || strings.Contains(s, "//") {
		return "", errors.New("write names of images, in which * stands for any text, such as ghcr.io/acme/* or python:3.*")
	}
	return s, nil
}

// User reads an entry of muster.Allow.Users.
func User(s string) (string, error) {
	switch {
	case s == Own:
		return "", nil
	case !userRule.MatchString(s):
		return "", errors.New("write users as container.user names them, such as 1000:1000, or " + Own + " for the image's own")
	}
	return s, nil
}

// Mount reads an entry of muster.Allow.Mounts.
func Mount(s string) (string, error) {
	folder, readOnly := strings.CutSuffix(s, ":ro")
	if !path.IsAbs(folder) || strings.ContainsAny(folder, ":*") {
		return "", errors.New("write absolute paths of folders, with :ro for reading only, such as /data:ro")
	}
	if folder = path.Clean(folder); readOnly {
		folder += ":ro"
	}
	return folder, nil
}

// Variable reads an entry of muster.Allow.Env.
func Variable(s string) (string, error) {
	if !variableRule.MatchString(s) {
		return "", errors.New("write names of variables, in which * stands for any text, such as HF_*")
	}
	return s, nil
}

// Word is one thing that an owner said, for people.
type Word struct{ Of, Allowed string }

// Words returns what an owner said, in a fixed order: nothing for a new worker.
func Words(a *muster.Allow) []Word {
	if a == nil {
		return nil
	}
	var all []Word
	for _, l := range []struct {
		of      string
		entries []string
	}{{"images", a.Images}, {"users", a.Users}, {"variables", a.Env}, {"mounts", a.Mounts}} {
		if l.entries == nil {
			continue
		}
		shown := make([]string, len(l.entries))
		for i, entry := range l.entries {
			if shown[i] = entry; entry == "" {
				shown[i] = Own
			}
		}
		if len(shown) == 0 {
			shown = []string{None}
		}
		all = append(all, Word{l.of, strings.Join(shown, ", ")})
	}
	if a.HostNetwork {
		all = append(all, Word{"host network", "yes"})
	}
	return all
}
