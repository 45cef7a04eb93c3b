//go:build unix

package containerrun

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Recorded messages of engines that are not available here.
func TestStartErrorsOfEngines(t *testing.T) {
	for msg, want := range map[string]run.TaskError{
		`failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "foo": executable file not found in $PATH: unknown`: {
			Reason: muster.StartFailed, Message: "foo: no such command in the image img"},
		`failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/opt/x": stat /opt/x: no such file or directory: unknown`: {
			Reason: muster.StartFailed, Message: "/opt/x: no such command in the image img"},
		"crun: executable file `foo` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found": {
			Reason: muster.StartFailed, Message: "foo: no such command in the image img"},
		`failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/a": permission denied: unknown`: {
			Reason: muster.StartFailed, Message: "/a cannot be executed in the image img"},
		`linux spec user: unable to find group ml: no matching entries in group file`: {
			Reason: muster.StartFailed, Message: "no group ml in the image img"},
		`OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: chdir to cwd ("/muster/work") set in config.json failed: permission denied: unknown`: {
			Reason: muster.StartFailed, Message: "in the folder /muster/work"},
		`could not select device driver "nvidia" with capabilities: [[gpu]]`:                                        {Reason: muster.EngineFailed, Message: "device driver"},
		`failed to create shim task: OCI runtime create failed: runc create failed: cgroup: no space left: unknown`: {Reason: muster.EngineFailed, Message: "cgroup"},
	} {
		got := startError("img", errors.New("the container cannot be started: "+msg))
		if got.Reason != want.Reason || !strings.Contains(got.Message, want.Message) {
			t.Errorf("%s\nis %s: %s", msg, got.Reason, got.Message)
		}
	}
}

// The message of an init that cannot execute a program is distinguished from the output of programs.
func TestStartErrorsOfInits(t *testing.T) {
	for _, c := range []struct {
		code int
		msg  string
		want string // "" for a program's own message
	}{
		{127, "[FATAL tini (7)] exec foo failed: No such file or directory\n", "foo: no such command in the image img"},
		{126, "[FATAL tini (7)] exec /a failed: Permission denied\n", "/a cannot be executed in the image img"},
		{1, "ERROR (catatonit:2): failed to exec pid1: No such file or directory\n", "train: no such command in the image img"},
		{1, "ERROR (catatonit:2): failed to exec pid1: Permission denied\n", "train cannot be executed in the image img"},
		{2, "ERROR (catatonit:2): failed to exec pid1: No such file or directory\n", ""},
		{1, "ERROR (catatonit:2): failed to exec pid1: No such file or directory\nand more\n", ""},
		{1, "ERROR: no such file or directory\n", ""},
		{127, "sh: foo: not found\n", ""},
	} {
		v := &Container{spec: &run.Container{Image: "img"}, out: [2]*outputStream{{}, {head: []byte(c.msg), total: int64(len(c.msg))}}}
		got := v.startFailure(c.code, "train")
		if (got != nil) != (c.want != "") || got != nil && (got.Reason != muster.StartFailed || !strings.Contains(got.Message, c.want)) {
			t.Errorf("%d, %q: %+v", c.code, c.msg, got)
		}
		if want := map[bool]int{true: run.ExitNotExecutable, false: run.ExitNotFound}[strings.Contains(c.want, "executed")]; got != nil && got.ExitCode != want {
			t.Errorf("%d, %q: exit code %d, want %d", c.code, c.msg, got.ExitCode, want)
		}
	}
}

func TestOutputIsResumed(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	type kept struct {
		at   int
		data string
	}
	for _, c := range []struct {
		name, read string
		kept       []kept // with the gap at 10
		want       string
		missing    bool
	}{
		{"all was read", "a\nb\n", []kept{{1, "a\n"}, {2, "b\n"}, {11, "c\n"}}, "c\n", false},
		{"the last line was not", "a\n", []kept{{1, "a\n"}, {2, "b\n"}, {11, "c\n"}}, "b\nc\n", false},
		{"the middle of a line", "a\nbb", []kept{{1, "a\n"}, {2, "bbcc\n"}}, "cc\n", false},
		{"a line that was ended later", "a\nbb", []kept{{1, "a\n"}, {11, "bbcc\n"}}, "cc\n", false},
		{"a line of which the engine lost the beginning", "a\nbb", []kept{{1, "a\n"}, {11, "cc\n"}}, "cc\n", false},
		{"the engine lost lines that were read", "a\nb\n", []kept{{1, "a\n"}, {11, "c\n"}}, "c\n", true},
		{"the same line again is another one", "a\n", []kept{{1, "a\n"}, {11, "a\n"}}, "a\n", false},
		{"nothing was read", "", []kept{{1, "a\n"}, {11, "b\n"}}, "a\nb\n", false},
		{"the log is of later", "aaaa\nbbbb\n", []kept{{9, "bbbb\n"}, {11, "c\n"}}, "c\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			v := &Container{out: [2]*outputStream{{w: w}, {w: w}}}
			v.out[0].write([]byte(c.read))
			g := v.newReplay(at(10))
			var got strings.Builder
			missing := false
			for _, k := range c.kept {
				data, m := v.out[0].skipReplayed(g, 0, at(k.at), []byte(k.data))
				v.out[0].write(data)
				got.Write(data)
				missing = missing || m
			}
			if got.String() != c.want || missing != c.missing {
				t.Errorf("%q, missing: %t", got.String(), missing)
			}
			// The next gap begins where this one ended: the log comes once more, and is skipped.
			next := v.newReplay(at(20))
			for _, k := range c.kept {
				if data, m := v.out[0].skipReplayed(next, 0, at(k.at), []byte(k.data)); len(data) > 0 || m {
					t.Errorf("%q is repeated, missing: %t", data, m)
				}
			}
			_ = w.Close()
		})
	}
}

func TestClassifyExit(t *testing.T) {
	broke := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	before, after := broke.Add(-time.Minute), broke.Add(time.Second)
	for _, c := range []struct {
		name          string
		outage        outage
		state         docker.State
		liveRestore   bool
		stopRequested bool
		ownExit       bool
	}{
		{"only the connection broke", outage{}, docker.State{ExitCode: 137, Finished: after}, false, false, true},
		{"before the engine went away", outage{engineDown: true}, docker.State{ExitCode: 1, Finished: before}, false, false, true},
		{"while it was away, and keeps containers", outage{engineDown: true}, docker.State{ExitCode: 143, Finished: after}, true, false, true},
		{"stopped, with a handler", outage{engineDown: true}, docker.State{ExitCode: 0, Finished: after}, false, false, false},
		{"stopped, without one", outage{engineDown: true}, docker.State{ExitCode: 137, Finished: after}, false, false, false},
		{"stopped, and reported", outage{engineDown: true, waitResult: waitResult{exited: true, code: 0}}, docker.State{ExitCode: 0, Finished: before}, false, false, false},
		{"the engine crashed, and it ended", outage{engineDown: true, crashed: true}, docker.State{ExitCode: 3, Finished: after}, false, false, true},
		{"the engine crashed, and stopped it later", outage{engineDown: true, crashed: true}, docker.State{ExitCode: 137, Finished: after}, false, false, false},
		{"it was to end", outage{engineDown: true}, docker.State{ExitCode: 137, Finished: after}, false, true, true},
		{"it had no more memory", outage{engineDown: true}, docker.State{ExitCode: 137, OOM: true, Finished: after}, false, false, true},
		{"it is being removed", outage{}, docker.State{ExitCode: 137, Removing: true, Finished: after}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.outage.at = broke
			v := &Container{handler: &testRun{t: t}, commands: commands{stopRequested: c.stopRequested}}
			x := v.classifyExit(&c.outage, &c.state, c.liveRestore)
			want := exitStatusOf(c.state.ExitCode)
			want.OOM = c.state.OOM
			if ownExit := x.Stopped == nil; ownExit != c.ownExit || ownExit && *x != want || !ownExit && x.Stopped.Reason != muster.EngineFailed {
				t.Errorf("%+v", x)
			}
		})
	}
}

func TestSocketAbandoned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	v := &Container{spec: &run.Container{Engine: "unix://" + path}, timeouts: testTimeouts, ctx: t.Context()}
	seen := func(how string, wantIs, wantKnown bool) {
		t.Helper()
		if is, known := v.socketAbandoned(); is != wantIs || known != wantKnown {
			t.Errorf("%s: abandoned: %t, known: %t", how, is, known)
		}
	}
	seen("stopped", false, true)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	seen("there", false, false)
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen("crashed", true, true)
	v.spec.Engine = "tcp://127.0.0.1:1"
	seen("elsewhere", false, false)
}
