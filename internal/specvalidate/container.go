package specvalidate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Limits of containers.
const (
	maxMounts  = 64  // mounts of a container
	maxHosts   = 256 // entries of allow_hosts
	minShmSize = 64 << 10
)

var (
	userPattern = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	// A name, *. and a name, an address or a network, with an optional port. The worker checks them completely.
	hostPattern = lazyregexp.New(`^((\*\.)?(\w[\w-]*\.)*[A-Za-z_][\w-]*(:\d{1,5})?|(\d{1,3}\.){3}\d{1,3}(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?|[0-9.]+/\d{1,2}(:\d{1,5})?|[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/\d{1,3})?)$`)
)

// container checks isolation, image and container options.
func (v *validator) container(t *muster.TaskSpec) {
	v.optional("isolation", t.Isolation, muster.IsolationContainer, muster.IsolationProcess, muster.IsolationAuto)
	switch {
	case t.Kind == muster.KindNoop && (t.Image != "" || t.Container != nil || t.Isolation == muster.IsolationContainer):
		v.add("kind", "leave kind out", "kind noop cannot run in a container")
	case t.Image == "" && t.Kind == muster.KindContainer:
		v.add("image", "such as image: python:3.12", "a container needs an image")
	case t.Image == "" && (t.Isolation == muster.IsolationContainer || t.Isolation == muster.IsolationAuto):
		v.add("isolation", "write image: its name", "a container needs an image")
	case t.Image == "" && t.Container != nil:
		v.add("container", "write image: its name", "container options need an image")
	case t.Image != "" && t.Isolation == muster.IsolationProcess:
		v.add("isolation", "remove one of them, or write isolation: auto", "a process cannot have an image")
	case t.Kind == muster.KindContainer && t.Isolation == muster.IsolationProcess, t.Kind == muster.KindContainer && t.Isolation == muster.IsolationAuto:
		v.add("isolation", "leave kind out", "tasks of kind container always run in a container")
	case t.Launcher != "" && t.Kind == muster.KindContainer && t.Run == nil:
		v.add("launcher", "write run: the script and its arguments", "a launcher cannot start the image's own command")
	}
	v.image(t.Image)
	if t.Container != nil {
		v.containerOptions(t.Container, t.Resources.Memory)
	}
}

// image checks an image reference, unless it contains ${…}.
func (v *validator) image(ref string) {
	if ref == "" || strings.Contains(ref, "${") {
		v.text("image", ref, maxLabel)
		return
	}
	if _, _, ok := muster.ParseImage(ref); ok {
		return
	}
	hint := "such as python:3.12 or ghcr.io/acme/train@sha256: and 64 hex digits"
	if lower := strings.ToLower(ref); lower != ref {
		if _, _, ok := muster.ParseImage(lower); ok {
			hint = "image names are lower case: write " + lower
		}
	}
	v.add("image", hint, "%q is not a valid image name", muster.Truncate(ref))
}

// registrySecret checks that a secret for a registry is for that of the stage's image.
func (v *validator) registrySecret(at, registry string, t *muster.TaskSpec) {
	const example = "such as ghcr.io, docker.io or localhost:5000"
	host := muster.ImageRegistry(registry + "/a/b")
	switch own := muster.ImageRegistry(t.Image); {
	case t.Image == "":
		v.add(at, "write image: its name", "a registry needs an image")
	case strings.Contains(registry, "/") || host == "":
		v.add(at, example, "%q is not a registry: write its name, and its port if it has one", muster.Truncate(registry))
	case host != registry && host == "docker.io" && registry != "index.docker.io":
		v.add(at, example, "%q is not the name of a registry", muster.Truncate(registry))
	case host != registry:
		v.add(at, "write "+host, "%q is another name of %s", registry, host)
	case own != "" && own != registry:
		v.add(at, "write "+own, "the image %s is not of the registry %s", muster.Truncate(t.Image), registry)
	}
}

// containerOptions checks container options. memory is the task's limit, 0 for none.
func (v *validator) containerOptions(c *muster.Container, memory muster.Size) {
	v.arguments("container.entrypoint", c.Entrypoint)
	if len(c.Entrypoint) > 0 && c.Entrypoint[0] == "" {
		v.add("container.entrypoint", "", "the list must begin with the program")
	}
	if c.Workdir != "" {
		v.absolutePath("container.workdir", c.Workdir)
	}
	if c.User != "" && !userPattern.Get().MatchString(c.User) {
		v.add("container.user", "such as 1000, 1000:1000 or nobody", "%q is not a valid user", muster.Truncate(c.User))
	}
	v.optional("container.pull", c.Pull, muster.PullMissing, muster.PullAlways, muster.PullNever)
	switch {
	case c.ShmSize != 0 && c.ShmSize < minShmSize, c.ShmSize > 1<<50:
		v.add("container.shm_size", "", "%s is out of range: write %s to 1024TiB", c.ShmSize, muster.Size(minShmSize))
	case memory > 0 && c.ShmSize > memory:
		v.add("container.shm_size", "it counts as memory", "%s exceeds resources.memory, %s", c.ShmSize, memory)
	}
	v.count("container.capabilities", len(c.Capabilities))
	for k, name := range c.Capabilities {
		v.oneOf(fmt.Sprintf("container.capabilities[%d]", k), strings.TrimPrefix(name, "CAP_"), muster.Capabilities...)
	}
	if len(c.Mounts) > maxMounts {
		v.add("container.mounts", "", "%d mounts are too many, the maximum is %d", len(c.Mounts), maxMounts)
		return
	}
	for k, m := range c.Mounts {
		at := fmt.Sprintf("container.mounts[%d]", k)
		v.absolutePath(at+".source", m.Source)
		v.absolutePath(at+".target", m.Target)
		switch {
		case m.Target == "/", slices.Contains([]string{"muster", "proc", "sys", "dev"}, strings.Split(m.Target+"/", "/")[1]):
			v.add(at+".target", "", "%s is used by the system or by Muster: use another folder", m.Target)
		case slices.ContainsFunc(c.Mounts[:k], func(o muster.Mount) bool { return o.Target == m.Target }):
			v.add(at+".target", "", "another mount has the target %s, too", muster.Truncate(m.Target))
		}
	}
}

// absolutePath checks a path on a worker or in a container.
func (v *validator) absolutePath(at, p string) {
	v.text(at, p, 4096)
	if !path.IsAbs(p) || path.Clean(p) != p || strings.Contains(p, ":") {
		v.add(at, "such as /data", "%q is not an absolute path: it must begin with /, without .., : and trailing /", muster.Truncate(p))
	}
}

// network checks network and allow_hosts.
func (v *validator) network(t *muster.TaskSpec) {
	v.optional("network", t.Network, muster.NetworkHost, muster.NetworkBridge, muster.NetworkAllowlist, muster.NetworkNone)
	switch {
	case t.Network == muster.NetworkBridge && t.Isolation != muster.IsolationContainer:
		v.add("network", "leave it out for the default", "bridge is for containers only: use %s, %s or %s", muster.NetworkHost, muster.NetworkAllowlist, muster.NetworkNone)
	case t.Network == muster.NetworkAllowlist && len(t.AllowHosts) == 0:
		v.add("allow_hosts", "write a list such as [pypi.org], or network: none", "the allowlist is empty")
	case t.Network != muster.NetworkAllowlist && len(t.AllowHosts) > 0:
		v.add("allow_hosts", "write network: allowlist", "allow_hosts needs network: allowlist")
	}
	v.atMost("allow_hosts", len(t.AllowHosts), maxHosts)
	for k, host := range t.AllowHosts[:min(len(t.AllowHosts), maxHosts)] {
		if len(host) > maxLabel || !hostPattern.Get().MatchString(host) {
			v.add(fmt.Sprintf("allow_hosts[%d]", k), "such as pypi.org, *.hf.co:443, 10.0.0.5:8080 or 10.0.0.0/8", "%q is not a valid host", muster.Truncate(host))
		}
	}
}
