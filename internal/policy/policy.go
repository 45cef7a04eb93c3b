// Package policy checks tasks against what a worker's owner allows, and parses the owner's lists.
// The server uses it for placement, and the worker to refuse tasks whatever the server decided. It
// is pure.
package policy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Check returns in one sentence what a does not allow of a spec, or "". For a task that may run as a
// container or as a process it checks what applies to both. A nil Allow is the default policy.
func Check(a *muster.Allow, t *muster.TaskSpec) string {
	if a != nil && a.Env != nil {
		for _, name := range slices.Sorted(maps.Keys(t.Env)) {
			// With = or NUL in its name, it would set another variable.
			if strings.ContainsAny(name, "=\x00") || !slices.ContainsFunc(a.Env, func(p string) bool { return matchPattern(p, name) }) {
				return "its owner does not allow tasks to set the variable " + name
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

// matchPattern reports whether the pattern, in which * stands for any text, matches s.
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
