package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/workerd"
)

// engine is a container engine that is there, or should be.
type engine struct {
	host  string // its URL
	about *docker.Info
	err   error // why it cannot be used
}

// minAPI is the version of the engine's API below which containers are not made as they
// should be: that of Docker 20.10.
const minAPI = "1.41"

// findEngines asks the engine that was named, or all whose sockets are there.
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

// configuredEngine is the engine that somebody named, "" for none.
func (r *inspection) configuredEngine() string {
	if r.Engine != "" && r.Engine != workerd.EngineAuto {
		return r.Engine
	}
	return os.Getenv("DOCKER_HOST")
}

// sockets lists where engines listen, in the order in which a worker looks for them.
func (r *inspection) sockets() []string {
	all := []string{r.hostPath("/var/run/docker.sock")}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		for _, at := range []string{".docker/run", ".docker/desktop", ".colima/default", ".orbstack/run", ".rd"} {
			all = append(all, filepath.Join(home, filepath.FromSlash(at), "docker.sock"))
		}
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "podman", "podman.sock"))
	}
	return append(all, r.hostPath("/run/podman/podman.sock"))
}

func (c *Config) askEngine(ctx context.Context, host string) engine {
	ctx, cancel := context.WithTimeout(ctx, c.effectiveTimeouts().step)
	defer cancel()
	e := engine{host: host}
	if socket, ok := strings.CutPrefix(host, "unix://"); ok {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			e.err = err
			return e
		}
		_ = conn.Close()
	}
	d, err := docker.Open(host)
	if err != nil {
		e.err = err
		return e
	}
	defer func() { _ = d.Close() }() // nothing was kept
	e.about, e.err = d.Info(ctx)
	return e
}

// engines tells of each engine, or how to come to one. The one that a worker takes is the first.
func (r *inspection) engines(context.Context) []Finding {
	hosts := r.engineList()
	switch {
	case r.Engine == workerd.EngineNone:
		return single("engine", Note, "", "--engine is none: tasks run as processes only")
	case len(hosts) == 0:
		return append(r.stoppedDocker(), r.missingEngine()...)
	}
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(a, b engine) int {
		switch {
		case a.err == nil && b.err != nil:
			return -1
		case a.err != nil && b.err == nil:
			return 1
		}
		return 0
	})
	var list []Finding
	usable := hosts[0].err == nil
	for i, e := range hosts {
		if e.err != nil {
			f := r.engineFinding(&e)
			if usable && f.Status == Problem {
				f.Status = Note // another one serves
			}
			list = append(list, f)
			continue
		}
		a := e.about
		f := newFinding("engine", OK, "", "%s %s at %s (API %s, %s, control groups v%s by %s)", a.Name, a.Version, e.host, a.API, a.Storage, cmp.Or(a.CgroupVersion, "?"), cmp.Or(a.CgroupDriver, "none"))
		if i > 0 {
			f.Status, f.Fix = Note, "to have it used in place of "+hosts[0].host+": `muster worker --engine "+e.host+"`"
		}
		list = append(list, f)
		list = append(list, r.engineNotes(&e)...)
	}
	return append(list, r.stoppedDocker()...)
}

// stoppedDocker tells of a Docker that is installed and whose socket is not even there.
func (r *inspection) stoppedDocker() []Finding {
	const socket = "/var/run/docker.sock"
	if r.configuredEngine() != "" {
		return nil // it is not looked for
	}
	if _, err := os.Lstat(r.hostPath(socket)); err == nil {
		return nil // it has been asked
	}
	for _, daemon := range []string{"/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd"} {
		if _, err := os.Stat(r.hostPath(daemon)); err == nil {
			return single("engine", Note, "if it is wanted: "+r.startCommand(socket)+"; a worker prefers it to Podman", "Docker is installed and does not run: %s is not there", socket)
		}
	}
	return nil
}

// missingEngine says how to come to an engine, for the system that this is.
func (r *inspection) missingEngine() []Finding {
	fix := "install Docker: https://docs.docker.com/engine/install"
	release := r.readText("/etc/os-release")
	for _, distro := range []struct{ like, command string }{
		{"debian", "sudo apt-get install docker.io"}, {"ubuntu", "sudo apt-get install docker.io"},
		{"fedora", "sudo dnf install moby-engine && sudo systemctl enable --now docker"}, {"rhel", "sudo dnf install podman && sudo systemctl enable --now podman.socket"},
		{"arch", "sudo pacman -S docker && sudo systemctl enable --now docker"}, {"suse", "sudo zypper install docker && sudo systemctl enable --now docker"},
		{"alpine", "sudo apk add docker && sudo rc-update add docker && sudo service docker start"},
	} {
		if slices.ContainsFunc(strings.Fields(distroIDs(release)), func(id string) bool { return id == distro.like || strings.HasPrefix(id, distro.like) }) {
			fix = "to run tasks in containers: `" + distro.command + "`"
			break
		}
	}
	if path := lookPath("podman"); path != "" {
		fix = "have Podman listen: `systemctl --user enable --now podman.socket`, for root `sudo systemctl enable --now podman.socket`, or `podman system service -t 0 unix:///run/podman/podman.sock`"
		return single("engine", Note, fix, "Podman is here and its service does not listen: tasks run as processes only")
	}
	return single("engine", Note, fix, "there is no container engine: tasks run as processes only")
}

// distroIDs returns the names of this distribution and of those that it is like.
func distroIDs(release string) string {
	var ids []string
	for line := range strings.Lines(release) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == "ID" || key == "ID_LIKE" {
			ids = append(ids, strings.Trim(value, `"'`))
		}
	}
	return strings.Join(ids, " ")
}

// engineFinding says why an engine that should be there cannot be used.
func (r *inspection) engineFinding(e *engine) Finding {
	socket := strings.TrimPrefix(e.host, "unix://")
	switch {
	case !strings.HasPrefix(e.host, "unix://"):
		return r.remoteEngineFinding(e)
	case errors.Is(e.err, fs.ErrPermission), errors.Is(e.err, docker.ErrDenied):
		return newFinding("engine", Problem, "let this user use it, and log in again: `sudo usermod -aG "+groupOf(socket)+" "+userName()+"`; whoever may use it is as good as root", "this user may not use %s", e.host)
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return newFinding("engine", Problem, r.startCommand(socket), "nobody answers at %s: the engine does not run", e.host)
	case errors.Is(e.err, fs.ErrNotExist):
		return newFinding("engine", Problem, r.startCommand(socket)+", or name another one with --engine", "%s is named, and is not there", e.host)
	case errors.Is(e.err, context.DeadlineExceeded):
		return newFinding("engine", Problem, "restart it: "+r.restartCommand(socket), "the engine at %s takes connections and does not answer within %s", e.host, r.effectiveTimeouts().step)
	case errors.Is(e.err, docker.ErrUnreachable):
		return newFinding("engine", Problem, r.startCommand(socket), "%s", e.err)
	default:
		return newFinding("engine", Problem, "", "the engine at %s cannot be used: %s", e.host, e.err)
	}
}

// remoteEngineFinding says why an engine cannot be used that is not at a socket of this machine, as far as one can tell.
func (r *inspection) remoteEngineFinding(e *engine) Finding {
	fix := "see that an engine listens there"
	if r.Engine == e.host {
		fix += ", or name one of this machine with --engine, such as `--engine unix:///var/run/docker.sock`: it must see the worker's files"
	} else {
		fix += ", or take DOCKER_HOST out of the environment and use one of this machine: it must see the worker's files"
	}
	if errors.Is(e.err, context.DeadlineExceeded) {
		return newFinding("engine", Problem, fix, "the engine at %s does not answer within %s", e.host, r.effectiveTimeouts().step)
	}
	return newFinding("engine", Problem, fix, "%s", e.err)
}

// startCommand says how the service of an engine is started.
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

// restartCommand says how a service that does not answer is brought back.
func (r *inspection) restartCommand(socket string) string {
	return strings.Replace(r.startCommand(socket), "start", "restart", 1)
}

// groupOf is the group that owns a socket.
func groupOf(socket string) string {
	if gid, ok := owningGroup(socket); ok {
		if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
			return g.Name
		}
	}
	return "docker"
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "$USER"
}

// engineNotes are what can be said of an engine that answers.
func (r *inspection) engineNotes(e *engine) (list []Finding) {
	a := e.about
	if olderVersion(a.API, minAPI) {
		list = append(list, newFinding("engine-version", Warning, "upgrade it", "%s at %s speaks version %s of the API; %s or newer is needed", a.Name, e.host, a.API, minAPI))
	}
	if a.OS != "" && a.OS != "linux" {
		list = append(list, newFinding("engine-os", Warning, "switch it to Linux containers", "%s at %s runs containers of %s, images are mostly of linux", a.Name, e.host, a.OS))
	}
	if a.Storage == "vfs" {
		list = append(list, newFinding("engine-storage", Warning, "give its data a file system with overlay2, such as ext4 or xfs, and set \"storage-driver\": \"overlay2\" in `/etc/docker/daemon.json`",
			"%s at %s stores with vfs: each container copies its whole image", a.Name, e.host))
	}
	if a.CgroupDriver == "" || a.CgroupDriver == "none" {
		list = append(list, newFinding("engine-limits", Warning, "let it have control groups of version 2: `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf`, and log in again",
			"%s at %s limits nothing: it has no control groups", a.Name, e.host))
	}
	if a.Rootless {
		list = append(list, newFinding("engine-rootless", Note, "", "%s at %s is rootless: root in a container is this user outside of it", a.Name, e.host))
	}
	if strings.HasPrefix(e.host, "unix://") && a.Root != "" {
		list = append(list, r.engineDisk(a)...)
	}
	return list
}

// engineDisk looks at how much room images have.
func (r *inspection) engineDisk(a *docker.Info) []Finding {
	free, all := diskSpace(nearestExisting(a.Root))
	switch {
	case all == 0:
		return nil
	case free < minSpace:
		return single("engine-disk", Problem, "remove what is not used: `"+a.Name+" image prune`", "%s keeps images in %s, where %s of %s are free", a.Name, a.Root, free, all)
	case free < lowSpace:
		return single("engine-disk", Warning, "remove what is not used: `"+a.Name+" image prune`", "%s keeps images in %s, where %s of %s are free: images of ML frameworks are 5 to 20 GiB each", a.Name, a.Root, free, all)
	}
	if limit := cmp.Or(r.ImageDisk, workerd.DefaultImageDisk); free < limit {
		return single("engine-disk", Note, "let them take less with `muster worker --image-disk "+(free/2).String()+"`, if the disk has other uses", "images that tasks bring may take %s, and %s of %s are free in %s", limit, free, all, a.Root)
	}
	return single("engine-disk", OK, "", "%s of %s are free for images, in %s", free, all, a.Root)
}

// olderVersion compares versions such as 1.41.
func olderVersion(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errX != nil || errY != nil {
			return false
		}
		if x != y {
			return x < y
		}
	}
	return len(a) < len(b)
}

// leftoverContainers looks for containers of tasks whose worker is gone.
func (r *inspection) leftoverContainers(ctx context.Context) []Finding {
	l, err := r.dataDirUse()
	if err != nil {
		return nil // running tells of it
	}
	id, _, err := agent.LoadIdentity(r.Data)
	if err != nil {
		return nil // identity tells of it
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
		case l.inUse(): // a worker cleans up by itself, and its shims need theirs
		case len(running) > 0:
			list = append(list, newFinding("leftover-containers", Warning, "start the worker: it removes them; or `docker -H "+e.host+" rm -f "+strings.Join(running, " ")+"`",
				"%s of a worker that is gone still run at %s: %s", plural(len(running), "container"), e.host, firstNames(running)))
		case len(dead) > 0:
			f := newFinding("leftover-containers", Warning, "`muster doctor --fix` removes them, a worker that starts does as well", "%s of a worker that is gone at %s: %s", plural(len(dead), "container"), e.host, firstNames(dead))
			f.repair = r.exclusiveRepair("remove containers of tasks that are gone at "+e.host, func(ctx context.Context, _ *dataDirUse) error {
				return r.removeStopped(ctx, e.host, workerd.ContainerLabel(id, r.Data))
			})
			list = append(list, f)
		}
		if len(others) > 0 {
			list = append(list, newFinding("other-containers", Note, "if no worker has them: `docker -H "+e.host+" rm "+strings.Join(others, " ")+"`", "%s of workers with other data dirs do not run, at %s: %s", plural(len(others), "container"), e.host, firstNames(others)))
		}
	}
	return list
}

// taskContainers lists the containers of tasks at an engine by name: those of this worker that do not run, those
// that do, and those of other workers that do not run.
func (r *inspection) taskContainers(ctx context.Context, host, label string) (dead, running, others []string, err error) {
	d, err := docker.Open(host)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = d.Close() }() // nothing was kept
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

// hasRunningContainer reports whether a container of this worker's tasks runs, at an engine that answers.
func (r *inspection) hasRunningContainer(ctx context.Context) bool {
	id, _, err := agent.LoadIdentity(r.Data)
	if err != nil {
		return true // nobody knows
	}
	return slices.ContainsFunc(r.engineList(), func(e engine) bool {
		if e.err != nil {
			return false
		}
		_, running, _, err := r.taskContainers(ctx, e.host, workerd.ContainerLabel(id, r.Data))
		return err != nil || len(running) > 0
	})
}

// isStopped reports whether a container in this state has no process.
func isStopped(state string) bool {
	return slices.Contains([]string{"created", "exited", "dead"}, state)
}

// removeStopped removes the containers of a worker that do not run.
func (r *inspection) removeStopped(ctx context.Context, host, label string) error {
	dead, _, _, err := r.taskContainers(ctx, host, label)
	if err != nil {
		return err
	}
	d, err := docker.Open(host)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing was kept
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().total)
	defer cancel()
	var errs []error
	for _, name := range dead {
		errs = append(errs, d.Remove(ctx, name))
	}
	return errors.Join(errs...)
}
