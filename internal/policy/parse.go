package policy

import (
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/muster-dev/muster"
)

// NoneKeyword alone in a list stands for an empty list; ImageUser among users for the image's own user.
const (
	NoneKeyword = "none"
	ImageUser   = "default"
)

var (
	imageEntry    = regexp.MustCompile(`^[A-Za-z0-9*\[][A-Za-z0-9*._/:@\[\]-]{0,511}$`)
	userEntry     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	variableEntry = regexp.MustCompile(`^[A-Za-z0-9_*]{1,256}$`)
)

// ParseImage reads an entry of muster.Allow.Images.
func ParseImage(s string) (string, error) {
	if !imageEntry.MatchString(s) || strings.HasSuffix(s, "/") || strings.Contains(s, "//") {
		return "", errors.New("write names of images, in which * stands for any text, such as ghcr.io/acme/* or python:3.*")
	}
	return s, nil
}

// ParseUser reads an entry of muster.Allow.Users.
func ParseUser(s string) (string, error) {
	switch {
	case s == ImageUser:
		return "", nil
	case !userEntry.MatchString(s):
		return "", errors.New("write users as container.user names them, such as 1000:1000, or " + ImageUser + " for the image's own")
	}
	return s, nil
}

// ParseMount reads an entry of muster.Allow.Mounts.
func ParseMount(s string) (string, error) {
	folder, readOnly := strings.CutSuffix(s, ":ro")
	if !path.IsAbs(folder) || strings.ContainsAny(folder, ":*") {
		return "", errors.New("write absolute paths of folders, with :ro for reading only, such as /data:ro")
	}
	if folder = path.Clean(folder); readOnly {
		folder += ":ro"
	}
	return folder, nil
}

// ParseVariable reads an entry of muster.Allow.Env.
func ParseVariable(s string) (string, error) {
	if !variableEntry.MatchString(s) {
		return "", errors.New("write names of variables, in which * stands for any text, such as HF_*")
	}
	return s, nil
}

// Rule is one rule of an owner's policy, for display.
type Rule struct{ Subject, Allowed string }

// Rules returns an owner's policy in a fixed order, and nothing for a nil Allow.
func Rules(a *muster.Allow) []Rule {
	if a == nil {
		return nil
	}
	var all []Rule
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
				shown[i] = ImageUser
			}
		}
		if len(shown) == 0 {
			shown = []string{NoneKeyword}
		}
		all = append(all, Rule{l.of, strings.Join(shown, ", ")})
	}
	if a.HostNetwork {
		all = append(all, Rule{"host network", "yes"})
	}
	return all
}
