package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/client/pkg/versions"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/workerd"
)

// engine is a container engine that exists or should exist.
type engine struct {
	host  string // its URL
	about *docker.Info
	err   error // why it cannot be used
}

// minAPI is the lowest supported version of the engine's API: that of Docker 20.10.
const minAPI = "1.41"

// findEngines queries the configured engine, or all whose sockets exist.
func (r *inspection) findEngines(ctx context.Context) []engine {
	var hosts []string
	switch configured := r.configuredEngine(); {
	case r.Engine == workerd.EngineNone:
	case configured != "":
		hosts = []string{configured}
	default:
		for _, socket := range r.sockets() {
			if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
				hosts = append(hosts, "unix://"+socket)
			}
		}
	}
	list := make([]engine, len(hosts))
	for i, host := range hosts {
		list[i] = r.askEngine(ctx, host)
	}
	return list
}

// configuredEngine returns the configured engine, "" if there is none.
func (r *inspection) configuredEngine() string {
	if r.Engine != "" && r.Engine != workerd.EngineAuto {
		return r.Engine
	}
	return os.Getenv("DOCKER_HOST")
}

// sockets lists the sockets of engines in the order in which a worker tries them.
func (r *inspection) sockets() []string {
	home, _ := os.UserHomeDir() // "" if it is unknown
	dockers, podmans := docker.Sockets(home, os.Getenv("XDG_RUNTIME_DIR"))
	all := slices.Concat(dockers, podmans)
	for i := range all {
		all[i] = r.hostPath(all[i])
	}
	return all
}

func (c *Config) askEngine(ctx context.Context, host string) engine {
	ctx, cancel := context.WithTimeout(ctx, c.effectiveTimeouts().step)
	defer cancel()
	about, err := docker.Query(ctx, host)
	return engine{host: host, about: about, err: err}
}

// engines reports each engine, or how to install one. The one that a worker uses is the first.
func (r *inspection) engines(context.Context) []Finding {
	hosts := r.engineList()
	switch {
	case r.Engine == workerd.EngineNone:
		return single("engine", Note, "", "--engine is none: tasks run as processes only")
	case len(hosts) == 0:
		return append(r.stoppedDocker(), r.missingEngine()...)
	}
	working := slices.DeleteFunc(slices.Clone(hosts), func(e engine) bool { return e.err != nil })
	hosts = append(working, slices.DeleteFunc(slices.Clone(hosts), func(e engine) bool { return e.err == nil })...)
	var list []Finding
	for i, e := range hosts {
		if e.err != nil {
			f := r.engineFinding(&e)
			if len(working) > 0 && f.Status == Problem {
				f.Status = Note // another one works
			}
			list = append(list, f)
			continue
		}
		a := e.about
		f := newFinding("engine", OK, "", "%s %s at %s (API %s, %s, control groups v%s by %s)", a.Name, a.Version, e.host, a.API, a.Storage, cmp.Or(a.CgroupVersion, "?"), cmp.Or(a.CgroupDriver, "none"))
		if i > 0 {
			f.Status, f.Fix = Note, "to use it instead of "+hosts[0].host+": `muster worker --engine "+e.host+"`"
		}
		list = append(list, f)
		list = append(list, r.engineNotes(&e)...)
	}
	return append(list, r.stoppedDocker()...)
}

func (r *inspection) stoppedDocker() []Finding {
	const socket = "/var/run/docker.sock"
	if r.configuredEngine() != "" {
		return nil // it is not used
	}
	if _, err := os.Lstat(r.hostPath(socket)); err == nil {
		return nil // engines reports it
	}
	for _, daemon := range []string{"/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd"} {
		if _, err := os.Stat(r.hostPath(daemon)); err == nil {
			return single("engine", Note, "to use it: "+r.startCommand(socket)+"; a worker prefers it to Podman", "Docker is installed but does not run: %s does not exist", socket)
		}
	}
	return nil
}

func (r *inspection) missingEngine() []Finding {
	fix := "install Docker: https://docs.docker.com/engine/install"
	release := r.readText("/etc/os-release")
	for _, distro := range []struct{ like, command string }{
		{"debian", "sudo apt-get install docker.io"}, {"ubuntu", "sudo apt-get install docker.io"},
		{"fedora", "sudo dnf install moby-engine && sudo systemctl enable --now docker"}, {"rhel", "sudo dnf install podman && sudo systemctl enable --now podman.socket"},
		{"arch", "sudo pacman -S docker && sudo systemctl enable --now docker"}, {"suse", "sudo zypper install docker && sudo systemctl enable --now docker"},
		{"alpine", "sudo apk add docker && sudo rc-update add docker && sudo service docker start"},
	} {
		if slices.ContainsFunc(strings.Fields(distroIDs(release)), func(id string) bool { return strings.HasPrefix(id, distro.like) }) {
			fix = "to run tasks in containers: `" + distro.command + "`"
			break
		}
	}
	if _, err := exec.LookPath("podman"); err == nil {
		fix = "start Podman's service: `systemctl --user enable --now podman.socket`, for root `sudo systemctl enable --now podman.socket`, or `podman system service -t 0 unix:///run/podman/podman.sock`"
		return single("engine", Note, fix, "Podman is installed but its service does not run: tasks run as processes only")
	}
	return single("engine", Note, fix, "no container engine is installed: tasks run as processes only")
}

// distroIDs returns the IDs of this distribution and of those that it is derived from.
func distroIDs(release string) string {
	var ids []string
	for line := range strings.Lines(release) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == "ID" || key == "ID_LIKE" {
			ids = append(ids, strings.Trim(value, `"'`))
		}
	}
	return strings.Join(ids, " ")
}

// engineFinding reports why an engine that should exist cannot be used.
func (r *inspection) engineFinding(e *engine) Finding {
	socket := strings.TrimPrefix(e.host, "unix://")
	switch {
	case !strings.HasPrefix(e.host, "unix://"):
		return r.remoteEngineFinding(e)
	case errors.Is(e.err, fs.ErrPermission), errors.Is(e.err, docker.ErrDenied):
		return newFinding("engine", Problem, "give this user permission, and log in again: `sudo usermod -aG "+groupOf(socket)+" "+userName()+"`; members of the group can become root", "this user has no permission for %s", e.host)
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return newFinding("engine", Problem, r.startCommand(socket), "connection refused at %s: the engine does not run", e.host)
	case errors.Is(e.err, fs.ErrNotExist):
		return newFinding("engine", Problem, r.startCommand(socket)+", or use another one with --engine", "the configured engine %s does not exist", e.host)
	case errors.Is(e.err, context.DeadlineExceeded):
		return newFinding("engine", Problem, "restart it: "+r.restartCommand(socket), "the engine at %s accepts connections but does not answer within %s", e.host, r.effectiveTimeouts().step)
	case errors.Is(e.err, docker.ErrUnreachable):
		return newFinding("engine", Problem, r.startCommand(socket), "%s", e.err)
	default:
		return newFinding("engine", Problem, "", "cannot use the engine at %s: %s", e.host, e.err)
	}
}

// remoteEngineFinding reports why an engine that is not at a socket of this machine cannot be used.
func (r *inspection) remoteEngineFinding(e *engine) Finding {
	fix := "check that an engine listens there"
	if r.Engine == e.host {
		fix += ", or use one on this machine with --engine, such as `--engine unix:///var/run/docker.sock`: it must see the worker's files"
	} else {
		fix += ", or unset DOCKER_HOST and use one on this machine: it must see the worker's files"
	}
	if errors.Is(e.err, context.DeadlineExceeded) {
		return newFinding("engine", Problem, fix, "the engine at %s does not answer within %s", e.host, r.effectiveTimeouts().step)
	}
	return newFinding("engine", Problem, fix, "%s", e.err)
}

func (r *inspection) startCommand(socket string) string {
	service := "docker"
	if strings.Contains(socket, "podman") {
		service = "podman.socket"
	}
	scope := "sudo systemctl "
	if strings.HasPrefix(socket, "/run/user/") {
		scope = "systemctl --user "
	}
	if _, err := os.Stat(r.hostPath("/run/systemd/system")); err == nil {
		return "`" + scope + "start " + service + "`"
	}
	return "`sudo service " + strings.TrimSuffix(service, ".socket") + " start`"
}

func (r *inspection) restartCommand(socket string) string {
	return strings.Replace(r.startCommand(socket), "start", "restart", 1)
}

func groupOf(socket string) string {
	if g, err := user.LookupGroupId(strconv.Itoa(tool.OwnerGroup(socket))); err == nil {
		return g.Name
	}
	return "docker"
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "$USER"
}

func (r *inspection) engineNotes(e *engine) (list []Finding) {
	a := e.about
	if a.API != "" && versions.LessThan(a.API, minAPI) {
		list = append(list, newFinding("engine-version", Warning, "upgrade it", "%s at %s has version %s of the API; %s or newer is needed", a.Name, e.host, a.API, minAPI))
	}
	if a.OS != "" && a.OS != "linux" {
		list = append(list, newFinding("engine-os", Warning, "switch it to Linux containers", "%s at %s runs %s containers, but most images are for Linux", a.Name, e.host, a.OS))
	}
	if a.Storage == "vfs" {
		list = append(list, newFinding("engine-storage", Warning, "move its data to a file system that supports overlay2, such as ext4 or xfs, and set \"storage-driver\": \"overlay2\" in `/etc/docker/daemon.json`",
			"%s at %s uses the vfs storage driver: each container copies its whole image", a.Name, e.host))
	}
	if a.CgroupDriver == "" || a.CgroupDriver == "none" {
		list = append(list, newFinding("engine-limits", Warning, "delegate control groups of version 2: `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf`, and log in again",
			"%s at %s does not enforce limits: it has no control groups", a.Name, e.host))
	}
	switch users := userns.Describe(e.host, a, r.Data); {
	case a.Rootless:
		list = append(list, newFinding("engine-rootless", Note, "", "%s at %s is rootless: root in a container is this user outside", a.Name, e.host))
	case a.OS != "linux":
	case users.Mode == userns.Own:
		list = append(list, newFinding("engine-users", OK, "", "%s at %s gives each container a user namespace: root in a container is a user outside that no other has", a.Name, e.host))
	case users.Mode == userns.Shared:
		list = append(list, newFinding("engine-users", OK, "", "%s at %s has a user namespace: root in a container is a user without privileges outside", a.Name, e.host))
	default:
		list = append(list, newFinding("engine-users", Note, users.Why, "%s at %s has no user namespaces: root in a container is root of this machine, with few capabilities", a.Name, e.host))
	}
	if strings.HasPrefix(e.host, "unix://") && a.Root != "" {
		list = append(list, r.engineDisk(a)...)
	}
	return list
}

func (r *inspection) engineDisk(a *docker.Info) []Finding {
	usage := diskUsage(a.Root)
	free, all := muster.Size(usage.Free), muster.Size(usage.Total)
	switch {
	case all == 0:
		return nil
	case free < minSpace:
		return single("engine-disk", Problem, "remove unused images: `"+a.Name+" image prune`", "%s stores images in %s, where %s of %s are free", a.Name, a.Root, free, all)
	case free < lowSpace:
		return single("engine-disk", Warning, "remove unused images: `"+a.Name+" image prune`", "%s stores images in %s, where %s of %s are free: images of ML frameworks have 5 to 20 GiB each", a.Name, a.Root, free, all)
	}
	if limit := cmp.Or(r.ImageDisk, workerd.DefaultImageDisk); free < limit {
		return single("engine-disk", Note, "lower the limit with `muster worker --image-disk "+(free/2).String()+"` if the disk has other uses", "images of tasks may use %s, and %s of %s are free in %s", limit, free, all, a.Root)
	}
	return single("engine-disk", OK, "", "%s of %s are free for images in %s", free, all, a.Root)
}

// leftoverContainers reports containers of tasks whose worker does not run.
func (r *inspection) leftoverContainers(ctx context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return nil // running reports it
	}
	id, _, err := agent.LoadIdentity(r.Data)
	if err != nil {
		return nil // identity reports it
	}
	var list []Finding
	for _, e := range r.engineList() {
		if e.err != nil {
			continue
		}
		dead, running, others, err := r.taskContainers(ctx, e.host, workerd.ContainerLabel(id, r.Data))
		switch {
		case err != nil:
			list = append(list, newFinding("leftover-containers", Warning, "", "%s", err))
		case l.inUse(): // the worker removes them, and its shims use theirs
		case len(running) > 0:
			list = append(list, newFinding("leftover-containers", Warning, "start the worker, which removes them; or `docker -H "+e.host+" rm -f "+strings.Join(running, " ")+"`",
				"%s of a worker that no longer runs are still running at %s: %s", term.Plural(len(running), "container"), e.host, firstNames(running)))
		case len(dead) > 0:
			list = append(list, newFinding("leftover-containers", Warning, workerCleansUp, "%s of a worker that no longer runs at %s: %s", term.Plural(len(dead), "container"), e.host, firstNames(dead)))
		}
		if len(others) > 0 {
			list = append(list, newFinding("other-containers", Note, "if no worker uses them: `docker -H "+e.host+" rm "+strings.Join(others, " ")+"`", "%s of workers with other data dirs are stopped at %s: %s", term.Plural(len(others), "container"), e.host, firstNames(others)))
		}
	}
	return list
}

// taskContainers lists the names of tasks' containers at an engine: those of this worker that are stopped, those that run, and
// those of other workers that are stopped.
func (r *inspection) taskContainers(ctx context.Context, host, label string) (dead, running, others []string, err error) {
	d, err := docker.Open(host)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	all, err := d.Containers(ctx, "", "")
	for i := range all {
		c := &all[i]
		worker := c.Labels[container.LabelWorker]
		if c.Labels[container.LabelAttempt] == "" || !container.BelongsTo(worker, c) {
			continue
		}
		own := c.Labels[container.LabelData] == r.Data && worker == label
		switch stopped := isStopped(c.State); {
		case own && stopped:
			dead = append(dead, c.Name)
		case own:
			running = append(running, c.Name)
		case stopped:
			others = append(others, c.Name)
		}
	}
	return dead, running, others, err
}

// isStopped reports whether a container in this state has no process.
func isStopped(state string) bool {
	return slices.Contains([]string{"created", "exited", "dead"}, state)
}
