package container

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// specWith is a box with options of its container.
func specWith(image string, c muster.Container, argv ...string) *run.ContainerSpec {
	b := newSpec(image, argv...)
	b.Task.Spec.Container = &c
	return b
}

// fields reads lines such as "CapEff: 00".
func fields(out string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			m[name] = strings.TrimSpace(value)
		}
	}
	return m
}

func TestContainerPrivileges(t *testing.T) {
	w := newTestEnv(t, nil)
	out, _ := w.runContainer(newSpec(w.shell(), "cat", "/proc/self/status"))
	got := fields(out)
	want := uint64(0)
	for _, bit := range []int{0, 1, 3, 4, 5, 6, 7, 8, 10} { // linux/capability.h: those of granted
		want |= 1 << bit
	}
	if caps, err := strconv.ParseUint(got["CapBnd"], 16, 64); err != nil || caps != want {
		t.Errorf("its capabilities are %s: want %x", got["CapBnd"], want)
	}
	if got["NoNewPrivs"] != "1" || got["Seccomp"] != "2" {
		t.Errorf("no new privileges: %s, seccomp: %s: want 1 and 2", got["NoNewPrivs"], got["Seccomp"])
	}
	out, _ = w.runContainer(specWith(w.shell(), muster.Container{Capabilities: []string{"CAP_NET_RAW"}}, "cat", "/proc/self/status"))
	if caps, err := strconv.ParseUint(fields(out)["CapBnd"], 16, 64); err != nil || caps != want|1<<13 {
		t.Errorf("its capabilities are %s: want NET_RAW, too", fields(out)["CapBnd"])
	}
	_, err := w.create(specWith(w.shell(), muster.Container{Capabilities: []string{"SYS_ADMIN"}}, "true"))
	wantTaskError(t, err, muster.Rejected, "SYS_ADMIN")
}

func TestContainerUser(t *testing.T) {
	w := newTestEnv(t, nil)
	script := func(c muster.Container) string {
		b := specWith(w.shell(), c, "sh", "-c", "echo $(id -u):$(id -g) $HOME")
		b.HasInterpreter, b.Home = true, "/tmp"
		out, _ := w.runContainer(b)
		return strings.TrimSpace(out)
	}
	own := "0:0 /root"
	if uid := os.Geteuid(); uid != 0 {
		own = strconv.Itoa(uid) + ":" + strconv.Itoa(os.Getegid()) + " /tmp"
	}
	for user, want := range map[string]string{"": own, "1234:99": "1234:99 /tmp", "user": "1000:1000 /tmp"} {
		if got := script(muster.Container{User: user}); got != want {
			t.Errorf("as %q it is %q: want %q", user, got, want)
		}
	}
	opened := 0
	for user, want := range map[string]int{"root": 0, "0:0": 0, "1234": 1} {
		b := specWith(w.shell(), muster.Container{User: user}, "true")
		b.OpenMounts = func() error { opened++; return nil }
		opened = 0
		if w.mustCreate(b); os.Geteuid() == 0 && opened != want {
			t.Errorf("as %s the folders were opened %d times: want %d", user, opened, want)
		}
	}
}

func TestContainerCommand(t *testing.T) {
	w := newTestEnv(t, nil)
	image := func(entrypoint, cmd []string) string {
		b := containertest.ShellImage(t)
		b.Entrypoint, b.Cmd, b.Workdir, b.Env = entrypoint, cmd, "/usr", []string{"FROM=image", "PYTHONPATH=/lib/python"}
		return containertest.LoadImage(t, w.host, "muster-test/executes-"+strconv.Itoa(int(testSeq.Add(1)))+":1", b)
	}
	both, plain := image([]string{"/bin/echo", "entry"}, []string{"own"}), image(nil, []string{"/bin/sh", "-c", "pwd; echo $FROM $MINE $PYTHONPATH"})
	shell := newSpec(both, "sh", "-c", "echo shell")
	shell.HasInterpreter = true
	env := newSpec(plain)
	env.Env = []string{"MINE=task", "PYTHONPATH=/muster/sdk"}
	dir := newSpec(plain, "/bin/pwd")
	dir.Dir = "/tmp"
	for name, c := range map[string]struct {
		b    *run.ContainerSpec
		want string
	}{
		"the image's own":        {newSpec(both), "entry own"},
		"a list goes to it":      {newSpec(both, "a", "b"), "entry a b"},
		"a text goes to a shell": {shell, "shell"},
		"another entrypoint":     {specWith(both, muster.Container{Entrypoint: []string{"/bin/echo", "other"}}, "a"), "other a"},
		"no entrypoint":          {specWith(both, muster.Container{Entrypoint: []string{}}, "/bin/echo", "bare"), "bare"},
		"environment and folder": {env, "/usr\nimage task /muster/sdk:/lib/python"},
		"a folder of the task":   {dir, "/tmp"},
		"a folder of the spec":   {specWith(plain, muster.Container{Workdir: "/bin"}, "/bin/pwd"), "/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := w.runContainer(c.b)
			if got := strings.TrimSpace(out); got != c.want || code != 0 {
				t.Errorf("it printed %q and exited with %d: want %q", got, code, c.want)
			}
		})
	}
}

func TestContainerEnvironmentAndMounts(t *testing.T) {
	w := newTestEnv(t, nil)
	b := specWith(w.shell(), muster.Container{ReadOnly: true, ShmSize: 5 << 20}, "sh", "-c", "df -k /dev/shm | tail -1; touch /etc/x; touch /tmp/x && echo tmp; ps -o pid,comm")
	b.HasInterpreter = true
	b.Task.Grant = muster.Grant{CPUs: 0.5, Memory: 64 << 20, PIDs: 50}
	out, _ := w.runContainer(b)
	for _, part := range []string{" 5120 ", "/etc/x: Read-only file system", "tmp\n", "docker-init"} {
		if !strings.Contains(out, part) {
			t.Errorf("it printed %q: want %q in it", out, part)
		}
	}
	c := w.mustCreate(b)
	inspected, err := w.api.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := inspected.Container.HostConfig
	if h.Memory != 64<<20 || h.MemorySwap != 64<<20 || h.NanoCPUs != 5e8 || *h.PidsLimit != 50 {
		t.Errorf("its limits are %d bytes, %d with swap, %d, %d: want 64MiB twice, half a processor and 50", h.Memory, h.MemorySwap, h.NanoCPUs, *h.PidsLimit)
	}
	if h.Privileged || !h.RestartPolicy.IsNone() || h.PidMode != "" || h.IpcMode != "private" || h.NetworkMode != "bridge" || h.LogConfig.Type != "json-file" || h.LogConfig.Config["max-size"] == "" {
		t.Errorf("it was created as %+v", h)
	}
	labels := inspected.Container.Config.Labels
	if want := map[string]string{LabelWorker: w.cfg.Worker, LabelAttempt: b.Task.Attempt.String(), LabelData: w.cfg.Dir}; !maps.Equal(labels, want) {
		t.Errorf("its labels are %v: want %v", labels, want)
	}
}

func TestNetworks(t *testing.T) {
	w := newTestEnv(t, func(c *Config) { c.Allow = &muster.Allow{HostNetwork: true} })
	for network, want := range map[string]string{"": "bridge", "bridge": "bridge", "none": "none", "host": "host"} {
		b := newSpec(w.shell(), "true")
		b.Task.Spec.Network = network
		inspected, err := w.api.ContainerInspect(t.Context(), w.mustCreate(b).ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(inspected.Container.HostConfig.NetworkMode); got != want {
			t.Errorf("network %q became %q: want %q", network, got, want)
		}
	}
	b := newSpec(w.shell(), "true")
	b.Task.Spec.Network = "host"
	_, err := newTestEnv(t, nil).create(b)
	wantTaskError(t, err, muster.Rejected, "the worker's own network")
}

func TestContainersThatTheOwnerDisallows(t *testing.T) {
	w := newTestEnv(t, func(c *Config) { c.Allow = &muster.Allow{Images: []string{"ghcr.io/acme/*"}} })
	_, err := w.create(newSpec(w.shell(), "true"))
	wantTaskError(t, err, muster.Rejected, "does not allow the image")
	w = newTestEnv(t, func(c *Config) { c.Allow = &muster.Allow{Users: []string{"1000"}} })
	_, err = w.create(specWith(w.shell(), muster.Container{User: "0"}, "true"))
	wantTaskError(t, err, muster.Rejected, "run as user 0")
}

func TestMountsOfTheWorker(t *testing.T) {
	open, shut := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(open, "in"): "open", filepath.Join(shut, "in"): "shut"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"inside": filepath.Join(open, "in"), "out": shut} {
		if err := os.Symlink(to, filepath.Join(open, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := newTestEnv(t, func(c *Config) {
		c.Allow = &muster.Allow{Mounts: []string{open, c.Dir, "/run", "/var/run", filepath.Dir(containertest.SharedEngine(t)[len("unix://"):])}}
	})
	mount := func(source, target string, readOnly bool) *run.ContainerSpec {
		b := specWith(w.shell(), muster.Container{Mounts: []muster.Mount{{Source: source, Target: target, ReadOnly: readOnly}}}, "sh", "-c", "cat /data/in /data; touch /data/new && echo written")
		b.HasInterpreter = true
		return b
	}
	for name, c := range map[string]struct {
		b    *run.ContainerSpec
		want string
		not  string
	}{
		"a folder":              {mount(open, "/data", false), "written", "shut"},
		"for reading":           {mount(open, "/data", true), "open", "written"},
		"a link that stays":     {mount(filepath.Join(open, "inside"), "/data", true), "open", "written"},
		"links inside are dead": {mount(open, "/data", true), "open", "shut"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := w.runContainer(c.b)
			if !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
				t.Errorf("it printed %q: want %q and not %q", out, c.want, c.not)
			}
		})
	}
	socket := strings.TrimPrefix(w.host, "unix://")
	for name, c := range map[string]struct {
		b    *run.ContainerSpec
		part string
	}{
		"what is not allowed":       {mount(shut, "/data", true), "does not allow containers to read " + shut},
		"a link that leads out":     {mount(filepath.Join(open, "out"), "/data", true), "links to " + shut},
		"a path that leads out":     {mount(open+"/../"+filepath.Base(shut), "/data", true), "does not allow"},
		"what is not there":         {mount(filepath.Join(open, "none"), "/data", true), "does not exist"},
		"the worker's data dir":     {mount(w.cfg.Dir, "/data", true), "the worker itself"},
		"the engine's socket":       {mount(socket, "/data", true), "the worker itself"},
		"the folder of that socket": {mount(filepath.Dir(socket), "/data", true), "the worker itself"},
		"over the kernel's files":   {mount(open, "/proc/x", true), "is not allowed"},
		"over the task's folders":   {mount(open, "/muster/work", true), "is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.create(c.b)
			wantTaskError(t, err, muster.Rejected, c.part)
		})
	}
}

func TestContainerIsInTheAttemptsGroup(t *testing.T) {
	w := newTestEnv(t, nil)
	if w.About().CgroupDriver != "cgroupfs" || runtime.GOOS != "linux" {
		t.Skip("the engine's control groups are those of " + w.About().CgroupDriver)
	}
	b := newSpec(w.shell(), "true")
	b.Isolation = &run.IsolationSpec{CgroupParent: "/muster-test-a/17.3-2"}
	c := w.mustCreate(b)
	inspected, err := w.api.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := inspected.Container.HostConfig.CgroupParent; got != b.Isolation.CgroupParent || !c.InCgroup {
		t.Errorf("its group is in %q, InCgroup is %v", got, c.InCgroup)
	}
	b = newSpec(w.shell(), "true")
	if c := w.mustCreate(b); c.InCgroup {
		t.Error("InCgroup is true without a group")
	}
}

func TestImageOfAnotherPlatformIsRefused(t *testing.T) {
	w := newTestEnv(t, nil)
	img, err := w.cfg.Engine.Image(t.Context(), w.shell())
	if err != nil {
		t.Fatal(err)
	}
	img.Arch = "s390x"
	_, err = w.createFrom(t.Context(), newSpec(w.shell(), "true"), w.shell(), img, nil, w.lines.add)
	wantTaskError(t, err, muster.ImageMissing, "s390x", runtime.GOARCH)
}

func TestLeftoverContainerOfTheAttemptIsReplaced(t *testing.T) {
	w := newTestEnv(t, nil)
	b := newSpec(w.shell(), "true")
	first := w.mustCreate(b)
	if second := w.mustCreate(b); second.ID == first.ID {
		t.Error("the container is the old one")
	}
}

func TestSweepRemovesUnusedContainers(t *testing.T) {
	before := newTestEnv(t, nil)
	orphan, recovered := before.mustCreate(newSpec(before.shell(), "true")), before.mustCreate(newSpec(before.shell(), "true"))
	other := newTestEnv(t, nil)
	foreign := other.mustCreate(newSpec(other.shell(), "true"))
	now := newTestEnv(t, func(c *Config) { c.Worker = before.cfg.Worker })
	own := now.mustCreate(newSpec(now.shell(), "true"))
	if err := now.Sweep(t.Context(), []*run.Container{recovered}); err != nil {
		t.Fatal(err)
	}
	list, err := now.cfg.Engine.Containers(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	there := func(c *run.Container) bool {
		return slices.ContainsFunc(list, func(l docker.ContainerSummary) bool { return l.ID == c.ID })
	}
	if there(orphan) || !there(recovered) || !there(own) || !there(foreign) {
		t.Errorf("orphan: %v, recovered: %v, own: %v, of another worker: %v: want all but the first", there(orphan), there(recovered), there(own), there(foreign))
	}
	for range 2 {
		if err := now.Remove(t.Context(), recovered); err != nil {
			t.Errorf("removing a missing container fails: %v", err)
		}
	}
}

// TestSweepKeepsOtherContainers checks that labels alone do not identify the worker's containers: an image that a user created from a task's
// container has the same labels, as have all containers of this image.
func TestSweepKeepsOtherContainers(t *testing.T) {
	w := newTestEnv(t, nil)
	c := w.mustCreate(newSpec(w.shell(), "true"))
	made, err := w.api.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := w.cfg.Engine.Create(t.Context(), &docker.ContainerSpec{Image: w.shell(), Labels: made.Container.Config.Labels, LogSize: logSize, LogFiles: logFiles})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.cfg.Engine.Remove(t.Context(), theirs); err != nil {
			t.Error(err)
		}
	}()
	if err := w.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.ContainerInspect(t.Context(), theirs, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("a foreign container with the labels of a task: %v", err)
	}
}

func TestImageWithoutProgram(t *testing.T) {
	for _, inspected := range []string{"No command specified", "no command specified", "no command or entrypoint provided, and no CMD or ENTRYPOINT from image"} {
		if !noCommandRE.Get().MatchString("the container a cannot be made: " + inspected) {
			t.Errorf("%q is not known", inspected)
		}
	}
	w := newTestEnv(t, nil)
	b := newSpec(containertest.LoadImage(t, w.host, "muster-test/none:1", containertest.ImageSpec{Texts: map[string]string{"a": "a"}}), "")
	b.Argv = nil
	_, err := w.create(b)
	wantTaskError(t, err, muster.StartFailed, "has no default command")
}

func TestUsedContainerNameIsAnError(t *testing.T) {
	w := newTestEnv(t, nil)
	b := newSpec(w.shell(), "true")
	p := &docker.ContainerSpec{Name: w.containerName(b.Task.Attempt), Image: w.shell(), LogSize: logSize, LogFiles: logFiles}
	id, err := w.cfg.Engine.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.cfg.Engine.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}()
	_, err = w.create(b)
	wantTaskError(t, err, muster.StartFailed, p.Name)
	if _, err := w.api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("the other one's container: %v", err)
	}
}
