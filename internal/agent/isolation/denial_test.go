package isolation

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Lines as dash, bash, coreutils, Python, Go, Node and git print them.
func TestExplainDenial(t *testing.T) {
	b := &run.Sandbox{
		Read:  []string{"/usr", "/etc/passwd", "/opt", "/data/sets", "/srv/muster/sdk"},
		Write: []string{"/dev/null", "/dev/shm", "/srv/muster/tasks/7.0-1", "/scratch"},
		List:  []string{"/dev", "/etc"},
	}
	for line, want := range map[string]string{
		"cat: /root/data.csv: Permission denied":                                                                                "access to /root/data.csv: bring",
		"PermissionError: [Errno 13] Permission denied: '/home/ann/model.pt'":                                                   "access to /home/ann/model.pt: bring",
		"ls: cannot open directory '/root': Permission denied":                                                                  "access to /root: bring",
		"mkdir: cannot create directory ‘/srv/out’: Permission denied":                                                          "access to /srv/out: bring",
		"open /var/lib/x/y.db: permission denied":                                                                               "access to /var/lib/x/y.db: bring",
		"Error: EACCES: permission denied, open '/srv/muster/tasks/8.0-1/work/a'":                                               "access to /srv/muster/tasks/8.0-1/work/a: bring",
		"/usr/bin/bash: line 1: /root/tool: Permission denied":                                                                  "access to /root/tool: bring",
		"/root/tool: Permission denied":                                                                                         "access to /root/tool: bring",
		"cat: /etc/shadow: Permission denied":                                                                                   "access to /etc/shadow: bring",
		"cp: cannot create regular file '/scratched/a': Permission denied":                                                      "access to /scratched/a: bring",
		"sh: 1: cannot create /tmp/x.txt: Permission denied":                                                                    "access to /tmp/x.txt: write to $TMPDIR",
		"PermissionError: [Errno 13] Permission denied: '/var/tmp/cache'":                                                       "access to /var/tmp/cache: write to $TMPDIR",
		"Failed to open /dev/nvidia0: Permission denied":                                                                        "without GPUs access to /dev/nvidia0: request",
		"could not open /dev/dri/renderD128 (Permission denied)":                                                                "without GPUs access to /dev/dri/renderD128: request",
		"touch: cannot touch '/usr/local/lib/x': Permission denied":                                                             "makes /usr/local/lib/x read-only for tasks",
		"ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/python3/site-packages/x'": "python.packages",
		"bash: line 1: /data/sets/a.bin: Permission denied":                                                                     "makes /data/sets/a.bin read-only for tasks",
		"/bin/sh: 1: cannot create /opt/x: Permission denied":                                                                   "makes /opt/x read-only for tasks",
		"cp: cannot open '/scratch/a' for '/mnt/b c', Permission denied":                                                        "access to /mnt/b: bring",
		"/bin/sh: 1: cannot create x: Permission denied":                                                                        "",
		"sh: 1: cannot create out/x: Permission denied":                                                                         "",
		"git@github.com: Permission denied (publickey).":                                                                        "",
		"fatal: unable to access 'https://example.org/a/b': Permission denied":                                                  "",
		"ls: cannot open directory '/srv/muster/tasks/7.0-1/work/a': Permission denied":                                         "",
		"touch: cannot touch '/dev/shm/a': Permission denied":                                                                   "",
		"step 1/2 and/or ./a/b ../c ~/d $HOME/e 5 / 6 // permission denied":                                                     "",
		"curl: (77) error setting certificate file: /scratch/ca.pem. Permission denied /":                                       "",
	} {
		got := ExplainDenial(b, line)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\n got  %q\n want %q", line, got, want)
		}
		if got := ExplainDenial(nil, line); got != "" {
			t.Errorf("without a sandbox: got %q", got)
		}
	}
}

func FuzzNamedPaths(f *testing.F) {
	f.Add("cat: /root/data.csv: Permission denied")
	f.Add("‘/a’ //b ./c '/d e' /")
	f.Fuzz(func(t *testing.T, line string) {
		for _, path := range pathsIn(line) {
			if !strings.HasPrefix(path, "/") || path == "/" || !strings.Contains(line, path) {
				t.Errorf("%q is in %q", path, line)
			}
		}
	})
}
