// Package allow knows what a worker's owner lets tasks have: what of a task is beyond it, and which
// lists an owner can write. The server asks it so as to place tasks elsewhere, the worker
// so as to refuse them whatever the server says. It is pure.
package policy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Check says in one sentence what of a spec is beyond a, "" if nothing is. A task that may
// run as a container or as a process is refused for what it has in both. A nil Allow is that of a new worker.
func Check(a *muster.Allow, t *muster.TaskSpec) string {
	if a != nil && a.Env != nil {
		for _, name := range slices.Sorted(maps.Keys(t.Env)) {
			// What follows = in a name, or its own end, would be of another variable.
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

// RunsInContainer reports whether a task is to run in a container and nowhere else. What a spec says that is not
// normalized, or that nobody understands, is taken for that.
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

// CheckContainer says in one sentence what of the container that t asks for is beyond a, "" if nothing is.
// An image with a reference that is not resolved yet is not looked at.
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

// matchImage reports whether an image is among those that a pattern stands for. A pattern without
// a tag or digest stands for all of them. One with a tag does not stand for an image
// with a digest, which decides what is run, whatever the tag.
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

// matchPattern reports whether s is as the pattern has it, in which * stands for any text.
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

// mountAllowed reports whether a mount is of folder or of what is in it. With :ro the folder is for reading only.
func mountAllowed(folder string, m muster.Mount) bool {
	folder, readOnly := strings.CutSuffix(folder, ":ro")
	source := path.Clean(m.Source)
	return (m.ReadOnly || !readOnly) && path.IsAbs(source) && (source == folder || strings.HasPrefix(source, strings.TrimSuffix(folder, "/")+"/"))
}
