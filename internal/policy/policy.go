// Package policy checks tasks against what a worker's owner allows, and parses the owner's lists.
// The server uses it for placement, and the worker to refuse tasks whatever the server decided. It
// is pure.
package policy

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Check returns in one sentence what a does not allow of a spec, or "". For a task that may run as a
// container or as a process it checks what applies to both. A nil Allow is the default policy.
func Check(a *muster.Allow, t *muster.TaskSpec) string {
	if a != nil && a.SignedBy != nil && !slices.Contains(a.SignedBy, t.SignedBy) {
		if t.SignedBy != "" {
			return "its owner does not allow jobs that are signed by " + t.SignedBy
		}
		return "its owner does not allow jobs without a signature by a trusted key: submit the job with --sign"
	}
	if a != nil && a.MaxTaskTimeout > 0 && t.Timeout > a.MaxTaskTimeout {
		return "its owner does not allow timeouts over " + a.MaxTaskTimeout.String() + ", and the task's is " + t.Timeout.String()
	}
	if a != nil && a.Env != nil {
		names := slices.Sorted(maps.Keys(t.Env))
		for i := range t.Secrets {
			if name := t.Secrets[i].Variable(); name != "" {
				names = append(names, name)
			}
		}
		for _, name := range names {
			// With = or NUL in its name, it would set another variable.
			if strings.ContainsAny(name, "=\x00") || !matchesAny(a.Env, name) {
				return "its owner does not allow tasks to set the variable " + name
			}
		}
	}
	if a != nil && a.Secrets != nil {
		for i := range t.Secrets {
			if name := t.Secrets[i].Name; !matchesAny(a.Secrets, name) {
				return "its owner does not allow tasks to have the secret " + name
			}
		}
	}
	if !RunsInContainer(t) {
		return ""
	}
	return CheckContainer(a, t)
}

// RunsInContainer reports whether a task must run in a container. It is true for an unknown isolation, and handles
// specs that are not normalized.
func RunsInContainer(t *muster.TaskSpec) bool {
	switch t.Isolation {
	case muster.IsolationProcess, muster.IsolationAuto:
		return t.Kind == muster.KindContainer
	case "":
		return t.Kind == muster.KindContainer || t.Image != ""
	default:
		return true
	}
}

// CheckContainer returns in one sentence what a does not allow of t's container, or "". It does not check an
// image with an unresolved reference.
func CheckContainer(a *muster.Allow, t *muster.TaskSpec) string {
	if a == nil {
		a = &muster.Allow{}
	}
	c := t.Container
	if c == nil {
		c = &muster.Container{}
	}
	if a.Images != nil && !strings.Contains(t.Image, "${") && !slices.ContainsFunc(a.Images, func(p string) bool { return matchImage(p, t.Image) }) {
		return "its owner does not allow the image " + t.Image
	}
	if a.Users != nil && !slices.Contains(a.Users, c.User) {
		if c.User == "" {
			return "its owner does not allow containers to run as their image's own user: set container.user"
		}
		return "its owner does not allow containers to run as user " + c.User
	}
	for _, m := range c.Mounts {
		if !slices.ContainsFunc(a.Mounts, func(folder string) bool { return mountAllowed(folder, m) }) {
			if m.ReadOnly {
				return "its owner does not allow containers to read " + m.Source
			}
			return "its owner does not allow containers to read and change " + m.Source
		}
	}
	if t.Network == muster.NetworkHost && !a.HostNetwork {
		return "its owner does not allow containers the worker's own network"
	}
	return ""
}

// matchImage reports whether a pattern matches an image. A pattern without a tag or digest matches
// any of them. One with a tag does not match an image with a digest, because the digest overrides
// the tag.
func matchImage(pattern, ref string) bool {
	name, version, ok := muster.ParseImage(ref)
	if !ok {
		return false
	}
	if !strings.HasPrefix(pattern, "*") {
		pattern = muster.NormalizeImageName(pattern)
	}
	if strings.ContainsAny(path.Base(pattern), ":@") {
		name += version
	}
	return matchPattern(pattern, name)
}

// matchesAny reports whether a name matches one of patterns.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchPattern(p, name) })
}

// matchPattern reports whether the pattern, in which * matches any text, matches s.
func matchPattern(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(s, parts[0])
	last := len(parts) - 1
	if last == 0 || !ok {
		return ok && rest == ""
	}
	for _, part := range parts[1:last] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// mountAllowed reports whether a mount is folder or below it. With the suffix :ro only read-only mounts are allowed.
func mountAllowed(folder string, m muster.Mount) bool {
	folder, readOnly := strings.CutSuffix(folder, ":ro")
	source := path.Clean(m.Source)
	return (m.ReadOnly || !readOnly) && path.IsAbs(source) && (source == folder || strings.HasPrefix(source, strings.TrimSuffix(folder, "/")+"/"))
}

// NoneKeyword alone in a list stands for an empty list; ImageUser among users for the image's own user.
const (
	NoneKeyword = "none"
	ImageUser   = "default"
)

var (
	imageEntry    = lazyregexp.New(`^[A-Za-z0-9*\[][A-Za-z0-9*._/:@\[\]-]{0,511}$`)
	userEntry     = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	variableEntry = lazyregexp.New(`^[A-Za-z0-9_*]{1,256}$`)
)

// ParseImage reads an entry of muster.Allow.Images.
func ParseImage(s string) (string, error) {
	if !imageEntry.Get().MatchString(s) || strings.HasSuffix(s, "/") || strings.Contains(s, "//") {
		return "", errors.New("write names of images, in which * matches any text, such as ghcr.io/acme/* or python:3.*")
	}
	return s, nil
}

// ParseUser reads an entry of muster.Allow.Users.
func ParseUser(s string) (string, error) {
	switch {
	case s == ImageUser:
		return "", nil
	case !userEntry.Get().MatchString(s):
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

// ParseVariable reads an entry of muster.Allow.Env or Secrets.
func ParseVariable(s string) (string, error) {
	if !variableEntry.Get().MatchString(s) {
		return "", errors.New("write names, in which * matches any text, such as HF_*")
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
	}{{"images", a.Images}, {"users", a.Users}, {"variables", a.Env}, {"secrets", a.Secrets}, {"mounts", a.Mounts}, {"signed by", a.SignedBy}} {
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
	if d := a.DefaultTimeout(); d > 0 {
		all = append(all, Rule{"default timeout", d.String()})
	}
	if a.MaxTaskTimeout > 0 {
		all = append(all, Rule{"timeout", "at most " + a.MaxTaskTimeout.String()})
	}
	return all
}
