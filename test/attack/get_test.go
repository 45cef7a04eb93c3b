//go:build unix

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// getAttack is an attack on a user who runs muster get in a directory without a terminal.
type getAttack struct {
	claim   string
	prepare func(dir, outside string) error // outside has the file secret
	name    string                          // that a hostile server gives the artifact plain.txt, unless it is ""
	args    []string
	status  int
	stderr  string   // is in the message
	wrote   []string // paths that have the artifact's content afterwards; everything else is as before
}

const plainArtifact = "plain.txt"

var getAttacks = []getAttack{
	{claim: "muster get writes what it was asked for", args: []string{"--name", "*.txt"}, wrote: []string{"plain.txt", "deep/a.txt"}},
	{
		claim: "muster get replaces no file without asking", prepare: func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "plain.txt"), []byte("mine"), 0o600) },
		args: []string{"--name", "*.txt"}, status: 5, stderr: "plain.txt already exists: use --force to replace it",
	},
	{
		claim: "muster get --hidden replaces no file without asking", prepare: func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, ".bashrc"), []byte("mine"), 0o600) },
		args: []string{"--hidden"}, status: 5, stderr: ".bashrc already exists: use --force to replace it",
	},
	{claim: "muster get writes no hidden file without asking", args: []string{"--name", ".bashrc"}, status: 5, stderr: ".bashrc is hidden: use --hidden to write it"},
	{claim: "muster get writes no file in a hidden directory without asking", args: []string{"--name", "authorized_keys"}, status: 5, stderr: ".ssh/authorized_keys is hidden: use --hidden to write it"},
	{claim: "muster get --force writes no hidden file without asking", args: []string{"--force"}, status: 5, stderr: "are hidden: use --hidden to write them"},
	{claim: "muster get writes nothing if one of the files needs a question", status: 5, stderr: "use --hidden"},
	{
		claim: "muster get writes no hidden file that a server names", name: "a/.config/autostart/x", args: []string{"--name", "x"},
		status: 5, stderr: "is hidden: use --hidden",
	},
	{
		claim: "muster get takes a link in the place of a file for an existing file", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "plain.txt"))
		},
		args: []string{"--name", "plain.txt"}, status: 5, stderr: "already exists",
	},
	{
		claim: "muster get takes a dangling link in the place of a file for an existing file", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "plain.txt"))
		},
		args: []string{"--name", "plain.txt"}, status: 5, stderr: "already exists",
	},
	{
		claim: "muster get --force replaces a link, and does not follow it", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "plain.txt"))
		},
		args: []string{"--name", "plain.txt", "--force"}, wrote: []string{"plain.txt"},
	},
	{
		claim: "muster get --output replaces a link, and does not follow it", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "out"))
		},
		args: []string{"--name", "plain.txt", "--output", "out", "--force"}, wrote: []string{"out"},
	},
	{
		claim: "muster get --output replaces no file without asking", prepare: func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "out"), []byte("mine"), 0o600) },
		args: []string{"--name", "plain.txt", "--output", "out"}, status: 5, stderr: "out already exists: use --force",
	},
	{
		claim: "muster get --force leaves the other names of a file as they are", prepare: func(dir, outside string) error {
			return os.Link(filepath.Join(outside, "secret"), filepath.Join(dir, "plain.txt"))
		},
		args: []string{"--name", "plain.txt", "--force"}, wrote: []string{"plain.txt"},
	},
	{
		claim: "muster get does not follow a link in the place of a directory", prepare: func(dir, outside string) error { return os.Symlink(outside, filepath.Join(dir, "deep")) },
		args: []string{"--name", "a.txt", "--force"}, status: 2, stderr: "deep: it is a symbolic link",
	},
	{
		claim: "muster get does not follow a link to another directory of the same one",
		prepare: func(dir, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, ".ssh"), 0o700), os.Symlink(".ssh", filepath.Join(dir, "deep")))
		},
		args: []string{"--name", "a.txt", "--force"}, status: 2, stderr: "deep: it is a symbolic link",
	},
	{
		claim: "muster get does not follow a link NAME.part", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "plain.txt.part"))
		},
		args: []string{"--name", "plain.txt"}, wrote: []string{"plain.txt"},
	},
	{
		claim: "muster get neither waits for a pipe in the place of a file nor replaces it", prepare: func(dir, _ string) error { return syscall.Mkfifo(filepath.Join(dir, "plain.txt"), 0o600) },
		args: []string{"--name", "plain.txt", "--force"}, status: 2, stderr: "it is a named pipe",
	},
	{
		claim: "muster get replaces no directory", prepare: func(dir, _ string) error { return os.Mkdir(filepath.Join(dir, "plain.txt"), 0o700) },
		args: []string{"--name", "plain.txt", "--force"}, status: 2, stderr: "it is a directory",
	},
	{claim: "muster get follows no .. that a server names", name: "../outside/new", status: 2, stderr: "relative path"},
	{claim: "muster get follows no .. in the middle of a name", name: "a/../../outside/new", status: 2, stderr: "relative path"},
	{claim: "muster get follows no absolute path that a server names", name: "/tmp/muster-attack-get", status: 2, stderr: "relative path"},
	{claim: "muster get refuses the separator of Windows in a name", name: `..\outside\new`, status: 2, stderr: "backslash"},
	{claim: "muster get refuses a drive letter of Windows", name: "C:new", status: 2, stderr: "drive letter"},
	{claim: "muster get refuses control sequences of terminals in a name, and does not print them", name: "\x1b]0;title\x07\u009b2J", status: 2, stderr: "U+001B"},
	{claim: "muster get refuses characters that change the direction of text, and does not print them", name: "txt.\u202egnp", status: 2, stderr: "U+202E"},
	{claim: "muster get --list prints no control sequences of a name", name: "\x1b]0;title\x07\u009b2J\u202e", args: []string{"--list"}},
	{claim: "muster get refuses a file that has the path of a directory", name: "deep", status: 2, stderr: "cannot all be in one directory"},
	{claim: "muster get refuses two files of one path", name: "deep/a.txt", status: 2, stderr: "cannot all be in one directory"},
	{claim: "muster get --output writes an artifact of any name", name: "../outside/new", args: []string{"--name", "new", "--output", "out"}, wrote: []string{"out"}},
}

// TestGet checks that muster get writes only files that the user expects, whatever the task, the server or another user of the directory
// prepared.
func TestGet(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.StartWorker("rig", t.TempDir())
	const content = "of the task\n"
	job := e.Submit(mustertest.ShellSpec("files", `cd $MUSTER_OUT; mkdir deep .ssh; for f in plain.txt deep/a.txt .bashrc .ssh/authorized_keys; do echo of the task >$f; done`))
	if got := e.Wait(job.ID, awaitTimeout); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", got.State)
	}
	for _, a := range getAttacks { // the cluster ends after them
		t.Run(a.claim, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
			err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			if a.prepare != nil {
				if err := a.prepare(dir, outside); err != nil {
					t.Fatal(err)
				}
			}
			server := e.url("")
			if a.name != "" {
				server = renamingServer(t, server, a.name)
			}
			want := snapshot(t, base)
			for _, path := range a.wrote {
				want[filepath.Join("dir", path)] = "file " + content
				for d := filepath.Dir(path); d != "."; d = filepath.Dir(d) {
					want[filepath.Join("dir", d)] = "directory"
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, mustertest.Program(t), append([]string{"get", job.ID.String()}, a.args...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "MUSTER_CONFIG="+filepath.Join(t.TempDir(), "context.json"), "MUSTER_SERVER="+server, "MUSTER_TOKEN="+mustertest.AdminToken)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err = cmd.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() != a.status || !ok && a.status != 0 || !strings.Contains(stderr.String(), a.stderr) {
				t.Errorf("it ended with %v and %q, want %d and %q", err, &stderr, a.status, a.stderr)
			}
			if got := snapshot(t, base); !maps.Equal(got, want) {
				t.Errorf("the directories have %q, want %q", got, want)
			}
			if text := stdout.String() + stderr.String(); strings.ContainsAny(text, "\x1b\x07\u009b\u202e") {
				t.Errorf("it printed %q", text)
			}
		})
	}
}

// snapshot describes everything below a directory.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case d.IsDir():
			found[rel] = "directory"
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			found[rel] = "link " + target
		case d.Type().IsRegular():
			text, err := os.ReadFile(path)
			found[rel] = "file " + string(text)
			return err
		default:
			found[rel] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// renamingServer passes requests on to a server, and gives the artifact plain.txt another name in all answers.
func renamingServer(t *testing.T, server, name string) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding")
			if before, _, ok := strings.Cut(r.In.URL.Path, "/artifacts/"); ok {
				r.Out.URL.Path, r.Out.URL.RawPath = before+"/artifacts/"+plainArtifact, ""
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if !strings.Contains(r.Header.Get("Content-Type"), "json") {
				return nil
			}
			b, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Body.Close()); err != nil {
				return err
			}
			b = bytes.ReplaceAll(b, []byte(strconv.Quote(plainArtifact)), encoded)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			r.Header.Set("Content-Length", strconv.Itoa(len(b)))
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}
